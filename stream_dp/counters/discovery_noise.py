"""The noise of labels at the tests of discovery: exact for those that may pass, and near enough to tell who may.

A label draws one standard normal for each test, under the head of the hash chain in the test's round.  A draw takes two
blocks of bits, and the first says in which cell of width 2^-12 it lies.  Most labels are far from the threshold, and
one block for the current test and a few bytes about the earlier ones tell that (discovery_reach.py).  Those few that
the noise may lift to the threshold draw all of it again, from the tweaks that are kept, one pair a test; and this
decides: who is found, and with which count, follows from the exact draws alone.

What is known about earlier draws is made from the tweaks again where it is missing: of new labels, and of all labels
after a restart.  `follow` does that a few labels at a time, between tests, so that a test need not.
"""

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt_exact import double_doubles
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_matrix import coefficients, rounded_coefficients
from stream_dp.counters.discovery_reach import Reach
from stream_dp.loops import blt_add_up, blt_combine
from stream_dp.privacy.gaussian_cells import CELL_BITS
from stream_dp.privacy.gaussian_noise import LANES, GaussianNoise
from stream_dp.privacy.keyed_noise import KeyedNoise

FIRST_LANE = 1 << 16
"""The lanes of a round from this one on are those of its test: no counter uses them."""

_SLACK = 1e-6  # beyond the half cells: what doubles round away of sums that are below 2^31
_FEWEST_TO_FOLLOW, _MOST_TO_FOLLOW = 1 << 10, 1 << 14
_TWEAK_BYTES = 16


class DiscoveryNoise:
    """The tests so far, of which the last one is the current."""

    def __init__(self, mechanism: DiscoveryMechanism, noise: KeyedNoise) -> None:
        self._noise = noise
        self._gaussian = GaussianNoise(noise)
        scale = Fraction(mechanism.test_sd)
        self._factors = double_doubles([scale * each for each in coefficients(len(mechanism.tests))])
        self._sums = np.cumsum(rounded_coefficients(len(mechanism.tests)))
        self._scale = mechanism.test_sd
        self._reach, self._looked_at = Reach(len(mechanism.tests)), 0
        self._tweaks: list[bytes] = []

    def begin_test(self, round_number: int, history: bytes) -> None:
        """A test in this round, whose head is `history`, becomes the current one."""
        lanes = range(FIRST_LANE, FIRST_LANE + LANES)
        self._tweaks += self._noise.tweaks((round_number, lane, history) for lane in lanes)

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
        self._reach, self._looked_at = Reach(len(self._sums)), len(state)

    def rounded(self, ids: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The noise of these labels at the current test, to the nearest integer; int32 of shape (labels,)."""
        normals = self._gaussian.draw_all(ids, self._tweaks)
        high, low = (part[: self.tests][::-1].reshape(1, -1).copy() for part in self._factors)
        sums = np.zeros((2, 1, len(ids)))
        blt_combine(sums[0], sums[1], high, low, *normals)
        found = np.empty(len(ids), np.int32)
        blt_add_up(sums[0], sums[1], found)
        return found

    def follow(self, ids: NDArray[np.uint64]) -> None:
        """Look at the earlier draws of some labels, if many wait for that; `ids` are those of all labels."""
        waiting = len(ids) - self._reach.labels
        if waiting >= _FEWEST_TO_FOLLOW:
            self._follow(ids, self._reach.labels + min(waiting, _MOST_TO_FOLLOW))

    def could_reach(
        self, ids: NDArray[np.uint64], counts: NDArray[np.int32], least: int, tau: int
    ) -> NDArray[np.int64]:
        """Which labels have a count of at least `least`, and may be measured at `tau` or more now, and few others.

        `ids` are those of all labels, and so are `counts`.
        """
        test = self.tests
        assert self._looked_at == test - 1, "each test is looked at once, in order"
        self._follow(ids, len(ids))
        slack = float(self._reach.slack[test - 1] + self._sums[test - 1] * 2.0 ** -(CELL_BITS + 1))
        needed = tau - 0.5 - self._scale * slack - _SLACK
        found = []
        for left, draws in self._gaussian.middles(ids, self._tweaks[-LANES::LANES]):
            part = counts[left : left + draws.shape[1]]
            found.append(left + self._reach.near(left, draws[0], part, least, needed, self._scale))
            self._reach.follow(left, draws)
        self._looked_at = test
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _follow(self, ids: NDArray[np.uint64], labels: int) -> None:
        """Let the sums of so many labels know the tests that were looked at."""
        first, tweaks = self._reach.labels, self._tweaks[: self._looked_at * LANES : LANES]
        self._reach.make_room(labels)
        if tweaks:
            for left, draws in self._gaussian.middles(ids[first:labels], tweaks):
                self._reach.follow(first + left, draws)
        self._reach.labels = labels
