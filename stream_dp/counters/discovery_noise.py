"""The noise of labels at the tests of discovery: exact for those that may pass, and near enough to tell who may.

A label draws one standard normal for each test, under the head of the hash chain in the test's round, and nothing is
kept of it: at test k all k draws are made again from the tweaks that are kept, one pair a test.  Most labels are far
from the threshold.  The first of a draw's two blocks of bits says in which cell of width 2^-12 it lies, so the sum of
the cells is within half a cell, times the sum of the coefficients, of the noise.  Only labels that this may lift to the
threshold draw both blocks, and these decide: who is found, and with which count, follows from the exact draws alone.
"""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt_exact import double_doubles
from stream_dp.counters.blt_recursion import add_up, jump
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_matrix import coefficients
from stream_dp.privacy.gaussian_cells import CELL_BITS
from stream_dp.privacy.gaussian_noise import LANES, GaussianNoise
from stream_dp.privacy.keyed_noise import KeyedNoise

FIRST_LANE = 1 << 16
"""The lanes of a round from this one on are those of its test: no counter uses them."""

_SLACK = 1e-6  # beyond the half cells: what doubles round away of sums that are below 2^31
_LABELS_AT_ONCE = 1 << 16
_TWEAK_BYTES = 16


class DiscoveryNoise:
    """The tests so far, of which the last one is the current."""

    def __init__(self, mechanism: DiscoveryMechanism, noise: KeyedNoise) -> None:
        self._noise = noise
        self._gaussian = GaussianNoise(noise)
        scale = Fraction(mechanism.test_sd)
        self._factors = double_doubles([scale * each for each in coefficients(len(mechanism.tests))])
        self._tweaks: list[bytes] = []

    def begin_test(self, round_number: int, history: bytes) -> None:
        """A test in this round, whose head is `history`, becomes the current one."""
        lanes = range(FIRST_LANE, FIRST_LANE + LANES)
        self._tweaks += [self._noise.tweak(round_number, lane, history) for lane in lanes]

    @property
    def tests(self) -> int:
        """How many there were."""
        return len(self._tweaks) // LANES

    def state(self) -> dict[int, bytes]:
        """The tweaks of each test so far, by its number."""
        pairs = (self._tweaks[place : place + LANES] for place in range(0, len(self._tweaks), LANES))
        return {number: b"".join(pair) for number, pair in enumerate(pairs, 1)}

    def restore(self, state: Mapping[int, bytes]) -> None:
        """Go on from `state`."""
        size = _TWEAK_BYTES
        joined = b"".join(pair for _, pair in sorted(state.items()))
        self._tweaks = [joined[place : place + size] for place in range(0, len(joined), size)]

    def rounded(self, ids: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The noise of these labels at the current test, to the nearest integer; int32 of shape (labels,)."""
        normals = self._gaussian.draw_all(ids, self._tweaks)
        high, low = (part[: self.tests][::-1].reshape(1, -1).copy() for part in self._factors)
        sums = np.zeros((2, 1, len(ids)))
        jump(sums[0], sums[1], np.zeros(1), np.zeros(1), high, low, *normals)
        found = np.empty(len(ids), np.int32)
        add_up(sums[0], sums[1], found)
        return found

    def could_reach(self, ids: NDArray[np.uint64], needed: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of all labels whose noise may round to at least `needed`, and of few others."""
        factors = self._factors[0][: self.tests][::-1].copy()
        slack = float(np.sum(np.abs(factors))) * 2.0 ** -(CELL_BITS + 1) + _SLACK
        found = []
        for start in range(0, len(ids), _LABELS_AT_ONCE):
            part = slice(start, start + _LABELS_AT_ONCE)
            near = self._gaussian.weighted_cells(ids[part], self._tweaks[::LANES], factors)
            found.append(start + np.flatnonzero(near + slack >= needed[part] - 0.5))
        return np.concatenate(found) if found else np.empty(0, np.int64)
