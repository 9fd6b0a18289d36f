"""The true delta of the running histogram on small horizons: every outcome of the noise, none of it sampled.

The real histogram runs once over as many labels as the noise of one label has outcomes: label number i carries the
outcome number i, and its probability (exact_noise.py).  So what is enumerated is the program that releases, its
counters, admission, thresholds and rule for showing labels included; only the keyed draws are replaced, and of `blt`
the counter.  What one label shows over all rounds is one outcome of the mechanism, and adding up the probabilities of
equal ones gives its law exactly, up to noise beyond 7 standard deviations.

Labels are independent given what is admitted, so an event of several items, or a user of several, is the product of
laws of one label, and the privacy losses of its factors add up.
"""

from functools import lru_cache, reduce
from itertools import combinations, combinations_with_replacement
from math import exp
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.audit.exact_noise import enumerated
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.privacy.accounting import discrete_gaussian_delta, gaussian_delta
from stream_dp.privacy.composition import Unit

HIDDEN = np.iinfo(np.int32).min
"""Stands for the count of a label that a round does not show."""

_MOST_MARKED = 2**22
"""So many rows that could be are marked in a table, which takes a fraction of the time of sorting those that are."""

Occurrences = frozenset[int]
"""The rounds whose event holds the label."""


class Law(NamedTuple):
    """What one label shows: `outcomes` of shape (n, horizon), all different, and their `probabilities`, shape (n,)."""

    outcomes: NDArray[np.int32]
    probabilities: NDArray[np.float64]


class Losses(NamedTuple):
    """The probabilities of the same outcomes under two logs, float64 of shape (n,)."""

    larger: NDArray[np.float64]
    smaller: NDArray[np.float64]

    def delta(self, epsilon: float) -> float:
        """The least delta by which any set of outcomes of one log exceeds e^epsilon times that of the other."""
        bound = exp(epsilon)
        return max(
            float(np.maximum(one - bound * other, 0).sum())
            for one, other in ((self.larger, self.smaller), (self.smaller, self.larger))
        )

    def and_independently(self, other: "Losses") -> "Losses":
        """Of pairs of outcomes, one of each, of labels that are independent."""
        one = self.merged()
        return Losses(
            np.multiply.outer(one.larger, other.larger).reshape(-1),
            np.multiply.outer(one.smaller, other.smaller).reshape(-1),
        )

    def merged(self) -> "Losses":
        """Outcomes of (nearly) equal ratios as one: no delta changes by more than their rounding."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.round(np.log(self.larger) - np.log(self.smaller), 12)
        keep = (self.larger > 0) | (self.smaller > 0)
        _, place = np.unique(ratio[keep], return_inverse=True)
        return Losses(_added(place, self.larger[keep]), _added(place, self.smaller[keep]))


def _added(places: NDArray[np.intp], values: NDArray[np.float64], size: int = 0) -> NDArray[np.float64]:
    """The sum of the values at each place."""
    return np.bincount(places.reshape(-1), values, size).astype(np.float64, copy=False)


@lru_cache(maxsize=64)
def law(
    mechanism: CalibratedCounter,
    occurrences: Occurrences,
    histogram: type[RunningHistogram] = RunningHistogram,
    known: bool = False,
) -> Law:
    """What a label shows that occurs in these rounds, while the mechanism's whole horizon passes.

    `known`: it is a known label of the epoch, and may occur in no round.
    """
    begins = 0 if known else min(occurrences, default=None)
    run, enumerated_noise, probabilities = enumerated(mechanism, begins)
    if not occurrences and not known:
        return Law(np.full((1, mechanism.horizon), HIDDEN, np.int32), np.ones(1))
    noise: Any = enumerated_noise
    labels = [f"{number:09d}" for number in range(len(probabilities))]
    state = HistogramState.before_any_round(labels if known else (), shown=True)
    running = histogram(run, noise, state)
    shown = np.full((mechanism.horizon, len(labels)), HIDDEN, np.int32)
    for number in range(1, mechanism.horizon + 1):
        [block] = running.blocks([labels if number in occurrences else []])
        places = block.places(0)
        cells = np.array([int(label) for label in block.labels], np.int64)[places]
        shown[number - 1, cells] = block.counts[0, places]
    return merged_law(shown.T, probabilities)


def merged_law(outcomes: NDArray[np.int32], probabilities: NDArray[np.float64]) -> Law:
    """The law of outcomes, shape (n, horizon), of which some are equal."""
    found, place = _distinct(outcomes)
    return Law(found, _added(place, probabilities))


def _distinct(rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """The different rows in ascending order, and for each row which of them it is.

    Each row is one number, whose digits are the places of its counts between the least and the largest of its column.
    """
    hidden = rows == HIDDEN
    low = np.where(hidden, np.iinfo(np.int32).max, rows).min(axis=0).astype(np.int64)
    digits = np.where(hidden, 0, rows - low + 1)
    sizes = digits.max(axis=0) + 1
    numbers = np.ravel_multi_index(list(digits.T), sizes)
    if sizes.prod() > _MOST_MARKED:
        _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
        return rows[first], place
    row = np.full(sizes.prod(), -1)
    row[numbers] = np.arange(len(rows))
    [there] = np.nonzero(row >= 0)
    first, row[there] = row[there], np.arange(len(there))
    return rows[first], row[numbers]


def losses(larger: Law, smaller: Law) -> Losses:
    """The two laws over the outcomes of both."""
    both, place = _distinct(np.concatenate([larger.outcomes, smaller.outcomes]))
    split = len(larger.outcomes)
    return Losses(
        _added(place[:split], larger.probabilities, len(both)),
        _added(place[split:], smaller.probabilities, len(both)),
    )


Neighbours = tuple[Occurrences, int]
"""Where the smaller log holds a label, and the round in which the larger one holds it besides."""


def neighbours(horizon: int) -> list[Neighbours]:
    """All of one label."""
    rounds = range(1, horizon + 1)
    return [(held, number) for held in _logs(horizon) for number in rounds if number not in held]


def _logs(horizon: int) -> list[Occurrences]:
    rounds = range(1, horizon + 1)
    return [frozenset(held) for size in range(horizon + 1) for held in combinations(rounds, size)]


def worst(
    mechanism: CalibratedCounter,
    epsilon: float,
    unit: Unit = "event",
    histogram: type[RunningHistogram] = RunningHistogram,
) -> tuple[float, tuple[Neighbours, ...]]:
    """The largest delta of any neighbours, and which: one of `neighbours` for each item of the differing unit.

    In the event unit the items of the event share its round; a user brings each item in a round of its own choice.
    """
    shown_by: Any = histogram  # a class can be hashed, which its type does not say
    laws = {held: law(mechanism, held, shown_by) for held in _logs(mechanism.horizon)}
    of_label = {
        (held, number): losses(laws[held | {number}], laws[held])
        for held, number in neighbours(mechanism.horizon)
    }
    if mechanism.items_per_event > 1:
        of_label = {pair: each.merged() for pair, each in of_label.items()}
    found: tuple[float, tuple[Neighbours, ...]] = (0.0, ())
    for chosen in combinations_with_replacement(of_label, mechanism.items_per_event):
        if unit == "user" or len({number for _, number in chosen}) == 1:
            together = reduce(Losses.and_independently, map(of_label.__getitem__, chosen))
            found = max(found, (together.delta(epsilon), chosen), key=itemgetter(0))
    return found


def guaranteed(mechanism: CalibratedCounter, epsilon: float) -> float:
    """The delta that the proof gives: that of the noisy table, and the threshold's."""
    if isinstance(mechanism, BltMechanism):
        return gaussian_delta(mechanism.rho, epsilon) + mechanism.threshold_delta
    assert isinstance(mechanism, DiscreteCounter)
    if mechanism.cap_share:
        return gaussian_delta(mechanism.loss.gaussian / 2, epsilon) + mechanism.threshold_delta
    shifts = mechanism.items_per_event * mechanism.nodes_per_event(mechanism.horizon)
    table = discrete_gaussian_delta(mechanism.sigma_squared, shifts, epsilon)
    return table + mechanism.threshold_delta
