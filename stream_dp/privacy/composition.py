"""What the charges on one data source add up to, over ranges of offsets, and whether a budget allows them.

A charge is one mechanism: d-approximate rho-zCDP for the events of the offsets it reads, and 0 for all others.

- Unit `event`: neighbours differ at one offset, so the charges covering that offset add up, and the worst offset
  counts. Charges on disjoint ranges compose in parallel.
- Unit `user`: one user's events may stand at any offsets, so all charges add up.

`Budget.allows` is a privacy filter: it holds although every charge is chosen after seeing what earlier ones gave.
That needs limits on the sums of rho and of delta which are fixed beforehand, so half of the budget's delta is kept
for the charges' own deltas and half for the conversion of rho. (A rule that lets each history trade one against the
other is proved only for charges fixed in advance; see docs/budget.md.) Sums are exact, in integers.

Sources: Bun and Steinke 2016 (zCDP, approximate zCDP); Feldman and Zrnic 2021 (filters per record); Whitehouse,
Ramdas, Rogers and Wu 2023 (filters for approximate zCDP); Haney et al. 2023 (interleaved mechanisms).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import msgspec

from stream_dp.privacy.accounting import zcdp_epsilon, zcdp_rho

Unit = Literal["event", "user"]

_SLACK = 1e-9  # relative: what equal shares of a budget may exceed it by through rounding; taken off the budget first
_SCALE = 1 << 1074  # every double is a multiple of 1 / _SCALE
_USUAL_DELTA = 1e-6


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """One mechanism on the events from `first_offset` to before `end_offset` (None: to the end of an endless log).

    It is `delta`-approximate `rho`-zCDP for neighbours that differ in one `unit`. `exact` is an (epsilon, delta)
    guarantee of this mechanism by itself, its own delta included, where one is known that a conversion of rho would
    loosen. `id` makes a repeated charge one charge; `digest` stands for the parameters; `what` is for people.
    """

    id: str
    what: str
    unit: Unit
    rho: float
    delta: float
    first_offset: int
    end_offset: int | None
    digest: str
    exact: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a charge needs an id that is not empty")
        if self.unit not in ("event", "user"):
            raise ValueError(f"the unit of a charge is event or user, not {self.unit!r}")
        if not (self.rho == 0 or 1e-250 <= self.rho <= 1e9):
            raise ValueError(f"the rho of a charge must be zero or from 1e-250 to 1e9, not {self.rho}")
        if not 0 <= self.delta < 1:
            raise ValueError(f"the delta of a charge must be at least 0 and below 1, not {self.delta}")
        if self.first_offset < 0 or (self.end_offset is not None and self.end_offset < self.first_offset):
            raise ValueError(
                f"offsets {self.first_offset} to {self.end_offset} are no range: the end must not come first"
            )
        if self.exact is not None and not (0 <= self.exact[0] < math.inf and 0 <= self.exact[1] < 1):
            raise ValueError(f"an exact guarantee is an epsilon and a delta below 1, not {self.exact}")


@dataclass(frozen=True, slots=True)
class Load:
    """The sums at every offset from `first_offset` to before `end_offset` (None: without end).

    `alone` is the one charge there, where there is exactly one.
    """

    first_offset: int
    end_offset: int | None
    rho: float
    delta: float
    alone: Charge | None

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon known for (epsilon, `delta`)-DP of these charges, fixed in advance; may be infinite."""
        return min(self._own_epsilon(delta), self._epsilon_by_sums(delta))

    def by_exact(self, delta: float) -> bool:
        """Whether the exact guarantee of the only charge is what `epsilon_at` returns."""
        return self._own_epsilon(delta) < self._epsilon_by_sums(delta)

    def _own_epsilon(self, delta: float) -> float:
        exact = self.alone.exact if self.alone is not None else None
        return exact[0] if exact is not None and exact[1] <= delta else math.inf

    def _epsilon_by_sums(self, delta: float) -> float:
        if self.rho == 0 and self.delta <= delta:
            return 0.0
        return zcdp_epsilon(self.rho, delta - self.delta) if delta - self.delta >= 1e-100 else math.inf


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a source may spend: (epsilon, delta)-DP for whatever is released from it, per `unit`."""

    epsilon: float
    delta: float
    unit: Unit

    def __post_init__(self) -> None:
        if self.unit not in ("event", "user"):
            raise ValueError(f"the unit of a budget is event or user, not {self.unit!r}")
        if not 1e-6 <= self.epsilon <= 1000:
            raise ValueError(f"the epsilon of a budget must lie between 1e-6 and 1000, not {self.epsilon:g}")
        if not 1e-50 <= self.delta <= 0.5:
            raise ValueError(f"the delta of a budget must lie between 1e-50 and 0.5, not {self.delta:g}")

    @property
    def charged_delta(self) -> float:
        """The limit of the sum of the charges' deltas: half of delta."""
        return self.delta / 2

    @property
    def conversion_delta(self) -> float:
        """The delta at which rho is converted: the other half, less the slack of `charged_delta`."""
        return self.delta / 2 * (1 - _SLACK)

    @property
    def rho(self) -> float:
        """The limit of the sum of rho."""
        return zcdp_rho(self.epsilon, self.conversion_delta) * (1 - _SLACK)

    def allows(self, load: Load, rho_limit: float | None = None) -> bool:
        """Whether both sums are within their limits, or the only charge is within the budget by its exact guarantee.

        `rho_limit` is `self.rho`, for callers that ask often.
        """
        alone = load.alone.exact if load.alone is not None else None
        if alone is not None and alone[0] <= self.epsilon and alone[1] <= self.delta:
            return True
        limit = self.rho if rho_limit is None else rho_limit
        return load.rho <= limit * (1 + _SLACK) and load.delta <= self.charged_delta * (1 + _SLACK)

    def least_epsilon(self, load: Load) -> float:
        """The epsilon that this budget would need, at its delta, to allow the load; infinite if none does."""
        epsilon = math.inf
        if load.delta <= self.charged_delta * (1 + _SLACK):
            epsilon = max(1e-6, zcdp_epsilon(load.rho, self.conversion_delta) * (1 + 1e-6))
        if load.alone is not None and load.alone.exact is not None and load.alone.exact[1] <= self.delta:
            epsilon = min(epsilon, load.alone.exact[0])
        return epsilon


@dataclass(frozen=True, slots=True)
class Spent:
    """The costliest range of offsets: its sums, and what they mean as (epsilon, delta)."""

    epsilon: float
    delta: float
    rho: float
    charged_delta: float
    first_offset: int
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class Room:
    """What one more charge on a range may cost: both limits hold.

    `untouched` says that nothing covers the range yet, so that a charge fits by its exact guarantee as well.
    """

    rho: float
    delta: float
    untouched: bool

    @property
    def pure_epsilon(self) -> float:
        """The epsilon of the largest pure epsilon-DP mechanism that fits."""
        return math.sqrt(2 * self.rho)


def loads(charges: Iterable[Charge], unit: Unit) -> list[Load]:
    """The sums over every maximal range of offsets that the same charges cover, in order; none where none covers.

    In the user unit there is one range, which is everything.
    """
    chosen = list(charges)
    if unit == "user":
        if not chosen:
            return []
        rho, delta = sum(map(_exact_rho, chosen)), sum(map(_exact_delta, chosen))
        return [Load(0, None, _up(rho), _up(delta), chosen[0] if len(chosen) == 1 else None)]
    steps: dict[float, list[int]] = {}
    for index, charge in enumerate(chosen):
        end = math.inf if charge.end_offset is None else charge.end_offset
        if end > charge.first_offset:
            for offset, sign in ((charge.first_offset, 1), (end, -1)):
                step = steps.setdefault(offset, [0, 0, 0, 0])
                step[0] += sign
                step[1] += sign * index  # where one charge is left, this sum is its index
                step[2] += sign * _exact_rho(charge)
                step[3] += sign * _exact_delta(charge)
    found = []
    number = index = rho = delta = 0
    offsets = sorted(steps)
    for offset, following in pairwise(offsets):
        number, index = number + steps[offset][0], index + steps[offset][1]
        rho, delta = rho + steps[offset][2], delta + steps[offset][3]
        if number:
            end_offset = None if following == math.inf else int(following)
            alone = chosen[index] if number == 1 else None
            found.append(Load(int(offset), end_offset, _up(rho), _up(delta), alone))
    return found


def spent(charges: Sequence[Charge], unit: Unit, delta: float | None = None) -> Spent:
    """The costliest range at `delta`; without one, at twice what the charges' deltas add up to, at least 1e-6."""
    found = loads(charges, unit)
    if delta is None:
        delta = max([_USUAL_DELTA, *(min(0.5, 2 * load.delta) for load in found)])
    worst, epsilon = Load(0, None, 0.0, 0.0, None), 0.0
    for load in _largest(found):
        alone = load.alone.exact if load.alone is not None else None
        if alone is not None and alone[1] <= delta and alone[0] <= epsilon:
            continue  # cannot be the costliest: spares a conversion
        needed = load.epsilon_at(delta)
        if needed >= epsilon:
            worst, epsilon = load, needed
    return Spent(epsilon, delta, worst.rho, worst.delta, worst.first_offset, worst.end_offset)


def refused(charges: Iterable[Charge], budget: Budget) -> list[Load]:
    """The ranges at which the charges exceed the budget; empty if it allows all of them."""
    limit = budget.rho
    return [load for load in loads(charges, budget.unit) if not budget.allows(load, limit)]


def room(charges: Iterable[Charge], budget: Budget, first_offset: int, end_offset: int | None) -> Room:
    """What one more charge from `first_offset` to before `end_offset` may cost."""
    end = math.inf if end_offset is None else end_offset
    touched = [
        load
        for load in loads(charges, budget.unit)
        if budget.unit == "user"
        or (load.first_offset < end and (load.end_offset is None or load.end_offset > first_offset))
    ]
    rho = budget.rho - max((load.rho for load in touched), default=0.0)
    delta = budget.charged_delta - max((load.delta for load in touched), default=0.0)
    if rho <= 0 or delta < -budget.charged_delta * _SLACK:
        return Room(0.0, 0.0, not touched)
    return Room(rho, max(0.0, delta), not touched)


def _largest(found: list[Load]) -> list[Load]:
    """The loads that no other one exceeds in both sums, and those of a single charge, which may cost less."""
    kept, delta = [], -1.0
    for load in sorted(found, key=lambda load: (-load.rho, -load.delta)):
        if load.alone is None and load.delta <= delta:
            continue
        kept.append(load)
        if load.alone is None or load.alone.exact is None:
            delta = max(delta, load.delta)
    return kept


def _exact_rho(charge: Charge) -> int:
    return _scaled(charge.rho)


def _exact_delta(charge: Charge) -> int:
    return _scaled(charge.delta)


def _scaled(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_SCALE // denominator)


def _up(scaled: int) -> float:
    """The least double that is not below scaled / _SCALE."""
    value = scaled / _SCALE
    return value if _scaled(value) >= scaled else math.nextafter(value, math.inf)
