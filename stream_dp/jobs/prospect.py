"""How many labels a mechanism is likely to show, told by a few noisy numbers about the data.

A forecast to choose by, not a guarantee: what it is told is private already, and what is chosen keeps its own promise.

It is told how many users hold how many items, and how many users hold the labels of two ranks.  A user of n items is
taken to hold a label with probability 1 - exp(-n g), where g is such that as many users hold it as do.  Between these
ranks, and beyond, the logarithm of g is taken to fall in proportion to that of the rank (Zipf 1949): so the counts of
labels that nearly everybody holds level off.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.batch.cost import NORMAL_95

Reals = NDArray[np.float64]

_MOST_LABELS = 5_000
"""Whoever may see more than this is well served by what shows most of so many."""

_FIRST = np.unique(np.concatenate([np.arange(1.0, 21.0), np.geomspace(20, _MOST_LABELS, 45).astype(int)]))
_LABELS = np.diff(np.append(_FIRST, _MOST_LABELS + 1.0))
_RANKS = _FIRST + (_LABELS - 1) / 2
"""Groups of ranks that are looked at as one: the first of each, how many they are, and their middle."""

_HEADS, _TAILS = (0.3, 0.9), (0.5, 1.5)
"""How steeply g may rise before the first rank that is told, and fall behind the last one."""

_NODES, _CHANCES = np.polynomial.hermite_e.hermegauss(5)
_CHANCES = _CHANCES / _CHANCES.sum()
"""Values that a standard normal draw is taken to have, and with what chances."""

_HALVINGS = 40
_NEVER, _ALWAYS = -25.0, 5.0
"""The logarithms of g between which it lies."""


@dataclass(frozen=True, slots=True)
class Counting:
    """How a mechanism counts.

    A label that `needed` users count with is shown in 95% of cases; the noise has the standard deviation `sd`.
    A user counts with at most `most` items (None: all): a sample of what is held, or, if `first_sd` is above 0, the
    labels of largest weight, where a user of n items gives each 1 / sqrt(n) and the sums have noise of `first_sd`.
    """

    needed: float
    sd: float
    most: int | None = None
    first_sd: float = 0.0

    @property
    def shows_at_most(self) -> float:
        """How many labels are shown at most if all users hold the same ones, however many."""
        return self.most if self.first_sd and self.most else math.inf


class Prospect:
    """What users seem to hold.

    `users`: how many users hold `sizes` items each, both of shape (bins,).  `counts`: how many users hold the label of
    each of `places`, ranks from 1 on; two or more, in rising order.
    """

    def __init__(self, users: Reals, sizes: Reals, places: tuple[int, ...], counts: Reals) -> None:
        seen = np.clip(np.minimum.accumulate(counts), 1.0, 0.98 * users.sum())
        low, high = np.full(len(places), _NEVER), np.full(len(places), _ALWAYS)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = users @ _chances(sizes, middle) >= seen
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        self._users, self._sizes = users, sizes
        self._holds = _chances(sizes, _by_rank(places, high))
        self._others = np.maximum(sizes - self._holds @ _LABELS, 0.0)  # what a user holds of rarer labels
        self._weights = (users / np.sqrt(sizes)) @ self._holds

    def labels(self, counting: Counting, k: int) -> float:
        """How many labels are shown; of a top k, how many of the k most frequent ones."""
        counts, variance, chances = self._staged(counting) if counting.first_sd else self._sampled(counting)
        sd = np.sqrt(variance + counting.sd**2)

        def shown(least: float) -> Reals:
            return np.asarray(chances @ ndtr((counts - least) / sd))

        low = counting.needed - NORMAL_95 * counting.sd
        if not k:
            return float(_LABELS @ shown(low))
        high = max(low, float((counts + 5 * sd).max()))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if _LABELS @ shown(middle) > k else (low, middle)
        return float(np.clip(k + 1 - _FIRST, 0, _LABELS) @ shown(low))

    def _sampled(self, counting: Counting) -> tuple[Reals, Reals, Reals]:
        """Counts of samples by rank and their variance, both of shape (1, ranks), and the one chance of them."""
        kept = np.minimum(1.0, np.inf if counting.most is None else counting.most / self._sizes)
        counts, variance = ((self._users * each) @ self._holds for each in (kept, kept * (1 - kept)))
        return counts[None], variance[None], np.ones(1)

    def _staged(self, counting: Counting) -> tuple[Reals, Reals, Reals]:
        """Counts of kept labels, (nodes, ranks), of weights with each of some values of noise, and their chances."""
        assert counting.most is not None
        noisy = self._weights + counting.first_sd * _NODES[:, None]
        passes = ndtr((self._weights - noisy[:, :, None]) / counting.first_sd) * _LABELS
        before = passes @ self._holds.T + ndtr(-noisy / counting.first_sd)[:, :, None] * self._others
        keeps = ndtr((counting.most - 0.5 - before) / np.sqrt(before + 0.05))
        counts = np.einsum("nrb,br,b->nr", keeps, self._holds, self._users)
        return counts, np.zeros_like(counts), _CHANCES


def _chances(sizes: Reals, log_g: Reals) -> Reals:
    """With what probability users of each size hold labels, (sizes, labels)."""
    return np.asarray(-np.expm1(-sizes[:, None] * np.exp(log_g)))


def _by_rank(places: tuple[int, ...], log_g: Reals) -> Reals:
    """The logarithms of g for the labels of `_RANKS`, by those of the ranks that are told."""
    at, wanted = np.log(places), np.log(_RANKS)
    falls = -np.diff(log_g) / np.diff(at)
    line = np.interp(wanted, at, log_g)
    line += np.clip(falls[0], *_HEADS) * np.maximum(at[0] - wanted, 0)
    line -= np.clip(falls[-1], *_TAILS) * np.maximum(wanted - at[-1], 0)
    return np.asarray(line)
