"""The standard normal distribution in 106 bits: keyed draws whose error is bounded and small enough to be paid for.

A draw takes two blocks of 128 keyed bits.  The first picks a cell, the second a place in it.

Cells.  Cell k is the interval of width w = 2^-12 around x = k w.  Its mass is

    P(k)  proportional to  exp(-x^2 / 2) * (the integral over 0 <= s <= 1 of exp(-w^2 s^2 / 8) cosh(x w s / 2)),

which is computed in integers, so that every machine holds the same table.  Cells are drawn by Walker's alias method:
16 bits pick a bin, 111 bits decide between the two cells that share it, and one bit is the sign.  The work is the same
whatever is drawn, and one look-up fits into the second-level cache.

Places.  In cell k the density of v = (z - x) / w in [-1/2, 1/2] is proportional to exp(-a v - b v^2 / 2), a = x w, b =
w^2.  The map from a uniform v to one of that law, expanded in powers of a and b, where b counts twice, is

    T(v) = v - (1/4 - v^2) Q(v),    Q(v) = a/2 + (2 a^2 + b) v / 6 + `_SERIES`,

up to order 7.  T is a polynomial with T(+-1/2) = +-1/2 that grows, so T(v) has the density 1 / T'(v).  Its distance
from the law is half the mean of |h - 1|, where h(v) = exp(-a T - b T^2 / 2) T' / (the integral of exp(-a y - b y^2 /
2)).  Multiply a by a complex number t and b by t^2: h becomes an analytic function of t, and h - 1 = O(t^8), because T
is right up to order 7.  Where |t a| <= 1.3 and |t^2 b| <= 0.7, adding up the absolute values of all terms gives |h| <
28, so by Cauchy |h - 1| <= 28 r^8 / (1 - r) with r = max(a / 1.3, w / sqrt(0.7)).  Half of its mean is below 2^-88.

What is drawn thus has a law within `DRAW_DISTANCE` of the standard normal, the table included: it holds 51,645 cells of
each sign, their masses are off by less than 2^-126, and the cells beyond them have less than 2^-118 together.

Rounding.  What is returned is off by at most `DRAW_ERROR` from w (k + T(v)), with v in units of 2^-106.  Orders 1 and 2
are computed in double-double, within 2^-93 of a cell.  The orders from 3 on stay below 2^-32 of a cell and are computed
in doubles: their terms, taken absolutely, add up to less than a^3 / 12 with a < 2^-8.3, and their error is below a^3
2^-53 / 10; adding them up costs four roundings of 2^-86.  Together this is less than 2^-80 of a cell.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from math import factorial

import numpy as np
from numpy.typing import NDArray

from stream_dp.privacy.discrete_gaussian import gaussian_weights
from stream_dp.privacy.double_double import compiled, fma, quick_two_sum, two_product, two_sum
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KEY_BYTES, NONCE_BYTES, KeyedNoise

LANES = 2
"""Lanes of a round that one draw takes."""

LARGEST_DRAW = 12.7
"""No draw is larger, in absolute value."""

DRAW_DISTANCE = 2.0**-87
"""Total variation distance of one draw from the standard normal, before rounding."""

DRAW_ERROR = 2.0**-92
"""Largest absolute error of one draw by rounding."""

_CELL_BITS = 12
_WIDTH = 2.0**-_CELL_BITS
_BIN_BITS = 16
_CHOICE_BITS = 127 - _BIN_BITS
_FULL_BIN = 1 << _CHOICE_BITS
_LOW_BITS = 63  # of a threshold, kept apart: they decide once in 2^48 draws
_RATIO_UNIT = 1 << 160  # fixed point of the integrals
_TERMS = 7  # of their series; what is left out is below 2^-135
_SPARE_BITS = 150  # of the 320 of the weights

_BIN_SHIFT = np.uint64(63 - _BIN_BITS)
_BIN_MASK = np.uint64((1 << _BIN_BITS) - 1)
_HIGH_MASK = np.uint64((1 << _CHOICE_BITS - 64) - 1)
_ALIAS_BITS = np.uint64(16)
_ALIAS_MASK = np.uint64((1 << 16) - 1)
_LOW_MASK = np.uint64((1 << _LOW_BITS) - 1)
_SIGN_SHIFT = np.uint64(63)

_SERIES = {  # what multiplies a^i b^j in Q: coefficients of 1, v^2, v^4 .. where i is odd, else of v, v^3, v^5 ..
    (3, 0): "-1/48 1/4",
    (1, 1): "-1/32 7/24",
    (4, 0): "-1/30 1/5",
    (2, 1): "-17/240 23/60",
    (0, 2): "-1/160 7/120",
    (5, 0): "1/720 -1/24 1/6",
    (3, 1): "5/1152 -43/360 163/360",
    (1, 2): "1/768 -59/1440 127/720",
    (6, 0): "17/5040 -1/21 1/7",
    (4, 1): "29/2240 -11/63 71/140",
    (2, 2): "9/1120 -191/1680 29/84",
    (0, 3): "1/5376 -59/10080 127/5040",
    (7, 0): "-17/161280 11/1920 -5/96 1/8",
    (5, 1): "-47/92160 4279/161280 -1891/8064 617/1120",
    (3, 2): "-1/2048 4159/161280 -1873/8064 1867/3360",
    (1, 3): "-1/24576 2227/645120 -6299/161280 4369/40320",
}


def series(order: int) -> dict[tuple[int, int, int], Fraction]:
    """The coefficients of a^i b^j v^m in Q up to i + 2 j = `order` <= 7, by (i, j, m)."""
    terms = {(1, 0, 0): Fraction(1, 2), (2, 0, 1): Fraction(1, 3), (0, 1, 1): Fraction(1, 6)}
    for (i, j), coefficients in _SERIES.items():
        for n, coefficient in enumerate(coefficients.split()):
            terms[i, j, 2 * n + 1 - i % 2] = Fraction(coefficient)
    return {(i, j, m): coefficient for (i, j, m), coefficient in terms.items() if i + 2 * j <= order}


def _collected(power: int) -> tuple[float, ...]:
    """What multiplies a^power in Q from order 3 on: coefficients of v^m as in `_SERIES`, four of them, b put in."""
    width_squared = Fraction(1, 1 << 2 * _CELL_BITS)
    sums = [Fraction(0)] * 4
    for (i, j, m), coefficient in series(7).items():
        if i == power and i + 2 * j >= 3:
            sums[m // 2] += coefficient * width_squared**j
    return tuple(map(float, sums))


_A0, _A1, _A2, _A3, _A4, _A5, _A6, _A7 = map(_collected, range(8))
_SIXTH = 1398101 * 2.0**-23  # 21 bits: its product with 3 (2 a^2 + b) is exact
_SIXTH_REST = float(Fraction(1, 6) - Fraction(_SIXTH))
_A_UNIT = _WIDTH * _WIDTH


class GaussianNoise:
    """Standard normal draws with the bits of `noise`.  One thread at a time may draw from an instance."""

    def __init__(self, noise: KeyedNoise) -> None:
        self._noise = noise
        self._bins, self._thresholds = alias_table()
        self._buffer = np.empty((2, 0))

    def draw(
        self, ids: NDArray[np.uint64], tweaks: Sequence[bytes]
    ) -> Iterator[tuple[int, int, NDArray[np.float64], NDArray[np.float64]]]:
        """One draw for each pair of tweaks and each label, as many at a time as are in the buffer.

        Yields the number of the first pair and that of the first label, and the draws as hi + lo, both float64 of
        shape (pairs, labels), which last until the next ones are asked for.  All draws of some labels come before the
        next labels.
        """
        for top, left, bits in self._noise.bits(ids, tweaks, LANES):
            shape = (len(bits) // LANES, bits.shape[1])
            size = shape[0] * shape[1]
            if size > self._buffer.shape[1]:
                self._buffer = np.empty((2, size))
            high, low = self._buffer[0, :size].reshape(shape), self._buffer[1, :size].reshape(shape)
            _fill(bits, self._bins, self._thresholds, high, low)
            yield top // LANES, left, high, low

    def draw_all(
        self, ids: NDArray[np.uint64], tweaks: Sequence[bytes]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same in one piece: hi and lo of shape (len(tweaks) / 2, len(ids))."""
        high = np.empty((len(tweaks) // LANES, len(ids)))
        low = np.empty_like(high)
        for top, left, some_high, some_low in self.draw(ids, tweaks):
            rows, columns = some_high.shape
            high[top : top + rows, left : left + columns] = some_high
            low[top : top + rows, left : left + columns] = some_low
        return high, low


def cell_masses() -> list[int]:
    """P(|k|) * 2^127 for the cells k = 0, 1, ... of both signs together, rounded down; 0 gets what is left."""
    width_squared = Fraction(1, 1 << 2 * _CELL_BITS)
    ratio_terms = [  # of (k w^2 / 2)^2m in the integral
        sum(
            (-width_squared / 8) ** j / (factorial(j) * (2 * m + 2 * j + 1) * factorial(2 * m))
            for j in range(_TERMS)
        )
        for m in range(_TERMS)
    ]
    last, *others = (int(term * _RATIO_UNIT) for term in reversed(ratio_terms))
    masses = []
    for k, weight in enumerate(gaussian_weights(4.0**_CELL_BITS)):
        ratio, k_squared = last, k * k
        for term in others:
            ratio = term + (ratio * k_squared >> 4 * _CELL_BITS + 2)
        masses.append((weight >> _SPARE_BITS) * ratio)
    total = 2 * sum(masses) - masses[0]
    units = [(mass << 128) // total for mass in masses]
    while not units[-1]:
        units.pop()
    units[0] = (1 << 127) - sum(units[1:])
    return units


@lru_cache(maxsize=1)
def alias_table() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """For each bin: the high 48 bits of its threshold above its alias, and the low 63 bits; uint64 of shape (2^16,).

    111 bits below the threshold mean the bin's own cell, others the alias (Walker 1977; Vose 1991).
    """
    units = cell_masses()
    units += [0] * ((1 << _BIN_BITS) - len(units))
    thresholds, aliases = [_FULL_BIN - 1] * len(units), list(range(len(units)))
    small = [k for k, mass in enumerate(units) if mass < _FULL_BIN]
    large = [k for k, mass in enumerate(units) if mass >= _FULL_BIN]
    while small:
        k, giver = small.pop(), large[-1]
        thresholds[k], aliases[k] = units[k], giver
        units[giver] -= _FULL_BIN - units[k]
        if units[giver] < _FULL_BIN:
            small.append(large.pop())
    bins = [
        threshold >> _LOW_BITS << 16 | alias for threshold, alias in zip(thresholds, aliases, strict=True)
    ]
    low = [threshold & int(_LOW_MASK) for threshold in thresholds]
    return np.array(bins, np.uint64), np.array(low, np.uint64)


@compiled
def _fill(bits, bins, thresholds, high, low):  # type: ignore[no-untyped-def]
    """Turn bits, shape (2 rounds, labels, 2), into draws: hi and lo of shape (rounds, labels)."""
    cell = np.empty(bits.shape[1])
    for row in range(len(high)):
        _choose(bits[2 * row], bits[2 * row + 1], bins, thresholds, cell, high[row], low[row])
        _place(cell, high[row], low[row])


@compiled
def _choose(bits, place_bits, bins, thresholds, cell, high, low):  # type: ignore[no-untyped-def]
    """The number of each draw's cell, with its sign, and the uniform place in it as hi + lo."""
    for i in range(len(cell)):
        first, second = bits[i, 0], bits[i, 1]
        own = (first >> _BIN_SHIFT) & _BIN_MASK
        entry = bins[own]
        choice = (first & _HIGH_MASK) << np.uint64(1) | second >> np.uint64(_LOW_BITS)
        threshold = entry >> _ALIAS_BITS
        below = choice < threshold
        if choice == threshold:
            below = (second & _LOW_MASK) < thresholds[own]
        number = np.float64(np.int64(own if below else entry & _ALIAS_MASK))
        cell[i] = -number if first >> _SIGN_SHIFT else number
        first, second = place_bits[i, 0], place_bits[i, 1]
        high[i] = np.float64(np.int64(first) >> 11) * 2.0**-53
        rest = (first & np.uint64(0x7FF)) << np.uint64(42) | second >> np.uint64(22)
        low[i] = np.float64(np.int64(rest)) * 2.0**-106


@compiled
def _place(cell, high, low):  # type: ignore[no-untyped-def]
    """w (k + T(v)) from the cells' numbers and v, in place of v."""
    for i in range(len(cell)):
        v, v_low = high[i], low[i]
        a = cell[i] * _A_UNIT  # exact, as is a^2

        square, error = two_product(v, v)
        error = fma(v + v, v_low, error)
        g = 0.25 - square
        g_low = (0.25 - g) - square - error

        factor = fma(2.0 * a, a, _A_UNIT)  # 2 a^2 + b: exact, and so is its product with _SIXTH
        second = factor * _SIXTH
        product, error = two_product(v, second)
        error = fma(v_low, second, fma(v, factor * _SIXTH_REST, error))
        q, q_low = quick_two_sum(0.5 * a, product)
        q_low += error

        p0 = fma(fma(_A0[2], square, _A0[1]), square, _A0[0])
        p1 = fma(fma(fma(_A1[3], square, _A1[2]), square, _A1[1]), square, _A1[0])
        p2 = fma(fma(_A2[2], square, _A2[1]), square, _A2[0])
        p3 = fma(fma(fma(_A3[3], square, _A3[2]), square, _A3[1]), square, _A3[0])
        p4 = fma(fma(_A4[2], square, _A4[1]), square, _A4[0])
        p5 = fma(fma(fma(_A5[3], square, _A5[2]), square, _A5[1]), square, _A5[0])
        p6 = fma(fma(_A6[2], square, _A6[1]), square, _A6[0])
        p7 = fma(fma(fma(_A7[3], square, _A7[2]), square, _A7[1]), square, _A7[0])
        a_squared = a * a
        even = fma(fma(fma(p6, a_squared, p4), a_squared, p2), a_squared, p0)
        odd = fma(fma(fma(p7, a_squared, p5), a_squared, p3), a_squared, p1)

        product, error = two_product(q, g)
        error = fma(q_low, g, fma(q, g_low, error))
        error = fma(g, fma(even, v, odd * a), error)
        total, rest = quick_two_sum(cell[i], v)
        total, lost = two_sum(total, -product)
        total, rest = quick_two_sum(total, rest + (lost + (v_low - error)))
        high[i] = total * _WIDTH
        low[i] = rest * _WIDTH


_GOLDEN = "9b1d2cbd05865fb158df548ad7185b53"


def check_golden_gaussian() -> None:
    """Draw 4,096 known values; raise RuntimeError where this machine or its libraries compute others."""
    noise = KeyedNoise(bytes(range(KEY_BYTES)), "golden", bytes(NONCE_BYTES))
    tweaks = [
        noise.tweak(round_number, lane, EMPTY_HISTORY) for round_number in range(64) for lane in range(LANES)
    ]
    draws = GaussianNoise(noise).draw_all(noise.label_ids(b"%d" % i for i in range(64)), tweaks)
    digest = blake2b(b"".join(part.astype("<f8").tobytes() for part in draws), digest_size=16).hexdigest()
    if digest != _GOLDEN:
        raise RuntimeError(
            f"this machine draws normal noise that differs from the golden draw ({digest} instead of {_GOLDEN}): the "
            "noise would not be the same after a restart elsewhere, so nothing is released; check the numba, "
            "cryptography and numpy packages"
        )
