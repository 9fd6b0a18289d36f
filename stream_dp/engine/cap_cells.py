"""Two noisy running counts beside the labels: how many units were counted, and how many had more items than count.

A unit is what the guarantee protects: an event, a user, or a user's day.  Both cells are known in advance, so nothing
tests them.  A unit changes each by 1 at most, and their noise is that of a label times `CAP_SCALE`, so each costs 1/16
of an item.  The noise is scaled before it is rounded, or drawn with 16 times the variance parameter; a label's noise
times 4 would leave the count modulo 4 to be read.  Why it is private: docs/guarantee.md, "Units over the cap".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import CAP_CELLS, CalibratedCounter, CounterState, Hits
from stream_dp.privacy.keyed_noise import KeyedNoise

CELL_NAMES = b"\xff units", b"\xff over the cap"
"""What their noise is drawn for.  A label is text, and no text in UTF-8 has the byte 0xFF: none has these names."""

_NOTHING = np.empty(0, np.int64)
_NO_HITS = Hits(_NOTHING, _NOTHING)


@dataclass
class CellState:
    """Everything that the cells must remember; `counts` are the true ones, int64 of shape (cells,)."""

    counts: NDArray[np.int64]
    counter: CounterState


class CapCells:
    """The noisy counts of `names`, round by round, of an epoch that counts them."""

    def __init__(
        self,
        mechanism: CalibratedCounter,
        noise: KeyedNoise,
        state: CellState | None = None,
        names: Sequence[bytes] = CELL_NAMES,
    ) -> None:
        self._counter = mechanism.cells.counter(noise)
        self._ids = noise.label_ids(names)
        self._counts = np.zeros(len(names), np.int64) if state is None else state.counts.copy()
        self._counter.restore(CounterState() if state is None else state.counter, len(names))

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self._counter.round

    def observe(
        self, counts: NDArray[np.int64], heads: Sequence[bytes], wanted: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Close rounds that add `counts` to the cells, shape (rounds, cells); the noisy counts after those `wanted`.

        `heads` are those of the hash chain after each round, which cover `counts`.
        """
        numbers = None
        if wanted is not None and not wanted.all():
            numbers = self.round + 1 + np.flatnonzero(wanted)
        running = self._counts + np.cumsum(counts, axis=0)
        noise = self._counter.advance(self._ids, heads, _NO_HITS, _NOTHING, numbers)
        self._counts = running[-1] if len(running) else self._counts
        return noise + (running if numbers is None else running[wanted])

    def current(self) -> NDArray[np.int64]:
        """The noisy counts after the last round, of shape (1, cells)."""
        return (self._counter.current() + self._counts)[np.newaxis]

    def state(self) -> CellState:
        """What a checkpoint keeps.  The arrays are the live ones."""
        return CellState(self._counts, self._counter.state())


def cells_of(
    mechanism: CalibratedCounter, noise: KeyedNoise, state: CellState | None, rounds: int
) -> CapCells | None:
    """Those of an epoch that has closed so many rounds, if it has any.  Raises ValueError if their state is lost."""
    if not mechanism.cap_share:
        return None
    if (state.counter.round if state is not None else 0) != rounds:
        raise ValueError("what the epoch has counted beside its labels is missing")
    return CapCells(mechanism, noise, state)


def as_array(cells: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """What rounds add to the cells, of shape (rounds, cells)."""
    return np.array(cells, np.int64).reshape(-1, CAP_CELLS)
