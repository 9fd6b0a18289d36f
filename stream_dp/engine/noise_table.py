"""The noisy table, and whose noise is computed for it: all labels', or with pruning that of those that can be seen.

Pruning is a part of the mechanism that costs no delta.  Rounds come in blocks of 2^b that begin after a round l0, a
multiple of 2^b.  In the last round of a block every label is active.  In the rounds before, a label is active if and
only if, for one of those rounds l,

    noisy(label, l0)  >=  tau(l) - (l - l0) * (what a round can add) - 4 * drift(l0, l)

where drift(l0, l) is the standard deviation of the change of noise from l0 to l, and noisy(label, l0) counts a label
that was not seen by l0 as 0, whenever it appears.  Where labels are kept, one that was shown by l0 is active, too.  A
round releases a label that is active and reaches tau, or has been shown and is kept.  Which labels are active follows
from the noisy table and from what was released, so pruning is post-processing of what the guarantee speaks of
(docs/guarantee.md).  A label that could only have passed by a rare swing of its noise inside the block waits for the
last round of it, for which every label draws noise anyway.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import CalibratedCounter, Counter, CounterState, Hits, grown
from stream_dp.privacy.keyed_noise import KeyedNoise

_DRIFTS = 4
_NONE = np.empty(0, np.int64)
_NO_HITS = Hits(_NONE, _NONE)


@dataclass
class BlockState:
    """A block that has begun: the rows of its active labels, their counter, and the hash chain's heads since."""

    rows: NDArray[np.int64]
    counter: CounterState
    histories: list[bytes]


class Pruning(NamedTuple):
    """Blocks of `block_rounds` rounds, a power of two, each of which adds at most `events_per_round` to a count."""

    block_rounds: int
    events_per_round: int = 1


class WholeTable:
    """The noisy counts of all labels: a column is a row."""

    rounds_left = sys.maxsize

    def __init__(self, mechanism: CalibratedCounter, noise: KeyedNoise) -> None:
        self._counter = mechanism.counter(noise)

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self._counter.round

    @property
    def width(self) -> int:
        """How many columns to expect of the next `advance`, not counting new labels."""
        return self._counter.labels

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Whatever their counts will be, these labels have columns from the next block on: here all have."""

    def rows_of(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which labels these columns belong to."""
        return columns

    def columns_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which columns these labels have; -1 for a label that has none."""
        return rows

    def advance(
        self,
        ids: NDArray[np.uint64],
        counts: NDArray[np.int32],
        histories: Sequence[bytes],
        hits: Hits,
        first_seen: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> NDArray[np.int32]:
        """The noisy counts of the labels that have a column after each of the rounds `numbers`, some of the next ones.

        Returns int32 of shape (len(numbers), columns).  `counts` are those of all labels before the next rounds, 0 for
        the new ones.  For the rest see `Counter.advance`.
        """
        noisy = self._counter.advance(ids, histories, hits, first_seen, _unless_all(numbers, histories))
        add_counts(noisy, numbers, counts, hits)
        return noisy

    def current(self, counts: NDArray[np.int32]) -> NDArray[np.int32]:
        """The noisy counts after the last round of the labels that have a column; `counts` are those of all labels."""
        return self._counter.current() + counts

    def state(self) -> tuple[CounterState, BlockState | None]:
        """What a checkpoint keeps."""
        return self._counter.state(), None

    def restore(self, state: CounterState, block: BlockState | None, labels: int) -> None:
        """Go on from what `state` gave, of `labels` labels."""
        self._counter.restore(state, labels)


class PrunedTable:
    """The counter of all labels, which stands at the start of a block, and that of the active ones, ahead of it.

    Its methods are those of `WholeTable`.
    """

    def __init__(self, mechanism: CalibratedCounter, noise: KeyedNoise, pruning: Pruning) -> None:
        self._mechanism = mechanism
        self._everyone = mechanism.counter(noise)
        self._block_rounds = pruning.block_rounds
        self._events_per_round = pruning.events_per_round
        self._active: Counter | None = None
        self._histories: list[bytes] = []
        self._noisy_at_start: NDArray[np.int32] | None = None  # known where the last block's end has told it
        self._rows = _NONE  # of the active labels
        self._kept = _NONE  # rows of labels that are always active
        self._columns = np.empty(0, np.int32)  # of a label's row: its column among the active ones, or -1

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self._everyone.round + len(self._histories)

    @property
    def rounds_left(self) -> int:
        """Rounds until other labels have columns: the rounds of a block before its last one, or that one."""
        return max(1, self._block_rounds - 1 - len(self._histories))

    @property
    def _all(self) -> bool:
        """Whether every label had a column last: no block has begun since."""
        return self._active is None

    @property
    def _at_the_last(self) -> bool:
        return len(self._histories) == self._block_rounds - 1

    @property
    def width(self) -> int:
        """See `WholeTable.width`; before a block begins nobody knows, and this says all labels."""
        return len(self._rows) if self._active and not self._at_the_last else self._everyone.labels

    def keep(self, rows: NDArray[np.int64]) -> None:
        """See `WholeTable.keep`."""
        self._kept = np.union1d(self._kept, rows)

    def rows_of(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `WholeTable.rows_of`."""
        return columns if self._all else self._rows[columns]

    def columns_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `WholeTable.columns_of`."""
        return rows if self._all else self._columns[rows].astype(np.int64)

    def advance(
        self,
        ids: NDArray[np.uint64],
        counts: NDArray[np.int32],
        histories: Sequence[bytes],
        hits: Hits,
        first_seen: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> NDArray[np.int32]:
        """See `WholeTable.advance`; the rounds may be at most `rounds_left`."""
        if len(histories) > self.rounds_left:
            raise ValueError(
                f"{len(histories)} rounds at once, but only {self.rounds_left} have the same columns"
            )
        active = self._active or self._begin(counts)
        at_the_last = self._at_the_last
        if len(ids) > self._everyone.labels:
            self._add_labels(ids, active)
        columns = self._columns[hits.rows].astype(np.int64)
        mine = hits.among(columns)
        noisy = active.advance(ids[self._rows], histories, mine, _NONE, _unless_all(numbers, histories))
        self._histories += histories
        if at_the_last:
            return self._end(ids, counts, hits)[np.newaxis][: len(noisy)]
        add_counts(noisy, numbers, counts[self._rows], mine)
        return noisy

    def current(self, counts: NDArray[np.int32]) -> NDArray[np.int32]:
        """See `WholeTable.current`."""
        if self._active is None:
            return self._everyone.current() + counts
        return self._active.current() + counts[self._rows]

    def state(self) -> tuple[CounterState, BlockState | None]:
        """What a checkpoint keeps: all labels at the start of the block, and the block, where it has begun."""
        block = BlockState(self._rows, self._active.state(), self._histories) if self._active else None
        return self._everyone.state(), block

    def restore(self, state: CounterState, block: BlockState | None, labels: int) -> None:
        """Go on from `state` and `block`, which hold `labels` labels."""
        self._everyone.restore(state, labels)
        self._columns = np.full(labels, -1, np.int32)
        if block is not None:
            active = self._everyone.subset(_NONE)
            active.restore(block.counter, len(block.rows))
            self._activate(block.rows, active)
            self._histories = list(block.histories)

    def _begin(self, counts: NDArray[np.int32]) -> Counter:
        everyone = self._everyone
        noisy = self._noisy_at_start
        if noisy is None:
            noisy = everyone.current() + counts[: everyone.labels]
        self._noisy_at_start = None
        rows = np.union1d(np.flatnonzero(self._in_reach(noisy)), self._kept)
        return self._activate(rows, everyone.subset(rows))

    def _end(self, ids: NDArray[np.uint64], counts: NDArray[np.int32], hits: Hits) -> NDArray[np.int32]:
        """Every label's noisy count after the block, whose last round has these hits."""
        everyone, active = self._everyone, self._active
        assert active is not None
        everyone.follow(active, self._rows, ids, self._histories[-1])
        self._columns[self._rows] = -1
        self._active, self._histories, self._rows = None, [], _NONE
        noisy = everyone.current() + counts
        hits.add_to(noisy)
        self._noisy_at_start = noisy
        return noisy

    def _activate(self, rows: NDArray[np.int64], active: Counter) -> Counter:
        self._rows, self._active = rows, active
        self._columns[rows] = np.arange(len(rows))
        return active

    def _in_reach(self, noisy: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of the noisy counts at the block's start could reach the tau of a round before its last one."""
        start = self._everyone.round
        rounds = np.arange(start + 1, min(start + self._block_rounds - 1, self._mechanism.horizon) + 1)
        growth = (rounds - start) * self._events_per_round
        drift = np.floor(_DRIFTS * self._mechanism.drifts(start, rounds))
        return noisy >= int((self._mechanism.taus(rounds) - growth - drift).min())

    def _add_labels(self, ids: NDArray[np.uint64], active: Counter) -> None:
        """Append labels that the block's start did not know; those in reach catch up with the active ones."""
        everyone = self._everyone
        new = np.arange(everyone.labels, len(ids))
        everyone.advance(ids, [], _NO_HITS, np.full(len(new), everyone.round))
        self._columns = grown(self._columns, len(ids))
        self._columns[new] = -1
        late = new[self._in_reach(everyone.subset(new).current())]
        if not len(late):
            return
        part = everyone.subset(late)
        part.advance(ids[late], self._histories, _NO_HITS, _NONE, wanted=_NONE)
        active.join(part)
        self._columns[late] = np.arange(len(self._rows), len(self._rows) + len(late))
        self._rows = np.concatenate([self._rows, late])


def _unless_all(numbers: NDArray[np.int64], histories: Sequence[bytes]) -> NDArray[np.int64] | None:
    """The rounds that a counter is asked for; None for all, which it does in one sweep."""
    return numbers if len(numbers) < len(histories) else None


def add_counts(
    noisy: NDArray[np.int32], numbers: NDArray[np.int64], counts: NDArray[np.int32], hits: Hits
) -> None:
    """Add to row i the counts after round `numbers[i]`: `counts` and the hits so far, whose rows are columns here."""
    steps = numbers.searchsorted(hits.rounds)
    inside = steps < len(numbers)
    grown_by = np.zeros_like(noisy)
    times = None if hits.times is None else hits.times[inside]
    cells = steps[inside] * noisy.shape[1] + hits.rows[inside]
    Hits(steps[inside], cells, times).add_to(grown_by.reshape(-1))
    grown_by[:1] += counts
    for before, after in pairwise(grown_by):  # numpy's own accumulation goes down each column by itself
        after += before
    noisy += grown_by
