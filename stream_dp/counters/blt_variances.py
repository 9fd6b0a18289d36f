"""Variances of a buffered linear Toeplitz counter, for one draw of variance 1, with the same bits on every machine.

Thresholds and standard deviations stand in releases, which must be the same bytes after a restart elsewhere.  So only
sums, products, quotients and square roots are used, which IEEE 754 rounds correctly, and tables made of integers.
Every result is a sum of positive terms, right to a relative 1e-13.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt_parameters import Gaps, output_weights

_DIGIT_BITS = 9
_DIGITS = 3  # enough for 2^24 rounds
_TABLE_BITS = 128
_NEAR = 1 << 12
_FEW = 32  # values of a stretch, below which the whole stretch would cost more
_MANY = _NEAR // 4  # values of it from which on the whole one is worth its cost, however many there are
_KEPT = 256
_AT_ONCE = _KEPT // 8  # stretches that are asked for at once and asked for again, as a stream does


def row_variances(gaps: Gaps, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """The variance of the noise of a count, before rounding, after each of `rounds`.

    A stream asks for rounds near those it asked for before, so whole stretches are kept, which changes no bit.
    Who looks at some rounds of very many stretches gets no more than those.
    """
    stretches = rounds // _NEAR
    if len(rounds) and stretches.min() == stretches.max():
        return _variances_of_stretch(gaps, int(stretches[0]))[rounds % _NEAR]
    found = np.empty(len(rounds))
    sizes = np.bincount(stretches, minlength=1)
    least = _FEW if np.count_nonzero(sizes >= _FEW) <= _AT_ONCE else _MANY
    rare = sizes[stretches] < least
    if rare.any():
        found[rare] = _row_variances(gaps, rounds[rare])
    for stretch in np.flatnonzero(sizes >= least).tolist():
        there = stretches == stretch
        found[there] = _variances_of_stretch(gaps, stretch)[rounds[there] % _NEAR]
    return found


@lru_cache(maxsize=_KEPT)
def _variances_of_stretch(gaps: Gaps, stretch: int) -> NDArray[np.float64]:
    return _row_variances(gaps, np.arange(stretch * _NEAR, (stretch + 1) * _NEAR))


def _row_variances(gaps: Gaps, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
    lost = _lost(gaps, rounds)
    total = np.zeros(len(rounds))
    for a, b, weight, gap in _pairs(gaps):
        total += weight * (_lost_together(lost[a], lost[b]) / gap if gap else rounds)
    return total


def growth_variances(gaps: Gaps, before: int, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """The variance of how much the noise of a count changes in so many rounds after `before` rounds."""
    earlier, later = _lost(gaps, np.array([before])), _lost(gaps, rounds)
    total = np.zeros(len(rounds))
    for a, b, weight, gap in _pairs(gaps):
        if gap:
            changed = _lost_together(earlier[a], earlier[b]) * (later[a] * later[b])
            total += weight * (changed + _lost_together(later[a], later[b])) / gap
        else:
            total += weight * rounds
    return total


@lru_cache(maxsize=8)
def _pairs(gaps: Gaps) -> list[tuple[int, int, float, float]]:
    """Each unordered pair of poles, its weight in the variance, and 1 - p_a p_b."""
    weights = [float(weight) for weight in output_weights(gaps)]
    poles = gaps.poles
    return [
        (a, b, weights[a] * weights[b] * (1 if a == b else 2), poles[a] + poles[b] - poles[a] * poles[b])
        for a in range(len(poles))
        for b in range(a + 1)
    ]


def _lost_together(x: Any, y: Any) -> Any:
    """1 - (1 - x) (1 - y)."""
    return x + y * (1 - x)


def _lost(gaps: Gaps, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 - p_a^t for each pole and each t in `rounds`; shape (poles, rounds)."""
    lost = np.zeros((len(gaps.poles), len(rounds)))
    for place, table in enumerate(_tables(gaps)):
        digits = rounds >> place * _DIGIT_BITS & (1 << _DIGIT_BITS) - 1
        lost = _lost_together(lost, table[:, digits])
    return lost


@lru_cache(maxsize=8)
def _tables(gaps: Gaps) -> NDArray[np.float64]:
    """1 - p_a^(d 512^i), correctly rounded, of shape (digits i, poles, values d)."""
    one = 1 << _TABLE_BITS
    tables = np.zeros((_DIGITS, len(gaps.poles), 1 << _DIGIT_BITS))
    for a, gap in enumerate(gaps.poles):
        base = one - int(Fraction(gap) * one)
        for place in range(_DIGITS):
            power = one
            for digit in range(1 << _DIGIT_BITS):
                tables[place, a, digit] = (one - power) / one
                power = power * base >> _TABLE_BITS
            base = power
    return tables
