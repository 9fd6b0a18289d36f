"""The state of a buffered linear Toeplitz counter, all labels at once; what it computes and why: blt.py."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt_exact import LawOfState
from stream_dp.counters.blt_parameters import Gaps, output_weights
from stream_dp.counters.protocol import Column, CounterState, Hits
from stream_dp.loops import blt_add_up, blt_advance, blt_combine
from stream_dp.privacy.gaussian_noise import LANES, GaussianNoise, check_golden_gaussian
from stream_dp.privacy.keyed_noise import KeyedNoise

_CELLS_WORTH_A_THREAD = 1 << 15  # a third of a millisecond

_FIRST_SHARED_LANE = 2
"""Lanes 0 and 1 of a round are its draw's; from this one on, those of labels that start at it."""


@lru_cache(maxsize=8)
def law_of_state(gaps: Gaps, draw_sd: float, horizon: int) -> LawOfState:
    """The law of a label's state, for draws of standard deviation `draw_sd`."""
    scale = Fraction(draw_sd)
    return LawOfState(gaps, [scale * weight for weight in output_weights(gaps)], horizon)


class BltCounter:
    """V_a of all labels, as `_high` + `_low`, float64 of shape (poles, capacity).

    Creating one raises `WrongNoise` where this machine or its libraries draw other noise than they should.
    """

    def __init__(self, law: LawOfState, noise: KeyedNoise) -> None:
        check_golden_gaussian()
        self._noise = noise
        self._gaussian = GaussianNoise(noise)
        self._law = law
        self._high = np.empty((self._law.size, 0))
        self._low = np.empty((self._law.size, 0))
        self._history = b""
        self.round = 0
        self.labels = 0

    def advance(
        self,
        ids: NDArray[np.uint64],
        histories: Sequence[bytes],
        hits: Hits,
        first_seen: NDArray[np.int64],
        wanted: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """See `Counter.advance`.  The rounds are cut where labels start."""
        old = self.labels
        self._grow(len(ids))
        starts = {int(start): old + np.flatnonzero(first_seen == start) for start in np.unique(first_seen)}
        self._start(starts.pop(self.round, None), ids)
        noise = np.empty((len(histories), self.labels), np.int32)
        first = self.round
        for end in sorted({*starts, first + len(histories)}):
            self._step(
                ids, histories[self.round - first : end - first], noise[self.round - first : end - first]
            )
            self._start(starts.get(end), ids)
            if end in starts:
                noise[end - first - 1] = self.current()
        return noise if wanted is None else noise[wanted - first - 1]

    def begin(self, labels: int) -> None:
        """Append so many labels whose noise begins with zeros after this round, as a label's does before round 1."""
        self._grow(self.labels + labels)

    def _grow(self, labels: int) -> None:
        """Room for that many labels; the new ones have no noise yet."""
        if labels > self._high.shape[1]:
            room = np.zeros((2, self._law.size, labels + labels // 8))
            room[0, :, : self.labels] = self._high[:, : self.labels]
            room[1, :, : self.labels] = self._low[:, : self.labels]
            self._high, self._low = room
        self._high[:, self.labels : labels] = 0
        self._low[:, self.labels : labels] = 0
        self.labels = labels

    def _step(self, ids: NDArray[np.uint64], histories: Sequence[bytes], noise: NDArray[np.int32]) -> None:
        """Pass through rounds in which no label starts, except at the end."""
        tweaks = self._noise.tweaks(
            (round_number, lane, history)
            for round_number, history in enumerate(histories, self.round + 1)
            for lane in range(LANES)
        )
        if len(ids) * len(histories) < _CELLS_WORTH_A_THREAD:
            self._draw(self._gaussian, ids, tweaks, 0, noise)
        else:
            half = len(ids) // 2
            thread, gaussian = self._beside
            drawn = thread.submit(self._draw, gaussian, ids[:half], tweaks, 0, noise)
            self._draw(self._gaussian, ids[half:], tweaks, half, noise)
            drawn.result()
        if histories:
            self.round += len(histories)
            self._history = histories[-1]

    @cached_property
    def _beside(self) -> tuple[ThreadPoolExecutor, GaussianNoise]:
        """Another thread, and what it draws with."""
        return ThreadPoolExecutor(1, "noise"), GaussianNoise(self._noise.beside())

    def _draw(
        self,
        gaussian: GaussianNoise,
        ids: NDArray[np.uint64],
        tweaks: Sequence[bytes],
        first: int,
        noise: NDArray[np.int32],
    ) -> None:
        """The noise of some labels, which stand from `first` on."""
        high, low, law = self._high, self._low, self._law
        for top, left, z_high, z_low in gaussian.draw(ids, tweaks):
            blt_advance(high, low, first + left, law.poles, *law.scales, z_high, z_low, noise, top)

    def _start(self, rows: NDArray[np.int64] | None, ids: NDArray[np.uint64]) -> None:
        """Draw the state of the labels in `rows`, whose noise starts at this round."""
        if rows is None or not self.round:
            return
        high, low = np.zeros((2, self._law.size, len(rows)))
        factor_high, factor_low = self._law.factor(self.round)
        lanes = range(_FIRST_SHARED_LANE, _FIRST_SHARED_LANE + LANES * factor_high.shape[1])
        tweaks = self._noise.tweaks((self.round, lane, self._history) for lane in lanes)
        blt_combine(high, low, factor_high, factor_low, *self._gaussian.draw_all(ids[rows], tweaks))
        self._high[:, rows], self._low[:, rows] = high, low

    def current(self) -> NDArray[np.int32]:
        """See `Counter.current`."""
        noise = np.empty(self.labels, np.int32)
        blt_add_up(self._high, self._low, noise)
        return noise

    def join(self, others: "BltCounter") -> None:
        """Append the labels of `others`, a counter that stands at the same round of the same stream."""
        old = self.labels
        self._grow(old + others.labels)
        self._high[:, old : self.labels] = others._high[:, : others.labels]
        self._low[:, old : self.labels] = others._low[:, : others.labels]

    def state(self) -> CounterState:
        """Two columns for each pole; `tweaks` holds the history's head, for labels whose noise starts here."""
        columns = [
            Column(f"{part}:{a}", self.round, cells[a, : self.labels])
            for part, cells in (("high", self._high), ("low", self._low))
            for a in range(self._law.size)
        ]
        return CounterState(self.round, columns, {self.round: self._history})

    def restore(self, state: CounterState, labels: int) -> None:
        """See `Counter.restore`."""
        self.labels = 0
        self._grow(labels)
        cells = {column.name: column.cells for column in state.columns}
        for a in range(self._law.size if state.round else 0):
            self._high[a, :labels], self._low[a, :labels] = cells[f"high:{a}"], cells[f"low:{a}"]
        self.round, self._history = state.round, state.tweaks.get(state.round, b"")
