"""Windows of all labels, for ever, from what is shown or has been seen in the last two blocks.

What it does and why: counters/window.py.  Noise is a function of key, head and label, so a label that was forgotten
and comes back has the noise that it would have had: its cells since the block began are computed again from the heads,
which are kept for two blocks.  Those of the last block are needed of a shown label alone, W rounds late: the same
counter runs through the same heads once more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import Column, CounterState, Hits, grown
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.admitted import Admitted, joined
from stream_dp.engine.histogram import HistogramState, rounds_at_once
from stream_dp.engine.noisy_counts import add_counts
from stream_dp.engine.released_block import ReleasedBlock, Snapshot
from stream_dp.engine.seen_labels import SeenLabels
from stream_dp.engine.visible_labels import VisibleLabels
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise

_NONE = np.empty(0, np.int64)
_NO_HITS = Hits(_NONE, _NONE)
_ROUNDS_AT_ONCE = 1 << 10  # of noise that is computed again


@dataclass
class _Block:
    """What a block of rounds held: its heads by place, and which labels were hit in which place how often.

    An array of `hits` has the columns place, row and times, int64, and places only grow from one to the next.
    """

    heads: list[bytes] = field(default_factory=list)
    hits: list[NDArray[np.int64]] = field(default_factory=lambda: [np.empty((0, 3), np.int64)])

    @property
    def all_hits(self) -> NDArray[np.int64]:
        """All of them as one array, which takes their place."""
        if len(self.hits) > 1:
            self.hits = [np.concatenate(self.hits)]
        return self.hits[0]

    def within(self, first: int, last: int) -> Hits:
        """The hits of the places from `first` to `last`."""
        hits = self.all_hits
        part = hits[slice(hits[:, 0].searchsorted(first), hits[:, 0].searchsorted(last, "right"))]
        return Hits(part[:, 0], part[:, 1], part[:, 2])


class _Cells:
    """Noisy counts S_b(i) + N_b(i) of some labels in one block, place by place."""

    def __init__(self, mechanism: WindowMechanism, noise: KeyedNoise) -> None:
        self.rows = _NONE
        self._mechanism, self._noise = mechanism, noise
        self._counter = mechanism.counter(noise)
        self._columns = np.empty(0, np.int64)  # of a label's row, or -1
        self._counts = np.empty(0, np.int32)

    def columns_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which columns these labels have; -1 for a label that has none."""
        if len(rows) and (size := int(rows.max()) + 1) > len(self._columns):
            known = len(self._columns)
            self._columns = grown(self._columns, size)
            self._columns[known:] = -1
        return self._columns[rows]

    def add(self, rows: NDArray[np.int64], ids: NDArray[np.uint64], block: _Block) -> None:
        """Add labels, whose cells are computed from the block's beginning up to where the others are."""
        if not len(rows):
            return
        place, known = self._counter.round, len(self.rows)
        late = self._mechanism.counter(self._noise)
        late.advance(ids[rows], [], _NO_HITS, np.zeros(len(rows), np.int64))
        for start in range(0, place, _ROUNDS_AT_ONCE):
            heads = block.heads[start : min(place, start + _ROUNDS_AT_ONCE)]
            late.advance(ids[rows], heads, _NO_HITS, _NONE)
        self._counter.join(late)
        self.columns_of(rows)
        self._columns[rows] = np.arange(known, known + len(rows))
        self.rows = np.concatenate([self.rows, rows])
        self._counts = np.concatenate([self._counts, np.zeros(len(rows), np.int32)])
        hits = block.within(1, place)
        columns = self.columns_of(hits.rows)
        hits.among(np.where(columns >= known, columns, -1)).add_to(self._counts)

    def skip_to(self, place: int, heads: Sequence[bytes]) -> None:
        """Go there while there are no labels."""
        for start in range(0, place, _ROUNDS_AT_ONCE):
            part = heads[start : min(place, start + _ROUNDS_AT_ONCE)]
            self._counter.advance(np.empty((0, 2), np.uint64), part, _NO_HITS, _NONE)

    def advance(self, ids: NDArray[np.uint64], heads: Sequence[bytes], hits: Hits) -> NDArray[np.int32]:
        """The cells after each of the next places, int32 of shape (places, labels); `hits` are those of rows."""
        first, mine = self._counter.round + 1, self._mine(hits)
        cells = self._counter.advance(ids[self.rows], heads, _NO_HITS, _NONE)
        add_counts(cells, np.arange(first, first + len(heads)), self._counts, mine)
        mine.add_to(self._counts)
        return cells

    def current(self) -> NDArray[np.int32]:
        """The cells at the last place, int32 of shape (labels,)."""
        return self._counter.current() + self._counts

    def _mine(self, hits: Hits) -> Hits:
        return hits.among(self.columns_of(hits.rows))


class WindowHistogram:
    """Feed it what each round admitted; it returns the windows of what is shown after each.

    It gives what `RunningHistogram` gives, in the same shape, and never ends.
    """

    def __init__(
        self, mechanism: WindowMechanism, noise: KeyedNoise, state: HistogramState | None = None
    ) -> None:
        self.mechanism = mechanism
        self._noise = noise
        self._window = mechanism.window
        self._block = -1
        self._first = 0  # the block that has none before it, as far as is known here
        self._seen = SeenLabels(noise)
        self._until = (
            _NONE  # by row, the round up to which it is shown by what has passed so far; 0 if by nothing
        )
        self._last, self._this = _Block(), _Block([EMPTY_HISTORY] * self._window)
        self._tested = _Cells(mechanism, noise)  # the labels that are, in this block
        self._shown = _Shown(mechanism, noise, first=True)
        if state is not None and state.round:
            self._restore(state)

    def begin_block(self, number: int, carried: Sequence[str]) -> None:
        """Begin with block `number` instead of block 0, not knowing what was before it; of a new histogram alone.

        `carried`: the labels that its first round shows, because of that round or of earlier ones.  From the block
        after it on, what is released is right; before that, the windows lack the rounds of the block before.
        """
        self._block, self._first = number - 1, number
        self._seen.extend(carried)
        self._until = grown(self._until, len(carried))
        self._until[: len(carried)] = self.round + 1

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self._block * self._window + self._place

    @property
    def _place(self) -> int:
        return len(self._this.heads)

    @property
    def history(self) -> bytes:
        """The head of the hash chain, which began with the last round's block."""
        return self._this.heads[-1]

    @property
    def rounds_left(self) -> int:
        """More rounds than anybody counts."""
        return self.mechanism.horizon - self.round

    def observe(self, rounds: Sequence[Admitted]) -> list[Snapshot]:
        """Close `rounds`, whatever their number, and return their snapshots."""
        return [snapshot for block in self.blocks(rounds) for snapshot in block.snapshots()]

    def blocks(
        self,
        rounds: Sequence[Admitted],
        histories: Sequence[bytes] | None = None,
        wanted: NDArray[np.bool_] | None = None,
    ) -> Iterator[ReleasedBlock]:
        """See `RunningHistogram.blocks`."""
        start = 0
        while start < len(rounds):
            if self._place == self._window:
                self._begin_block()
            part = slice(start, start + self._window - self._place)
            which = None if wanted is None else wanted[part]
            part = slice(start, start + rounds_at_once(len(self._tested.rows), rounds[part], which))
            which = np.ones(part.stop - start, bool) if wanted is None else wanted[part]
            admitted = rounds[part]
            if histories is None:
                before = self.history if self._place else EMPTY_HISTORY
                heads: Sequence[bytes] = self._noise.extend_histories(before, self.round + 1, admitted)
            else:
                heads = histories[part]
            yield self._observe(admitted, heads, which)
            start = part.stop

    def last_release(self) -> ReleasedBlock:
        """See `RunningHistogram.last_release`."""
        noisy = self._tested.current()[self._tested.columns_of(self._shown.rows)][np.newaxis]
        shown = self._until[self._shown.rows] >= self.round
        windows = noisy + self._shown.correction()
        return self._shown.released(np.array([self.round]), windows, shown[np.newaxis], [self.history])

    def state(self) -> HistogramState:
        """What a checkpoint keeps: no noise, which follows from the heads.

        The arrays are the live ones: copy or write them before the next event.
        """
        tested, found = np.zeros(len(self._seen), np.int32), np.zeros(len(self._seen), np.int64)
        tested[self._tested.rows], found[self._shown.rows] = 1, self._shown.found
        number, version = self.round, max(0, self._block)  # before the first round there is no block
        columns = [
            Column("until", number, self._until[: len(self._seen)]),
            Column("tested", number, tested),
            Column("found", number, found),
        ]
        kept = {
            f"{name}:{kind}": cells
            for name, block in (("this", self._this), ("last", self._last))
            for kind, cells in (
                ("heads", np.frombuffer(b"".join(block.heads), "<i8")),
                ("hits", block.all_hits.reshape(-1)),
            )
        }
        return HistogramState(
            self.history,
            self._seen.texts,
            np.zeros(len(self._seen), np.int32),
            CounterState(number, columns),
            recent=[Column(name, version, cells) for name, cells in kept.items()],
            labels_version=version,
        )

    def _restore(self, state: HistogramState) -> None:
        self._seen.extend(state.labels)
        cells = {column.name: column.cells for column in (*state.counter.columns, *state.recent)}
        self._until = cells["until"].copy()
        self._block = (state.round - 1) // self._window
        self._this, self._last = (
            _Block(_heads(cells[f"{name}:heads"]), [cells[f"{name}:hits"].reshape(-1, 3)])
            for name in ("this", "last")
        )
        self._tested.skip_to(self._place, self._this.heads)
        self._tested.add(np.flatnonzero(cells["tested"]), self._seen.ids, self._this)
        self._shown = _Shown(self.mechanism, self._noise, self._block == 0)
        self._shown.skip_to(self._place, self._last)
        shown = np.flatnonzero(cells["found"])
        self._shown.add(shown, cells["found"][shown], self._seen, self._last)

    def _begin_block(self) -> None:
        """Forget what is not shown and has no event in the last block, and what happened before that one.

        The rest is put into label order, so that the state does not tell with which block it was begun.
        """
        first = self.round + 1
        ended = self._tested
        self._last, self._this, self._block = self._this, _Block(), self._block + 1
        until, hits = self._until[: len(self._seen)], self._last.all_hits
        kept = until >= first
        kept[hits[:, 1]] = True
        texts = list(self._seen.texts)
        rows = np.array(sorted(np.flatnonzero(kept).tolist(), key=texts.__getitem__), np.int64)
        self._seen = self._seen.only(rows)
        self._until = until = np.where(until[rows] >= first, until[rows], 0)
        places = np.empty(len(kept), np.int64)
        places[rows] = np.arange(len(rows))
        self._last.hits = [np.column_stack([hits[:, 0], places[hits[:, 1]], hits[:, 2]])]
        carried = np.flatnonzero(until >= first)
        self._tested = _Cells(self.mechanism, self._noise)
        self._tested.add(carried, self._seen.ids, self._this)
        is_first = self._block == self._first
        self._shown = _Shown(self.mechanism, self._noise, is_first)
        ends = None if is_first else ended.current()[ended.columns_of(rows[carried])]
        self._shown.add(carried, np.full(len(carried), first), self._seen, self._last, ends)

    def _observe(
        self, rounds: Sequence[Admitted], heads: Sequence[bytes], wanted: NDArray[np.bool_]
    ) -> ReleasedBlock:
        """Close rounds of one block."""
        first, place = self.round + 1, self._place + 1
        labels, steps, times = joined(rounds)
        rows = self._seen.rows_of(labels)
        self._until = grown(self._until, len(self._seen))
        hits = Hits(place + steps, rows, times)
        self._note(hits)
        began = self._begin_tests(rows, steps)

        numbers = np.arange(first, first + len(rounds))
        noisy = self._tested.advance(self._seen.ids, heads, hits)
        passed = noisy >= self.mechanism.taus(numbers)[:, np.newaxis]
        passed[:, -len(began) :] &= (np.arange(len(rounds))[:, np.newaxis] >= began) if len(began) else True
        until = np.where(passed, (numbers + self._window - 1)[:, np.newaxis], 0)
        until[0] = np.maximum(until[0], self._until[self._tested.rows])
        np.maximum.accumulate(until, axis=0, out=until)
        shown = until >= numbers[:, np.newaxis]
        self._until[self._tested.rows] = until[-1]

        known = self._shown.rows
        columns = np.flatnonzero(shown.any(axis=0))
        columns = columns[~np.isin(self._tested.rows[columns], known, assume_unique=True)]
        found = numbers[np.argmax(shown[:, columns], axis=0)]
        self._shown.add(self._tested.rows[columns], found, self._seen, self._last)
        columns = self._tested.columns_of(self._shown.rows)
        correction = self._shown.advance(self._seen.ids, len(rounds), self._last)
        self._this.heads += heads
        windows = noisy[:, columns] + correction
        released = [head for head, is_wanted in zip(heads, wanted.tolist(), strict=True) if is_wanted]
        return self._shown.released(numbers[wanted], windows[wanted], shown[:, columns][wanted], released)

    def _note(self, hits: Hits) -> None:
        """Remember what the places of this block held."""
        size = len(self._seen)
        pairs, places = np.unique(hits.rounds * size + hits.rows, return_inverse=True)
        times = np.bincount(places, hits.times, minlength=len(pairs)).astype(np.int64)
        self._this.hits.append(np.column_stack([pairs // max(1, size), pairs % max(1, size), times]))

    def _begin_tests(self, rows: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Test the labels that are hit for the first time in this block; returns from which step on, for each."""
        late = self._tested.columns_of(rows) < 0
        fresh, places = np.unique(rows[late], return_index=True)
        self._tested.add(fresh, self._seen.ids, _Block(self._this.heads))
        return steps[late][places]


class _Shown:
    """The labels that a block has shown or carries on, and what makes a window of their cells in it.

    They stand in the order of the rounds of the block that showed them first, then by name; all that are carried on
    count as found in its first round.
    """

    def __init__(self, mechanism: WindowMechanism, noise: KeyedNoise, first: bool) -> None:
        """`first`: there is no block before this one."""
        self._visible = VisibleLabels()
        self._order: NDArray[np.int64] | None = None  # by round and name, if they do not stand so
        self._mechanism, self._noise = mechanism, noise
        self._late = None if first else _Cells(mechanism, noise)  # the last block's cells, W rounds late
        self._ends = np.empty(0, np.int32)  # the last block's cells at its end
        self._place = 0

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of these labels."""
        return self._visible.rows

    @property
    def found(self) -> NDArray[np.int64]:
        """The round of the block that showed each of them first."""
        return self._visible.first_shown

    def released(
        self,
        rounds: NDArray[np.int64],
        windows: NDArray[np.int32],
        shown: NDArray[np.bool_],
        heads: Sequence[bytes],
    ) -> ReleasedBlock:
        """These windows of these labels, of which `shown` are released."""
        labels, order = self._visible.labels, self._order
        if order is not None:
            labels, windows, shown = labels[order], windows.take(order, axis=1), shown[:, order]
        return ReleasedBlock.of_shown(rounds, windows, labels, heads, shown)

    def skip_to(self, place: int, last: _Block) -> None:
        """Go there while there are no labels."""
        self._place = place
        if self._late is not None:
            self._late.skip_to(place, last.heads)

    def add(
        self,
        rows: NDArray[np.int64],
        found: NDArray[np.int64],
        seen: SeenLabels,
        last: _Block,
        ends: NDArray[np.int32] | None = None,
    ) -> None:
        """Add labels; `ends`: their cells at the end of the last block, if they are known."""
        if not len(rows):
            return
        known = len(self.rows)
        self._visible.include(rows, found, seen.texts)
        rows = self.rows[known:]
        if (
            known and self.found[known] == self.found[known - 1]
        ):  # in the block's first round, as those carried on
            texts = self._visible.labels
            places = sorted(range(len(texts)), key=lambda place: (self.found[place], texts[place]))
            self._order = np.array(places, np.int64)
        elif self._order is not None:
            self._order = np.concatenate([self._order, np.arange(known, len(self.rows))])
        if self._late is not None:
            self._late.add(rows, seen.ids, last)
            if ends is None:
                at_end = _Cells(self._mechanism, self._noise)
                at_end.skip_to(len(last.heads), last.heads)
                at_end.add(rows, seen.ids, last)
                ends = at_end.current()
            self._ends = np.concatenate([self._ends, ends])

    def advance(self, ids: NDArray[np.uint64], rounds: int, last: _Block) -> NDArray[np.int32]:
        """What to add to the cells of the next `rounds` places of this block, of shape (rounds, labels)."""
        place, self._place = self._place, self._place + rounds
        if self._late is None:
            return np.zeros((rounds, len(self.rows)), np.int32)
        heads = last.heads[place : self._place]
        return self._ends - self._late.advance(ids, heads, last.within(place + 1, self._place))

    def correction(self) -> NDArray[np.int32]:
        """What to add to the cells of the last place."""
        return np.zeros(len(self.rows), np.int32) if self._late is None else self._ends - self._late.current()


def _heads(cells: NDArray[np.int64]) -> list[bytes]:
    packed, size = cells.astype("<i8").tobytes(), len(EMPTY_HISTORY)
    return [packed[start : start + size] for start in range(0, len(packed), size)]
