"""Mechanisms with a few outputs, and what the best of all strategies gains from choosing among them.

The games are small, so every strategy is played: whatever was seen may decide what is asked next, and when to stop.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from scipy.special import ndtr

from stream_dp.privacy import loss
from stream_dp.privacy.composition import Charge

Outcomes = tuple[tuple[float, float], ...]
Accepts = Callable[[tuple[Charge, ...]], bool]


@dataclass(frozen=True)
class Move:
    """A charge, and every law of (privacy loss, probability) that the mechanism behind it may have."""

    charge: Charge
    laws: tuple[Outcomes, ...]


def pair(shown: float, hidden: float, delta: float = 0.0) -> Outcomes:
    """An output that has the probability `shown` on one neighbour and `hidden` on the other; or else all is told."""
    return (
        (math.log(shown / hidden), shown * (1 - delta)),
        (math.log((1 - shown) / (1 - hidden)), (1 - shown) * (1 - delta)),
        (math.inf, delta),
    )


def charge(of: loss.Loss, rho: float, delta: float, exact: tuple[float, float] | None) -> Charge:
    return Charge(
        id="c",
        what="",
        unit="user",
        rho=rho,
        delta=delta,
        first_offset=0,
        end_offset=None,
        digest="",
        exact=exact,
        loss=of,
    )


def coin(epsilon: float, delta: float = 0.0) -> Move:
    heads = 1 / (1 + math.exp(-epsilon))
    paid = charge(loss.pure(epsilon), epsilon**2 / 2, delta, (epsilon, delta))
    return Move(paid, (pair(heads, 1 - heads, delta), pair(1 - heads, heads, delta)))


def ranged(epsilon: float, delta: float = 0.0) -> Move:
    """The two-valued losses whose difference is epsilon, with the upper one at several places."""
    laws = []
    for place in (0.1, 0.3, 0.5, 0.7, 0.9):
        upper = place * epsilon
        shown = (math.exp(epsilon) - math.exp(upper)) / math.expm1(epsilon)
        laws.append(pair(shown, shown * math.exp(-upper), delta))
    paid = charge(loss.bounded_range(epsilon), epsilon**2 / 8, delta, (epsilon, delta))
    return Move(paid, tuple(laws))


def gaussian(mu: float, delta: float = 0.0) -> Move:
    """Whether a Gaussian, moved by mu or not, is above one of several places."""
    laws = [
        pair(float(ndtr(mu / 2 - place)), float(ndtr(-mu / 2 - place)), delta)
        for place in (-1.5, -0.5, 0.0, 0.5, 1.5)
    ]
    return Move(charge(loss.gaussian(mu**2), mu**2 / 2, delta, None), tuple(laws))


def worst(
    moves: list[Move], accepts: Accepts, rounds: int, told: Callable[[tuple[Charge, ...]], float]
) -> float:
    """The largest divergence that any strategy reaches within so many rounds, at the epsilon told where it stops."""
    accepted, epsilon = cache(accepts), cache(told)

    @cache
    def gain(made: tuple[int, ...], total: float) -> float:
        charges = tuple(moves[each].charge for each in made)
        best = max(0.0, -math.expm1(min(0.0, epsilon(charges) - total))) if total < math.inf else 0.0
        if total == math.inf and epsilon(charges) < math.inf:
            return 1.0
        if total == math.inf or len(made) == rounds:
            return best
        for number, move in enumerate(moves):
            if accepted((*charges, move.charge)):
                then = (*made, number)
                for law in move.laws:
                    gained = sum(
                        chance * gain(then, round(total + moved, 9)) for moved, chance in law if chance
                    )
                    best = max(best, gained)
        return best

    return gain((), 0.0)
