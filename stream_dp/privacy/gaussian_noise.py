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

from stream_dp.loops import draw_middles, draw_normals
from stream_dp.privacy.gaussian_cells import alias_table, collected
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KEY_BYTES, NONCE_BYTES, KeyedNoise, WrongNoise

LANES = 2
"""Lanes of a round that one draw takes."""

_SERIES = np.array([collected(power) for power in range(8)])
_SIXTH = 1398101 * 2.0**-23  # 21 bits, so that its product with 2 a^2 + b is exact
_SIXTH_REST = float(Fraction(1, 6) - Fraction(_SIXTH))


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
            draw_normals(bits, self._bins, self._thresholds, _SERIES, _SIXTH, _SIXTH_REST, high, low)
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
            draw_middles(bits, self._bins, self._thresholds, found)
            yield left, found


_GOLDEN = "9b1d2cbd05865fb158df548ad7185b53"


@cache
def check_golden_gaussian() -> None:
    """Draw 4,096 known values; raise `WrongNoise` where this machine or its libraries compute others."""
    noise = KeyedNoise(bytes(range(KEY_BYTES)), "golden", bytes(NONCE_BYTES))
    tweaks = noise.tweaks(
        (round_number, lane, EMPTY_HISTORY) for round_number in range(64) for lane in range(LANES)
    )
    draws = GaussianNoise(noise).draw_all(noise.label_ids(b"%d" % i for i in range(64)), tweaks)
    digest = blake2b(b"".join(part.astype("<f8").tobytes() for part in draws), digest_size=16).hexdigest()
    if digest != _GOLDEN:
        raise WrongNoise(
            f"this machine draws normal noise that differs from the golden draw ({digest} instead of {_GOLDEN}): the "
            "noise would not be the same after a restart elsewhere, so nothing is released; check the "
            "cryptography and numpy packages, and the compiler that built this one"
        )
