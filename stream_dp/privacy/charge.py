"""A charge: one mechanism on a range of offsets, and what all charges that cover an offset add up to.

A topic may have several partitions.  Its events are those of all of them, each at a partition and an offset, so the
ranges of every partition are looked at by themselves.

Sums are exact, in integers, and rounded up once.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal, get_args

import msgspec
import numpy as np

from stream_dp.privacy.accounting import gaussian_delta, gaussian_epsilon, zcdp_epsilon
from stream_dp.privacy.loss import Loss, Reals, gaussian_alone, gaussian_before
from stream_dp.privacy.vector import Vector, at, larger

Unit = Literal["event", "user", "user-day"]

_SCALE = 1 << 1074  # every double is a multiple of 1 / _SCALE


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """One mechanism on the events from `first_offset` to before `end_offset` (None: to the end of an endless log).

    These are offsets of the first partition; `further_offsets` and `further_ends` are those of the others.  A charge
    without an end covers every partition, from its beginning where `further_offsets` do not name it; one with an end
    covers only those that `further_ends` name.

    It is `delta`-approximate `rho`-zCDP for neighbours that differ in one `unit`. `exact` is an (epsilon, delta)
    guarantee of this mechanism by itself, its own delta included, where one is known that a conversion of rho would
    loosen. `loss` is what is known of the mechanism behind it beside rho.
    `id` makes a repeated charge one charge; `digest` stands for the parameters; `what` is for people.
    Where the unit is a user's day, the range is one of days of the time zone `zone`, counted from 1970-01-01 on, and
    not of offsets: a day is covered as a whole, whatever part of it was read.
    """

    id: str
    what: str
    unit: Unit
    rho: float
    delta: float
    first_offset: int
    end_offset: int | None
    digest: str
    loss: Loss
    exact: tuple[float, float] | None = None
    further_offsets: Vector = ()
    further_ends: Vector = ()
    zone: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a charge needs an id that is not empty")
        if self.unit not in get_args(Unit):
            raise ValueError(f"the unit of a charge is event, user or user-day, not {self.unit!r}")
        if (self.unit == "user-day") != bool(self.zone):
            raise ValueError(f"a time zone belongs to the unit user-day, not {self.zone!r} to {self.unit!r}")
        if not (self.rho == 0 or 1e-250 <= self.rho <= 1e9):
            raise ValueError(f"the rho of a charge must be zero or from 1e-250 to 1e9, not {self.rho}")
        if not 0 <= self.delta < 1:
            raise ValueError(f"the delta of a charge must be at least 0 and below 1, not {self.delta}")
        if self.first_offset < 0 or (self.end_offset is not None and self.end_offset < self.first_offset):
            raise ValueError(
                f"offsets {self.first_offset} to {self.end_offset} are not a range: the end must not come first"
            )
        if any(
            not 0 <= at(self.further_offsets, number) <= end for number, end in enumerate(self.further_ends)
        ):
            raise ValueError(
                f"offsets {self.further_offsets} to {self.further_ends} of further partitions are not ranges"
            )
        if self.exact is not None and not (0 <= self.exact[0] < math.inf and 0 <= self.exact[1] < 1):
            raise ValueError(f"an exact guarantee is an epsilon and a delta below 1, not {self.exact}")

    @property
    def partitions(self) -> int:
        """How many partitions it names."""
        return 1 + max(len(self.further_offsets), len(self.further_ends))

    @property
    def ends(self) -> Vector:
        """The offset at which the charge ends in each partition that it names; empty if it has no end."""
        return () if self.end_offset is None else (self.end_offset, *self.further_ends)

    def span(self, partition: int) -> tuple[float, float]:
        """What it covers of a partition: from one offset to before another, which may be infinite."""
        return span(partition, (self.first_offset, *self.further_offsets), self.end_offset, self.further_ends)

    def covers(self, partition: int, offset: int) -> bool:
        """Whether the event at this offset of the partition is among those that it reads."""
        first, end = self.span(partition)
        return first <= offset < end

    def ended(self, end_offset: int | None, further_ends: Vector = ()) -> "Charge":
        """This charge with these ends, but none before where it begins."""
        ends = larger(self.further_offsets, further_ends) if end_offset is not None else ()
        return msgspec.structs.replace(self, end_offset=end_offset, further_ends=ends)


def span(
    partition: int, offsets: Vector, end_offset: int | None, further_ends: Vector = ()
) -> tuple[float, float]:
    """What of a partition a charge from `offsets` to these ends covers; see `Charge`."""
    first = at(offsets, partition)
    return first, math.inf if end_offset is None else max(first, at((end_offset, *further_ends), partition))


@dataclass(frozen=True, slots=True)
class Load:
    """The sums at every offset from `first_offset` to before `end_offset` (None: without end) of a partition.

    `alone` is the one charge there, where there is exactly one.  `pure`: the sum of pure epsilons of the mechanisms
    behind the charges.  `basic`: the sums of the charges' own epsilons and deltas.  `gaussian`: the mu^2 of the one
    Gaussian that stands for all of them, in the order in which they were charged (privacy/loss.py).  All of these are
    infinite where a charge there does not tell its own.  `first` is the ledger's first charge, wherever it is.
    """

    first_offset: int
    end_offset: int | None
    rho: float
    delta: float
    alone: Charge | None
    pure: float = field(default=math.inf, compare=False)
    basic: tuple[float, float] = field(default=(math.inf, math.inf), compare=False)
    gaussian: float = field(default=math.inf, compare=False)
    first: Charge | None = field(default=None, compare=False)
    partition: int = 0

    @property
    def own(self) -> tuple[float, float]:
        """The (epsilon, delta) of the only charge by itself; infinite where there are more."""
        exact = self.alone.exact if self.alone is not None else None
        return exact if exact is not None else (math.inf, math.inf)

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon known for (epsilon, `delta`)-DP of these charges, fixed in advance; may be infinite."""
        left = delta - self.delta
        by_gaussian = math.inf
        if left >= 1e-100 and self.gaussian < math.inf:
            by_gaussian = gaussian_epsilon(self.gaussian / 2, left)
        return min(self._without_conversion(delta), self.epsilon_by_sums(delta), by_gaussian)

    def epsilon_by_sums(self, delta: float) -> float:
        """The epsilon by the sums of rho and delta alone."""
        left = delta - self.delta
        if self.rho == 0 and left >= 0:
            return 0.0
        return zcdp_epsilon(self.rho, left) if left >= 1e-100 else math.inf

    def is_within(self, epsilon: float, delta: float) -> bool:
        """Whether one comparison shows that the charges need no more than `epsilon`."""
        left = delta - self.delta
        if left >= 1e-100 and self.gaussian < math.inf and gaussian_delta(self.gaussian / 2, epsilon) <= left:
            return True
        return self._without_conversion(delta) <= epsilon

    def by_exact(self, delta: float) -> bool:
        """Whether the exact guarantee of the only charge is what `epsilon_at` returns."""
        return self.own[1] <= delta and self.own[0] < self.epsilon_by_sums(delta)

    def _without_conversion(self, delta: float) -> float:
        known = [own[0] for own in (self.own, self.basic) if own[1] <= delta]
        return min([*known, self.pure if delta >= self.delta else math.inf])


def loads(charges: Iterable[Charge], unit: Unit, *, roughly: bool = False) -> list[Load]:
    """The sums over every maximal range of offsets that the same charges cover, in order; none where none covers.

    The charges come in the order in which they were made.  In the user unit there is one range, which is everything.
    `roughly`: the Gaussians are upper bounds, which cost far less time.
    Partitions that no charge names are covered by what covers the first one for ever, so they add up to no more.
    """
    chosen = list(charges)
    if unit == "user":
        return _loads(chosen, [(0, math.inf)] * len(chosen), 0, roughly)
    partitions = max((charge.partitions for charge in chosen), default=1)
    return [
        load
        for partition in range(partitions)
        for load in _loads(chosen, [charge.span(partition) for charge in chosen], partition, roughly)
    ]


def _loads(
    chosen: list[Charge], spans: list[tuple[float, float]], partition: int, roughly: bool
) -> list[Load]:
    """The sums over the ranges of one partition, of which each charge covers a span."""
    offsets = sorted({offset for first, end in spans if end > first for offset in (first, end)})
    place = {offset: number for number, offset in enumerate(offsets)}
    places = [(place[first], place[end]) if end > first else (0, 0) for first, end in spans]
    steps = [[0] * _SUMS for _ in offsets]
    for index, (charge, (begins, ends)) in enumerate(zip(chosen, places, strict=True)):
        if ends > begins:
            for sum_, value in enumerate(_summed(index, charge)):
                steps[begins][sum_] += value
                steps[ends][sum_] -= value
    sums = accumulate(steps, lambda before, step: [sum(pair) for pair in zip(before, step, strict=True)])
    gaussians = _gaussians(chosen, places, roughly)
    found = []
    for (first, end), sums_here, mu_squared in zip(pairwise(offsets), sums, gaussians, strict=False):
        number, index, rho, delta, pure, not_pure, epsilon, own_delta, not_own = sums_here
        if number:
            found.append(
                Load(
                    int(first),
                    None if end == math.inf else int(end),
                    _up(rho),
                    _up(delta),
                    chosen[index] if number == 1 else None,
                    math.inf if not_pure else _up(pure),
                    (math.inf, math.inf) if not_own else (_up(epsilon), _up(own_delta)),
                    float(mu_squared),
                    chosen[0],
                    partition,
                )
            )
    return found


_SUMS = 9


def _summed(index: int, charge: Charge) -> tuple[int, ...]:
    """What is added up: where one charge is left, the sum of indices is its index; the rest is scaled, or counts."""
    pure, own = charge.loss.pure, charge.exact
    return (
        1,
        index,
        _scaled(charge.rho),
        _scaled(charge.delta),
        _scaled(pure or 0.0),
        pure is None,
        _scaled(own[0] if own else 0.0),
        _scaled(own[1] if own else 0.0),
        own is None,
    )


def _gaussians(charges: list[Charge], places: list[tuple[int, int]], roughly: bool) -> Reals:
    """The mu^2 of each range between neighbouring offsets; the last charge is the first to be covered."""
    needed = np.zeros(max((end for _, end in places), default=0))
    for charge, (first, end) in zip(reversed(charges), reversed(places), strict=True):
        if roughly:
            needed[first:end] += gaussian_alone(charge.loss) * (1 + 1e-9)
        elif end > first:
            needed[first:end] = gaussian_before(charge.loss, needed[first:end])
    return needed


def _scaled(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_SCALE // denominator)


def _up(scaled: int) -> float:
    """The least double that is not below scaled / _SCALE."""
    value = scaled / _SCALE
    return value if _scaled(value) >= scaled else math.nextafter(value, math.inf)
