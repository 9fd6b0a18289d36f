"""The discrete Gaussian N_Z(0, s2): P(k) proportional to exp(-k^2 / (2 s2)) over the integers.

Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020).
One shift by 1 costs rho = 1 / (2 s2) of zero-concentrated differential privacy (their Theorem 4).

Sampling is inversion of a cumulative table of 128 bits, computed in integer arithmetic only, so that every
machine holds the same table.  A draw takes 128 uniform bits.  Its law is within a total variation distance of
2^-104 of N_Z(0, s2): each of the fewer than 2^23 table entries is off by less than 2^-127, and so is the mass
beyond the table.

Where the other log's value stands a step further out, it matters what the table lacks there.  Let r(k) = 1 - P_table(k)
/ P(k) where that is positive.  From s2 = `LEAST_SIGMA_SQUARED` on, the mean of r(Z + 1) and that of r(Z - 1) are below
2^-102: P(k - 1) / P(k) is at most exp(13.3 / s) where P(k) >= 2^-127, which holds for at most 26.6 s + 1 values of k,
and (26.6 s + 1) exp(13.3 / s) 2^-127 is below 2^-103 for 1 <= s <= 10^5.  The values beyond add less than 2^-113.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

LEAST_SIGMA_SQUARED = 1.0
"""Below this variance the table would lack too much of what a shift by 1 may need."""

LARGEST_SIGMA_SQUARED = 1e10
"""Beyond this variance the table would outgrow tens of megabytes."""

_FRACTION_BITS = 320
_ONE = 1 << _FRACTION_BITS
_TABLE_BITS = 128
_GUIDE_BITS = 16
_AMBIGUOUS = np.iinfo(np.int32).min


def _exp_minus(x: Fraction) -> int:
    """exp(-x) for 0 < x, in units of 2^-320, by halving the argument below 1 and the Taylor series there."""
    halvings = max(0, (x.numerator // x.denominator).bit_length())
    guard = 32 + 2 * halvings  # every squaring below doubles the relative error
    one = 1 << (_FRACTION_BITS + guard)
    reduced = x.numerator * one // (x.denominator << halvings)
    total, term, n = one, one, 0
    while term:
        n += 1
        term = term * reduced // (one * n)
        total += -term if n % 2 else term
    for _ in range(halvings):
        total = total * total // one
    return total >> guard


@lru_cache(maxsize=8)
def gaussian_weights(sigma_squared: float) -> tuple[int, ...]:
    """exp(-k^2 / (2 s2)) for k = 0, 1, ... in units of 2^-320, down to below 2^-130."""
    if not 0 < sigma_squared <= LARGEST_SIGMA_SQUARED:
        raise ValueError(
            f"sigma_squared must be above 0 and at most {LARGEST_SIGMA_SQUARED:g}, not {sigma_squared}"
        )
    ratio = _exp_minus(1 / (2 * Fraction(sigma_squared)))
    step_ratio = ratio * ratio >> _FRACTION_BITS
    weights, weight, step = [], _ONE, ratio
    while weight >> (_FRACTION_BITS - 130):
        weights.append(weight)
        weight = weight * step >> _FRACTION_BITS
        step = step * step_ratio >> _FRACTION_BITS
    return tuple(weights)


def pmf(sigma_squared: float) -> NDArray[np.float64]:
    """P(0), P(1), ..., P(K) as float64 of shape (K + 1,), correctly rounded; beyond K less than 2^-128 is left."""
    weights = gaussian_weights(sigma_squared)
    total = weights[0] + 2 * sum(weights[1:])
    return np.array([weight / total for weight in weights])


@lru_cache(maxsize=8)
def variance(sigma_squared: float) -> float:
    """The variance of N_Z(0, s2), correctly rounded: a little below s2 when s2 is small."""
    weights = gaussian_weights(sigma_squared)
    total = weights[0] + 2 * sum(weights[1:])
    return 2 * sum(k * k * weight for k, weight in enumerate(weights)) / total


class DiscreteGaussian:
    """Draws from N_Z(0, `sigma_squared`) by inversion of uniform bits.

    >>> table = DiscreteGaussian(4.0)
    >>> table.invert(np.array([[2**63, 0]], dtype=np.uint64)).tolist()
    [0]
    """

    def __init__(self, sigma_squared: float) -> None:
        self.sigma_squared = sigma_squared
        cumulative = _cumulative(sigma_squared)
        self._high = np.array([c >> 64 for c in cumulative], dtype=np.uint64)
        self._low = np.array([c & (2**64 - 1) for c in cumulative], dtype=np.uint64)
        self._least = -(len(cumulative) // 2)
        edges = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
        first = np.append(np.searchsorted(self._high, edges), len(cumulative))
        clear = first[:-1] == first[1:]
        self._guide = np.where(clear, first[:-1] + self._least, _AMBIGUOUS).astype(np.int32)
        self._ambiguous_share = 1 - float(clear.mean())

    @property
    def digest(self) -> str:
        """A digest of the whole table: equal tables draw equal noise from equal bits."""
        return blake2b(self._high.tobytes() + self._low.tobytes(), digest_size=16).hexdigest()

    def slow_budget(self, size: int) -> int:
        """How many of `size` draws take the exact search: 8 standard deviations above what is expected."""
        expected = size * self._ambiguous_share
        return min(size, int(expected + 8 * expected**0.5) + 16)

    def invert(self, bits: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Turn uniform bits, uint64 of shape (n, 2) (high word first), into n draws, int32 of shape (n,)."""
        draws = np.empty(len(bits), np.int32)
        self.invert_into([(bits, draws)])
        return draws

    def invert_into(self, parts: Iterable[tuple[NDArray[np.uint64], NDArray[np.int32]]]) -> None:
        """Turn the bits of each part, as `invert` takes them, into the draws beside them.

        The bits of a part need not last until the next.  The guide on the top 16 bits answers most draws.  The number
        of exact searches is filled up to a number that depends on that of all draws alone, so that time does not tell
        how many draws lay near a table edge, which is where the rare large ones lie.
        """
        unclear, words, size, bits = [], [], 0, np.zeros((1, 2), np.uint64)
        for bits, draws in parts:
            top = bits.view(np.dtype("<u2"))[:, 3].astype(np.intp)
            self._guide.take(top, out=draws, mode="clip")  # every index is in range: clip spares the check
            places = np.flatnonzero(draws == _AMBIGUOUS)
            unclear.append((draws, places))
            words.append(bits.take(places, axis=0))
            size += len(draws)
        fill = max(0, self.slow_budget(size) - sum(map(len, words)))
        words.append(bits.take(np.arange(fill), axis=0, mode="wrap"))
        high, low = np.concatenate(words).T
        found, start = self._search(high, low), 0
        for draws, places in unclear:
            draws[places] = found[start : start + len(places)]
            start += len(places)

    def _search(self, high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The least k with (high, low) < cumulative(k), by binary search; the low words break ties."""
        index = self._high.searchsorted(high, side="right")
        if not len(self._high):
            return index
        tied = np.flatnonzero(self._high.take(index - 1, mode="clip") == high)
        for i in tied:
            start = int(np.searchsorted(self._high, high[i], side="left"))
            index[i] = start + np.searchsorted(self._low[start : index[i]], low[i], side="right")
        index += self._least
        return index


def _cumulative(sigma_squared: float) -> list[int]:
    """P(X <= k) * 2^128, rounded down, for k = -K .. K - 1; P(X <= K) is taken as 1.

    Empty when sigma_squared is so small that 0 is the only value.
    """
    weights = gaussian_weights(sigma_squared)
    total = weights[0] + 2 * sum(weights[1:])
    running, cumulative = 0, []
    for weight in (*weights[:0:-1], *weights[:-1]):
        running += weight
        cumulative.append((running << _TABLE_BITS) // total)
    return cumulative
