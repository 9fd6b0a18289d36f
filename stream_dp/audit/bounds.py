"""Lower bounds on epsilon and delta from two samples of outcomes, with exact confidence.

If a mechanism is (epsilon, delta)-DP then p <= e^epsilon q + delta for every event and every two neighbours, where p
and q are the event's probabilities.  So ln((p_low - delta) / q_high) is a lower bound on epsilon, with p_low and q_high
from Clopper and Pearson's (1934) exact intervals.  The event is chosen on one half of the runs and measured on the
other, which knows nothing of the choice: the confidence does not depend on how many events were looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

ERROR = 1e-6
"""The most that one examination of a pair may err with: that a true claim is refuted."""

_INTERVALS = 4  # p_low and q_high, in each of the two directions
_SHARE = ERROR / _INTERVALS
_CRITICAL = float(norm.isf(_SHARE))

Views = Mapping[str, NDArray[np.int64]]
"""What is looked at in the outcome of every run: name -> one integer a run, shape (runs,)."""


@dataclass(frozen=True)
class Event:
    """A set of values of one view: those at least or at most `values[0]`, or `values` themselves ("in", sorted)."""

    view: str
    relation: str
    values: NDArray[np.int64]

    def count(self, views: Views) -> int:
        """In how many runs it happened."""
        seen = views[self.view]
        if self.relation == "in":
            place = np.minimum(np.searchsorted(self.values, seen), len(self.values) - 1)
            return int(np.count_nonzero(self.values[place] == seen))
        limit = self.values[0]
        return int(np.count_nonzero(seen >= limit if self.relation == ">=" else seen <= limit))

    def __str__(self) -> str:
        if self.relation != "in":
            return f"{self.view} {self.relation} {self.values[0]}"
        listed = ", ".join(map(str, self.values[:4]))
        return f"{self.view} in {{{listed}{', ...' if len(self.values) > 4 else ''}}}"


@dataclass(frozen=True)
class Bound:
    """What an event refutes: any epsilon below `epsilon` at the claimed delta, any delta below `delta` at the
    claimed epsilon.  `p` and `q` are its frequencies under the two inputs.
    """

    epsilon: float
    delta: float
    event: str
    p: float
    q: float


def at_least(hits: int, runs: int, error: float = _SHARE) -> float:
    """Clopper and Pearson: the probability is below this with chance at most `error`."""
    return float(beta.ppf(error, hits, runs - hits + 1)) if hits else 0.0


def at_most(hits: int, runs: int, error: float = _SHARE) -> float:
    """Clopper and Pearson: the probability is above this with chance at most `error`."""
    return float(beta.isf(error, hits + 1, runs - hits)) if hits < runs else 1.0


def lower_bound(one: Views, other: Views, epsilon: float, delta: float) -> Bound:
    """The better of the bounds in the two directions, right with probability 1 - `ERROR`.

    `epsilon` and `delta` are the claim; all views hold the same number of runs, a multiple of 4.
    """
    found = [
        _measured(_chosen(_half(first, 0), _half(second, 0), delta), _half(first, 1), _half(second, 1),
                  epsilon, delta)
        for first, second in ((one, other), (other, one))
    ]  # fmt: skip
    return max(found, key=lambda bound: (bound.epsilon, bound.delta))


def _half(views: Views, which: int) -> Views:
    """The first or the second half of the runs."""
    return {name: values[len(values) // 2 * which :][: len(values) // 2] for name, values in views.items()}


def _measured(event: Event, one: Views, other: Views, epsilon: float, delta: float) -> Bound:
    runs = len(one[event.view])
    hits, same = event.count(one), event.count(other)
    low, high = at_least(hits, runs), at_most(same, runs)
    bound = max(0.0, log((low - delta) / high)) if low > delta else 0.0
    return Bound(bound, max(0.0, low - exp(epsilon) * high), str(event), hits / runs, same / runs)


def _chosen(one: Views, other: Views, delta: float) -> Event:
    """The event that promises the largest bound; any choice is valid.

    Sets of values are ordered by their likelihood ratio on one half of these runs, and all events are compared on
    the other, by intervals as wide as those of the measurement: an event that merely fits its noise is not chosen.
    """
    candidates: list[tuple[float, Event]] = []
    runs = len(next(iter(one.values())))
    for name in one:
        values, index = np.unique(np.concatenate([one[name], other[name]]), return_inverse=True)
        cells = index + len(values) * (np.arange(2 * runs) // (runs // 2 or 1) % 4)
        table = np.bincount(cells, minlength=4 * len(values)).reshape(4, -1)
        by_ratio = np.argsort(-(table[0] + 0.1) / (table[2] + 1.0), kind="stable")
        rising = np.arange(len(values))
        for relation, order in ((">=", rising[::-1]), ("<=", rising), ("in", by_ratio)):
            hits, same = np.cumsum(table[1][order]), np.cumsum(table[3][order])
            scores = _promise(2 * hits, 2 * same, runs, delta)
            last = int(np.argmax(scores))
            taken = values[order[: last + 1]]
            event = Event(name, relation, np.sort(taken) if relation == "in" else taken[-1:])
            candidates.append((float(scores[last]), event))
    return max(candidates, key=lambda candidate: candidate[0])[1]


def _promise(
    hits: NDArray[np.int64], same: NDArray[np.int64], runs: int, delta: float
) -> NDArray[np.float64]:
    """The bound that Wilson's intervals give, or how far below 0 it is; they stand in for the exact ones."""
    low, high = _wilson(hits, runs, -1) - delta, _wilson(same, runs, 1)
    return np.where(low > high, np.log(np.maximum(low, 1e-300) / high), np.minimum(low - high, 0.0))


def _wilson(hits: NDArray[np.int64], runs: int, sign: int) -> NDArray[np.float64]:
    square = _CRITICAL**2
    spread = _CRITICAL * np.sqrt(hits * (1 - hits / runs) + square / 4)
    return (hits + square / 2 + sign * spread) / (runs + square)
