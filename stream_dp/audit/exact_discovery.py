"""The true delta of labels that are found at tests, on small horizons: every outcome of the tests' noise.

A label shows at which test it was found, with which count y, and from then on what the counter of shown labels makes of
its later events.  The tests' noise is rounded, so it is enumerated as that of `blt` is (exact_noise.py).  The later
counts are a function of C x + s z, where two logs differ by a vector of known length: given (test, y), what they tell
the logs apart by is one normal value with that shift, and the delta of all of it is a sum of closed forms.  It is that
of the real numbers behind the counts, which reveal at least as much as rounded counts do.

Labels are independent given what is admitted, so what several of them tell is the product of what each tells.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import combinations_with_replacement, product
from math import exp, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.audit.exact_noise import lower_toeplitz, rounded_gaussians
from stream_dp.counters.blt_parameters import residues
from stream_dp.counters.discovery import KNOWN, DiscoveryMechanism
from stream_dp.counters.discovery_matrix import coefficients
from stream_dp.counters.protocol import CAP_CELLS

NEVER = -1
"""Stands for the test of a label that no test finds."""

Log = tuple[int, ...]
"""How often each round admits the label."""

Counts = tuple[int, ...]
"""How often the label has occurred by each test."""

Floats = NDArray[np.float64]


class Found(NamedTuple):
    """What the tests make of a label, for each outcome of their noise: the test, from 1 on, or `NEVER`; and y."""

    tests: NDArray[np.int64]
    counts: NDArray[np.int64]


class Rule:
    """How labels are found and counted: the one that is proved.  Each broken one changes a step of it."""

    broken = ""

    def __init__(self, mechanism: DiscoveryMechanism) -> None:
        self.mechanism = mechanism
        self.ends = np.array(mechanism.tests)

    @property
    def taus(self) -> NDArray[np.int64]:
        """The least count y that finds a label, by test."""
        return self.mechanism.test_taus.astype(np.int64)

    def counts(self, log: Log) -> Counts:
        """How often the label has occurred by each test."""
        return tuple(np.cumsum([0, *log])[self.ends].tolist())

    def measured(self, counts: Counts, noise: NDArray[np.int32]) -> NDArray[np.int64]:
        """y at every test, for every outcome of the noise: both of shape (outcomes, tests)."""
        return np.array(counts) + noise.astype(np.int64)

    def passes(self, counts: Counts, measured: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the label is found at each test if it was not before."""
        return (np.array(counts) >= self.mechanism.at_least) & (measured >= self.taus)

    def found(self, counts: Counts, noise: NDArray[np.int32]) -> Found:
        """By the first test that it passes."""
        measured = self.measured(counts, noise)
        passes = self.passes(counts, measured)
        first, rows = np.argmax(passes, axis=1), np.arange(len(passes))
        there = passes[rows, first]
        return Found(np.where(there, first + 1, NEVER), np.where(there, measured[rows, first], 0))

    def later(self, log: Log, test: int) -> Floats:
        """What the counter of shown labels counts in the round of the test and in each round after it."""
        begins = 0 if test == KNOWN else self.mechanism.tests[test - 1]
        return np.array([0, *log[begins:]], np.float64)


class Told(NamedTuple):
    """What one label tells of two logs: outcomes with their `larger` and `smaller` probabilities, shape (n,).

    With each outcome comes a normal value of variance 1 whose mean the larger log moves by `shift`.
    """

    larger: Floats
    smaller: Floats
    shift: Floats

    def delta(self, epsilon: float) -> float:
        """The least delta by which any set of outcomes of one log exceeds e^epsilon times that of the other."""
        forth = _beyond(self.larger, self.smaller, self.shift, epsilon)
        back = _beyond(self.smaller, self.larger, self.shift, epsilon)
        return max(float(forth.sum()), float(back.sum()))

    def and_independently(self, other: "Told") -> "Told":
        """Of pairs of outcomes, one of each."""
        return Told(
            np.multiply.outer(self.larger, other.larger).reshape(-1),
            np.multiply.outer(self.smaller, other.smaller).reshape(-1),
            np.hypot.outer(self.shift, other.shift).reshape(-1),
        ).merged()

    def merged(self) -> "Told":
        """Outcomes of (nearly) equal ratios and equal shifts as one."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.round(np.log(self.larger) - np.log(self.smaller), 9)
        keep = (self.larger > 0) | (self.smaller > 0)
        keys = np.stack([ratio[keep], np.round(self.shift[keep], 12)], axis=1)
        unique, place = np.unique(keys, axis=0, return_inverse=True)
        place = place.reshape(-1)
        larger, smaller = (_added(place, each[keep], len(unique)) for each in (self.larger, self.smaller))
        return Told(larger, smaller, unique[:, 1])


def _added(places: NDArray[np.int64], values: Floats, size: int = 0) -> Floats:
    """The sum of the values at each place."""
    return np.bincount(places, values, size).astype(np.float64, copy=False)


def _beyond(one: Floats, other: Floats, shift: Floats, epsilon: float) -> Floats:
    """For each outcome, the integral of max(0, one f(x - shift) - e^epsilon other f(x)), f the normal density."""
    bound = exp(epsilon) * other
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        away = (np.log(one) - np.log(bound)) / shift
        with_noise = one * ndtr(shift / 2 + away) - bound * ndtr(-shift / 2 + away)
    apart = (shift > 0) & (one > 0) & (bound > 0)
    return np.maximum(np.where(apart, with_noise, one - bound), 0.0)


def told(rule: Rule, larger: Log, smaller: Log) -> tuple[list[tuple[int, int]], Told]:
    """The outcomes (test, y) of a label, and what they tell of two logs that hold it so often."""
    laws = [_law(rule, rule.counts(log)) for log in (larger, smaller)]
    outcomes = sorted(set(laws[0]) | set(laws[1]))
    shifts = {test: _shift(rule, larger, smaller, test) for test in {test for test, _ in outcomes}}
    chances, others = (np.array([law.get(outcome, 0.0) for outcome in outcomes]) for law in laws)
    return outcomes, Told(chances, others, np.array([shifts[test] for test, _ in outcomes]))


def told_by_known(rule: Rule, number: int) -> Told:
    """What a label that is known in advance tells, if the larger log holds it once more in this round."""
    nothing = (0,) * rule.mechanism.horizon
    shift = _shift(rule, with_item(nothing, number), nothing, KNOWN)
    return Told(np.ones(1), np.ones(1), np.array([shift]))


def told_by_cells(rule: Rule, number: int) -> Told:
    """What the two cells beside the labels tell, if the larger log adds 1 to each of them in this round or later."""
    scale = rule.mechanism.counts.draw_sd / rule.mechanism.cells.draw_sd
    return Told(np.ones(1), np.ones(1), told_by_known(rule, number).shift * scale * sqrt(CAP_CELLS))


@lru_cache(maxsize=4096)
def _law(rule: Rule, counts: Counts) -> dict[tuple[int, int], float]:
    """The probability of each (test, y)."""
    noise, chances = _noise(rule.mechanism)
    found = rule.found(counts, noise)
    keys, place = np.unique(np.stack(found, axis=1), axis=0, return_inverse=True)
    added = np.bincount(place.reshape(-1), chances, len(keys))
    return {(int(test), int(count)): float(chance) for (test, count), chance in zip(keys, added, strict=True)}


@lru_cache(maxsize=8)
def _noise(mechanism: DiscoveryMechanism) -> tuple[NDArray[np.int32], Floats]:
    """Every outcome of the noise of all tests, rounded, and how likely it is."""
    column = np.array([float(each) for each in coefficients(len(mechanism.tests))])
    return rounded_gaussians(mechanism.test_sd * lower_toeplitz(column))


def _shift(rule: Rule, larger: Log, smaller: Log, test: int) -> float:
    """How far the logs move C x of the counter of shown labels apart, in standard deviations of its draws."""
    if test == NEVER:
        return 0.0
    counts = rule.mechanism.counts
    difference = rule.later(larger, test) - rule.later(smaller, test)
    theta = np.array(counts.gaps.theta)
    weights = residues(np.array(counts.gaps.hat), theta) if len(theta) else theta
    column = np.array([1.0, *(float(weights @ (1 - theta) ** k) for k in range(len(difference) - 1))])
    return float(np.linalg.norm(np.convolve(column, difference)[: len(difference)])) / counts.draw_sd


def logs(horizon: int, held: Sequence[int] = (0, 1)) -> list[Log]:
    """All whose rounds admit the label so often."""
    return list(product(held, repeat=horizon))


def with_item(log: Log, number: int) -> Log:
    """The log in which one more event of this round, the first is 1, holds the label."""
    return (*log[: number - 1], log[number - 1] + 1, *log[number:])


def worst(
    rule: Rule, epsilon: float, unit: str = "event", known: int = 0, held: Sequence[int] = (0, 1)
) -> float:
    """The largest delta of any neighbours: D0 labels, so many of them known, each with a log of its own.

    The items of an event share its round; a user brings each in a round of its own choice.
    """
    horizon, items = rule.mechanism.horizon, rule.mechanism.items_per_event
    rounds = range(1, horizon + 1)
    unknown = {
        (log, number): told(rule, with_item(log, number), log)[1].merged()
        for log in logs(horizon, held)
        for number in rounds
    }
    shown = {number: told_by_known(rule, number) for number in rounds}
    largest = 0.0
    for chosen in combinations_with_replacement(unknown, items - known):
        for public in combinations_with_replacement(shown, known):
            if unit == "user" or len({*public, *(number for _, number in chosen)}) == 1:
                parts = [*map(unknown.__getitem__, chosen), *map(shown.__getitem__, public)]
                if rule.mechanism.cap_share:
                    parts.append(told_by_cells(rule, min((*public, *(number for _, number in chosen)))))
                largest = max(largest, reduce(Told.and_independently, parts).delta(epsilon))
    return largest


def worst_adaptive(rule: Rule, epsilon: float, unit: str = "event", held: Sequence[int] = (0, 1)) -> float:
    """The largest delta of producers who see what the first test makes of one label, and go on as suits them best.

    There are two labels.  What the first block admits is fixed.  For each thing that the first label may show at the
    first test, the rest of both logs, and the rounds of the items that have not come yet, are the worst ones.
    """
    first = rule.mechanism.tests[0]
    largest = 0.0
    for start in _starts(first, unit, held):
        found = [_by_first_test(rule, epsilon, *pairs) for pairs in _continued(rule, start, unit, held)]
        largest = max(largest, *(float(np.max(way, axis=0).sum()) for way in zip(*found, strict=True)))
    return largest


class _Pair(NamedTuple):
    """A label's log and the round of the differing item, 0 where there is none (yet)."""

    log: Log
    item: int

    @property
    def both(self) -> tuple[Log, Log]:
        """The larger log and the smaller one."""
        return (with_item(self.log, self.item) if self.item else self.log), self.log


def _starts(first: int, unit: str, held: Sequence[int]) -> Iterator[tuple[_Pair, _Pair]]:
    """What both labels may have in the first block."""
    pairs = [_Pair(log, item) for log in logs(first, held) for item in range(first + 1)]
    for one, other in product(pairs, pairs):
        if unit == "user" or one.item == other.item:
            yield one, other


def _continued(
    rule: Rule, start: tuple[_Pair, _Pair], unit: str, held: Sequence[int]
) -> Iterator[tuple[_Pair, _Pair]]:
    """How that may go on up to the horizon."""
    first, horizon = rule.mechanism.tests[0], rule.mechanism.horizon
    rest = logs(horizon - first, held)
    later = [
        [_Pair(pair.log + log, item) for log in rest for item in _items(pair, first, horizon)]
        for pair in start
    ]
    for one, other in product(*later):
        if unit == "user" or one.item == other.item:
            yield one, other


def _items(pair: _Pair, first: int, horizon: int) -> Iterable[int]:
    return [pair.item] if pair.item else [0, *range(first + 1, horizon + 1)]


def _by_first_test(rule: Rule, epsilon: float, one: _Pair, other: _Pair) -> tuple[Floats, Floats]:
    """Both directions' delta, divided by what the first test makes of the first label: its counts, or nothing."""
    shown, mine = _at_first_test(rule, *one.both)
    theirs = _merged(rule, *other.both)
    larger, smaller = (
        np.multiply.outer(mine.larger, theirs.larger),
        np.multiply.outer(mine.smaller, theirs.smaller),
    )
    shift = np.hypot.outer(mine.shift, theirs.shift)
    forth = _beyond(larger, smaller, shift, epsilon).sum(axis=1)
    back = _beyond(smaller, larger, shift, epsilon).sum(axis=1)
    return _added(shown, forth), _added(shown, back)


@lru_cache(maxsize=4096)
def _merged(rule: Rule, larger: Log, smaller: Log) -> Told:
    return told(rule, larger, smaller)[1].merged()


@lru_cache(maxsize=4096)
def _at_first_test(rule: Rule, larger: Log, smaller: Log) -> tuple[NDArray[np.int64], Told]:
    """What a label tells, and for each outcome which of those is the same at the first test: 0 if it is not found."""
    outcomes, found = told(rule, larger, smaller)
    at_first = sorted(count for test, count in outcomes if test == 1)
    places = [1 + at_first.index(count) if test == 1 else 0 for test, count in outcomes]
    return np.array(places), found
