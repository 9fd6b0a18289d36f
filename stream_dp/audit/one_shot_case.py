"""A one-shot mechanism on small data: what it claims, and what was counted."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp

from stream_dp.audit.enumerated import REST, Law, delta_between
from stream_dp.audit.held_rows import Holdings
from stream_dp.batch.result import Outcome

_MOST_INTEGERS = 8
"""No mechanism here asks for more integers of noise in a run."""


@dataclass(frozen=True)
class OneShotCase:
    """A claim of (epsilon, delta), and `worst`, which counts the largest delta of any neighbours.

    `broken`: what is wrong with a mechanism that must be caught.
    """

    name: str
    epsilon: float
    delta: float
    worst: Callable[[], float]
    broken: str = ""


@dataclass(frozen=True)
class OneShotCounted:
    """What was counted."""

    case: OneShotCase
    delta: float

    @property
    def exceeded(self) -> bool:
        """The guarantee does not hold: not even where all that was not enumerated would speak for it."""
        return self.delta > self.case.delta + _MOST_INTEGERS * REST * exp(self.case.epsilon)

    @property
    def as_expected(self) -> bool:
        """A correct mechanism keeps its guarantee, or a broken one was caught."""
        return self.exceeded == bool(self.case.broken)

    def report(self) -> dict[str, object]:
        """For machines."""
        case = self.case
        return {
            "mechanism": case.name,
            "epsilon": case.epsilon,
            "broken": case.broken,
            "delta": self.delta,
            "guaranteed": case.delta,
            "as_expected": self.as_expected,
        }


CROWDS: tuple[Holdings, ...] = (((0, 1),), ((0, 1), (0, 1)), ((0,), (0, 1)), ((0, 1), (0, 1), (0,)))
"""Data sets of two labels, for mechanisms that draw an integer for each."""


def worst_of_leaving(
    law: Callable[[Holdings], Law[Hashable]], data: Sequence[Holdings], epsilon: float
) -> float:
    """The largest delta between a data set and the same without one of its users."""
    known = lru_cache(law)
    return max(
        delta_between(known(users), known(users[:gone] + users[gone + 1 :]), epsilon)
        for users in data
        for gone in range(len(users))
    )


def shown(found: Outcome) -> Hashable:
    """What an outcome shows, so that equal ones are one."""
    counts = None if found.counts is None else tuple(found.counts.tolist())
    return tuple(found.items.tolist()), counts, found.bottom, found.rank
