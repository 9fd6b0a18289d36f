"""Keyed standard normal draws in 106 bits, whose error is bounded and small enough to be paid for.

A draw takes two blocks of 128 keyed bits.  The first picks a cell, the second a place v in it, in units of 2^-106; what
is drawn is w (k + T(v)).  Cells, T, and how near their law is to the normal one: gaussian_cells.py.

Rounding.  What is returned is off by at most DRAW_ERROR from w (k + T(v)), with v in units of 2^-106.  Orders 1 and 2
are computed in double-double, within 2^-93 of a cell.  The orders from 3 on stay below 2^-32 of a cell and are computed
in doubles: their terms, taken absolutely, add up to less than a^3 / 12 with a < 2^-8.3, and their error is below a^3
2^-53 / 10; adding them up costs four roundings of 2^-86.  Together this is less than 2^-80 of a cell.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from stream_dp.privacy.double_double import compiled, fma, quick_two_sum, two_product, two_sum
from stream_dp.privacy.gaussian_cells import BIN_BITS, CELL_BITS, LOW_BITS, alias_table, collected
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KEY_BYTES, NONCE_BYTES, KeyedNoise, WrongNoise

LANES = 2
"""Lanes of a round that one draw takes."""

_WIDTH = 2.0**-CELL_BITS
_BIN_SHIFT = np.uint64(63 - BIN_BITS)
_BIN_MASK = np.uint64((1 << BIN_BITS) - 1)
_HIGH_MASK = np.uint64((1 << 63 - BIN_BITS) - 1)
_ALIAS_BITS = np.uint64(16)
_ALIAS_MASK = np.uint64((1 << 16) - 1)
_LOW_MASK = np.uint64((1 << LOW_BITS) - 1)
_SIGN_SHIFT = np.uint64(63)

_A0, _A1, _A2, _A3, _A4, _A5, _A6, _A7 = map(collected, range(8))
_SIXTH = 1398101 * 2.0**-23  # 21 bits, so that its product with 2 a^2 + b is exact
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
        """All draws in one piece: hi and lo of shape (len(tweaks) / 2, len(ids))."""
        high = np.empty((len(tweaks) // LANES, len(ids)))
        low = np.empty_like(high)
        for top, left, some_high, some_low in self.draw(ids, tweaks):
            rows, columns = some_high.shape
            high[top : top + rows, left : left + columns] = some_high
            low[top : top + rows, left : left + columns] = some_low
        return high, low

    def middles(
        self, ids: NDArray[np.uint64], tweaks: Sequence[bytes]
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """The middles of the cells of draws, some labels at a time: half of the work of drawing.

        `tweaks` are the first ones of each draw's pair, which decide about its cell; a draw is at most half a cell away
        from its middle.  Yields the number of the first label, and float64 of shape (draws, labels), which last until
        the next ones are asked for.  There may be at most 2^14 tweaks.
        """
        for _, left, bits in self._noise.bits(ids, tweaks, len(tweaks)):
            shape = bits.shape[:2]
            size = shape[0] * shape[1]
            if size > self._buffer.shape[1]:
                self._buffer = np.empty((2, size))
            found = self._buffer[0, :size].reshape(shape)
            _fill_middles(bits, self._bins, self._thresholds, found)
            yield left, found


@compiled
def _fill_middles(bits, bins, thresholds, found):  # type: ignore[no-untyped-def]
    """The middles of the cells that bits of shape (draws, labels, 2) mean."""
    for row in range(found.shape[0]):
        for i in range(found.shape[1]):
            found[row, i] = _WIDTH * _cell(bits[row, i, 0], bits[row, i, 1], bins, thresholds)


@compiled
def _cell(first, second, bins, thresholds):  # type: ignore[no-untyped-def]
    """The number of the cell that 128 bits mean, with its sign."""
    own = (first >> _BIN_SHIFT) & _BIN_MASK
    entry = bins[own]
    choice = (first & _HIGH_MASK) << np.uint64(1) | second >> np.uint64(LOW_BITS)
    threshold = entry >> _ALIAS_BITS
    below = choice < threshold
    if choice == threshold:
        below = (second & _LOW_MASK) < thresholds[own]
    number = np.float64(np.int64(own if below else entry & _ALIAS_MASK))
    return -number if first >> _SIGN_SHIFT else number


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
        cell[i] = _cell(bits[i, 0], bits[i, 1], bins, thresholds)
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


@cache
def check_golden_gaussian() -> None:
    """Draw 4,096 known values; raise `WrongNoise` where this machine or its libraries compute others."""
    noise = KeyedNoise(bytes(range(KEY_BYTES)), "golden", bytes(NONCE_BYTES))
    tweaks = [
        noise.tweak(round_number, lane, EMPTY_HISTORY) for round_number in range(64) for lane in range(LANES)
    ]
    draws = GaussianNoise(noise).draw_all(noise.label_ids(b"%d" % i for i in range(64)), tweaks)
    digest = blake2b(b"".join(part.astype("<f8").tobytes() for part in draws), digest_size=16).hexdigest()
    if digest != _GOLDEN:
        raise WrongNoise(
            f"this machine draws normal noise that differs from the golden draw ({digest} instead of {_GOLDEN}): the "
            "noise would not be the same after a restart elsewhere, so nothing is released; check the numba, "
            "cryptography and numpy packages"
        )
