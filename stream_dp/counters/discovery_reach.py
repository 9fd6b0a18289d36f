"""Which labels' noise may lift them to the threshold of a test: what is kept of a label's earlier draws in a few bytes.

The noise at test k is s1 times the sum of c_(k-j) z_j.  All of it but z_k is known before the round of the test, and
making every z_j again for every label at every test would cost k draws a label.  The coefficients c_1, c_2, .. are
nearly a mixture of few powers,

    c_n = w_1 p_1^(n-1) + w_2 p_2^(n-1) + ..  up to an error e_n,

so the sums v_a <- p_a v_a + z are enough, and each of them follows from the one before with one draw.  They are kept as
whole numbers of 16 bits.  A test then takes one block of bits a label.

Nothing is decided by this.  For each test, `slack` bounds how far the sums of v_a may lie below the noise, by the e_n
that were found, whichever w and p there are; labels that may be above the threshold by this bound are few, and draw all
of their noise exactly.  A label with a draw beyond `_FARTHEST`, or a sum that 16 bits do not hold, always counts as one
that may.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.discovery_matrix import rounded_coefficients
from stream_dp.counters.protocol import grown
from stream_dp.loops import reach_compare, reach_follow

_FARTHEST = 5.0
"""A larger draw is rare, one in two million, and stands outside the bound."""

_CLOSE = 1.5  # standard deviations of a draw; a closer bound would save less than its sums cost
_MOST_POWERS = 16
_LAGS = 200  # for which weights are fitted
_ALWAYS = 32767
_LARGEST = 32766
_DEVIATIONS = 6.0  # of a sum that 16 bits hold
_LATEST = (0.0, 0.25, 0.5, 0.75, 1.0)  # how far the slowest power outlasts the tests, as powers of ten


class Reach:
    """The sums of as many labels as it has followed; `slack[k - 1]` is what they may lack at test k, for s1 = 1."""

    def __init__(self, tests: int) -> None:
        self._weights, self._powers, self._units, self.slack = _mixture(tests)
        self._sums = np.zeros((0, len(self._powers)), np.int16)
        self.labels = 0

    def make_room(self, labels: int) -> None:
        """For so many labels."""
        self._sums = grown(self._sums, labels)

    def follow(self, first: int, draws: NDArray[np.float64]) -> None:
        """Draws of the labels from place `first` on, float64 of shape (tests, labels): the next ones of each."""
        reach_follow(draws, self._sums[first : first + draws.shape[1]], self._powers, self._units)

    def near(
        self,
        first: int,
        draws: NDArray[np.float64],
        counts: NDArray[np.int32],
        least: int,
        needed: float,
        scale: float,
    ) -> NDArray[np.int64]:
        """Where among these labels `counts` is at least `least`, and may with its noise be at least `needed`.

        `draws` are those of the current test, of which the sums do not know yet; `scale` is s1.
        """
        found = np.empty(len(draws), np.bool_)
        sums = self._sums[first : first + len(draws)]
        reach_compare(draws, sums, self._weights * self._units, counts, least, needed, scale, found)
        return np.flatnonzero(found)


class _Mixture(NamedTuple):
    """Of few powers: their weights, the unit of each one's sum, and the slack at each test."""

    weights: NDArray[np.float64]
    powers: NDArray[np.float64]
    units: NDArray[np.float64]
    slack: NDArray[np.float64]


@lru_cache
def _mixture(tests: int) -> _Mixture:
    """The first mixture that is close enough, by rising number of powers, or else the closest."""
    if tests == 1:
        return _Mixture(np.empty(0), np.empty(0), np.empty(0), np.zeros(1))
    exact = rounded_coefficients(tests)[1:]
    found = []
    for number in range(1, _MOST_POWERS + 1):
        found += [_fitted(exact, 1 - np.geomspace(0.75, 10**-latest / tests, number)) for latest in _LATEST]
        if min(each.slack[-1] for each in found) < _CLOSE:
            break
    return min(found, key=lambda each: float(each.slack[-1]))


def _fitted(exact: NDArray[np.float64], powers: NDArray[np.float64]) -> _Mixture:
    """The weights by least squares over some of the lags, and how far off they are over all."""
    some = np.unique(np.geomspace(1, len(exact), _LAGS).astype(np.int64)) - 1
    spread = np.sqrt(np.gradient(some.astype(float))) if len(some) > 1 else np.ones(1)
    courses = powers ** np.arange(len(exact))[:, np.newaxis]
    fitted = np.linalg.lstsq(courses[some] * spread[:, np.newaxis], exact[some] * spread)[0]
    weights = np.maximum(fitted, 0.0)
    units = _DEVIATIONS * np.sqrt((courses**2).sum(axis=0)) / _LARGEST
    off = _FARTHEST * np.abs(exact - courses @ weights)
    off += courses @ (weights * units / 2)  # each sum is rounded once a test
    return _Mixture(weights, powers, units, np.concatenate([[0.0], np.cumsum(off)]))
