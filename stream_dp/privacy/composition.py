"""What the charges on one data source add up to, over ranges of offsets, and whether a budget allows them.

A charge is one mechanism: d-approximate rho-zCDP for the events of the offsets it reads, and 0 for all others.

- Unit `event`: neighbours differ at one offset of one partition, so the charges covering that offset add up, and the
  worst offset of all partitions counts. Charges on disjoint ranges compose in parallel.
- Unit `user`: one user's events may stand at any offsets, so all charges add up.
- Unit `user-day`: neighbours differ in what one user did on one day, so the charges covering that day add up, and those
  of other days compose in parallel.  The ranges are ranges of days; offsets within a day never tell two charges apart.

`refused` is a privacy filter: it holds although every charge is chosen after seeing what earlier ones gave. Its rules
are in `budget_rule.py`, the sums in `charge.py`, and the proofs in docs/budget.md. `odometer` is what holds at a moment
that is chosen by the data; `spent` holds for charges that were fixed in advance.

Sources: Bun and Steinke 2016 (zCDP, approximate zCDP); Rogers, Roth, Ullman and Vadhan 2016 (filters and odometers);
Feldman and Zrnic 2021 (filters per record); Whitehouse, Ramdas, Rogers and Wu 2023 (filters for approximate zCDP);
Vadhan and Zhang 2023, Haney et al. 2023 (interleaved mechanisms).
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace
from scipy.special import log_ndtr

from stream_dp.privacy.accounting import gaussian_rho
from stream_dp.privacy.budget_rule import SLACK, Budget, Rule
from stream_dp.privacy.charge import Charge, Load, Unit, loads, span
from stream_dp.privacy.vector import Vector

__all__ = [
    "Budget",
    "Charge",
    "Load",
    "Room",
    "Rule",
    "Spent",
    "Unit",
    "loads",
    "more_like",
    "odometer",
    "refused",
    "room",
    "room_beside",
    "rule",
    "spent",
]

_USUAL_DELTA = 1e-6
_ODOMETER = [2.0 ** (quarter / 4) for quarter in range(-40, 41)]
"""The epsilons that an odometer tells apart, where pure ones do not add up to less."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The costliest range of offsets of a partition: its sums, and what they mean as (epsilon, delta)."""

    epsilon: float
    delta: float
    rho: float
    charged_delta: float
    first_offset: int
    end_offset: int | None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """What one more charge on a range may cost: Gaussian noise of `rho`, or a pure epsilon, and a delta of its own.

    `untouched` says that nothing covers the range yet, so that a charge fits by its exact guarantee as well.
    """

    rho: float
    delta: float
    untouched: bool
    pure_epsilon: float = 0.0


def rule(charges: Sequence[Charge], budget: Budget) -> Rule:
    """The rule by which these charges, in the order in which they were made, and those after them fit."""
    return budget.rule(charges[0] if charges else None)


def spent(charges: Sequence[Charge], unit: Unit, delta: float | None = None) -> Spent:
    """The costliest range at `delta`; without one, at twice what the charges' deltas add up to, at least 1e-6."""
    found = loads(charges, unit)
    if delta is None:
        delta = max([_USUAL_DELTA, *(min(0.5, 2 * load.delta) for load in found)])
    worst, epsilon, covered = Load(0, None, 0.0, 0.0, None), 0.0, -1.0
    for load in sorted(found, key=lambda load: (-load.rho, -load.delta)):
        if load.delta <= covered or (worst.rho and load.is_within(epsilon, delta)):
            continue  # no conversion is needed to see that it is not the costliest
        needed = load.epsilon_at(delta)
        if needed >= epsilon:
            worst, epsilon = load, needed
        if load.epsilon_by_sums(delta) <= epsilon:
            covered = max(covered, load.delta)
    where = worst.first_offset, worst.end_offset, worst.partition
    return Spent(epsilon, delta, worst.rho, worst.delta, *where)


def refused(charges: Iterable[Charge], budget: Budget) -> list[Load]:
    """The ranges at which the charges exceed the budget; empty if it allows all of them."""
    chosen = list(charges)
    allows = rule(chosen, budget).allows
    if all(map(allows, loads(chosen, budget.unit, roughly=True))):
        return []
    return [load for load in loads(chosen, budget.unit) if not allows(load)]


def room(
    charges: Iterable[Charge],
    budget: Budget,
    first_offset: int,
    end_offset: int | None,
    further_offsets: Vector = (),
    further_ends: Vector = (),
) -> Room:
    """What one more charge on these offsets, which are those of `Charge`, may cost."""
    chosen = list(charges)

    def touches(load: Load) -> bool:
        wanted = span(load.partition, (first_offset, *further_offsets), end_offset, further_ends)
        return load.first_offset < wanted[1] and (load.end_offset is None or load.end_offset > wanted[0])

    touched = [load for load in loads(chosen, budget.unit) if budget.unit == "user" or touches(load)]
    return room_beside(touched, rule(chosen, budget), budget)


def room_beside(touched: Sequence[Load], limits: Rule, budget: Budget) -> Room:
    """What one more charge on ranges that add up to these sums may cost, by the rule of all charges."""
    delta = limits.charged_delta - max((load.delta for load in touched), default=0.0)
    if limits.name == "basic":
        delta = limits.charged_delta - max((load.basic[1] for load in touched), default=0.0)
    if delta < -limits.charged_delta * SLACK:
        return Room(0.0, 0.0, not touched)
    mu_squared = max(0.0, limits.mu_squared - max((load.gaussian for load in touched), default=0.0))
    sums = [load.basic[0] if limits.name == "basic" else load.pure for load in touched]
    pure = max(0.0, budget.epsilon - max(sums, default=0.0), _coin_within(mu_squared))
    return Room(mu_squared / 2, max(0.0, delta) if pure else 0.0, not touched, pure)


def more_like(charge: Charge, charges: Sequence[Charge], budget: Budget, most: int = 1_000) -> int:
    """How many more charges like this one fit after `charges`, on the same events; looks no further than `most`."""

    def fits(copies: int) -> bool:
        more = (replace(charge, id=f"{charge.id} again {copy}") for copy in range(copies))
        return not refused([*charges, *more], budget)

    beyond = 1  # most often no more fit, and what many cost takes long
    while beyond <= most and fits(beyond):
        beyond *= 2
    tried = range(1, min(beyond, most + 1))
    return bisect_left(tried, True, lo=beyond // 2, key=lambda copies: not fits(copies))


def odometer(charges: Sequence[Charge], unit: Unit, delta: float) -> float:
    """The epsilon for which (epsilon, `delta`)-DP holds now, although when to look was chosen by what was seen.

    Infinite where the charges' own deltas are more than half of `delta`.
    """
    limits, told = _odometer_limits(delta), 0.0
    for load in loads(charges, unit):
        if load.delta > delta / 2:
            return math.inf
        passed = (epsilon for epsilon, limit in zip(_ODOMETER, limits, strict=True) if load.gaussian <= limit)
        told = max(told, min(load.pure, next(passed, math.inf)))
    return told


@lru_cache(maxsize=64)
def _odometer_limits(delta: float) -> list[float]:
    """For each epsilon that is told apart, the mu^2 of a filter that has its share of half of delta."""
    share = delta / 2 / len(_ODOMETER) * (1 - SLACK)
    return [2 * gaussian_rho(epsilon, share) * (1 - SLACK) for epsilon in _ODOMETER]


def _coin_within(mu_squared: float) -> float:
    """The largest epsilon whose mechanisms a Gaussian of this mu^2 stands for."""
    half = math.sqrt(mu_squared) / 2
    return float(log_ndtr(half) - log_ndtr(-half)) * (1 - SLACK)
