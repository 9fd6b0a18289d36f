"""The unknown-domain running histogram: every round, the whole histogram of what is above the threshold.

Labels become known when a count of theirs is admitted.  Nothing here reads a clock, a file or a socket: the
releases are a function of the noise key, the epoch's nonce and the events, and do not depend on how a stream
is cut into blocks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import CalibratedCounter, Column, CounterState, Hits, grown
from stream_dp.engine.admitted import Admitted, joined
from stream_dp.engine.cap_cells import CellState
from stream_dp.engine.label_texts import LabelTexts
from stream_dp.engine.noisy_counts import add_counts
from stream_dp.engine.released_block import ReleasedBlock, Snapshot
from stream_dp.engine.seen_labels import SeenLabels
from stream_dp.engine.visible_labels import VisibleLabels
from stream_dp.errors import StreamDpError
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise

KNOWN = -1
"""The round that showed a label first which was known before the epoch began."""

_MOST_ROUNDS = 1 << 12
_CELLS_AT_ONCE = 1 << 17  # rounds x labels of a block: its matrices stay in the second-level cache


class HorizonReached(StreamDpError):
    """More rounds were asked for than the epoch has."""


@dataclass
class ShownLabels:
    """Where labels are found at tests, those that are shown: their rows in the order in which they were found.

    `tests` has the test that found each of them, 0 for a known label, `counts` what was measured and has come since,
    and `counter` is their counter.
    """

    rows: NDArray[np.int64]
    tests: NDArray[np.int32]
    counts: NDArray[np.int32]
    counter: CounterState


@dataclass
class HistogramState:
    """Everything that `RunningHistogram` must remember; `counts` is int32 of shape (len(labels),).

    `shown_since`, int32 as `counts`, is the round that showed each label first, 0 before that, and `KNOWN` for those
    that every round shows; None where the labels are none, or are forgotten.
    Where labels are forgotten, `labels` only grows while `labels_version` stays the same, and `recent` is what is
    remembered of the last rounds: columns of any length, which only grow while their version stays the same.
    `shown` is there where labels are found at tests; `counter` then has the tweaks of the tests, and `counts` is -1 - c
    for the label in place c of `shown`.  `cells` is there if cells are counted beside the labels.
    """

    history: bytes
    labels: Sequence[str]
    counts: NDArray[np.int32]
    counter: CounterState
    shown_since: NDArray[np.int32] | None = None
    recent: Sequence[Column] = ()
    labels_version: int = 0
    shown: ShownLabels | None = None
    cells: CellState | None = None

    @classmethod
    def before_any_round(cls, labels: Sequence[str] = (), shown: bool = False) -> "HistogramState":
        """The state that an epoch begins with; `labels`, where given, are known from the start without a count.

        `shown`: every round shows them, whatever their noisy counts.
        """
        since = np.full(len(labels), KNOWN if shown else 0, np.int32)
        counts = np.zeros(len(labels), np.int32)
        return cls(EMPTY_HISTORY, LabelTexts(labels), counts, CounterState(), shown_since=since)

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self.counter.round


def rounds_at_once(known: int, rounds: Sequence[Admitted], wanted: NDArray[np.bool_] | None = None) -> int:
    """How many of `rounds`, at least one, to count at once, where `known` labels have a column before them."""
    rows = np.arange(1, len(rounds) + 1) if wanted is None else 1 + np.cumsum(wanted[: len(rounds)])
    rows = rows[: rows.searchsorted(_CELLS_AT_ONCE // max(1, known), "right")]
    cells = rows * (known + np.cumsum([len(admitted) for admitted in rounds[: len(rows)]]))
    return max(1, int(cells.searchsorted(_CELLS_AT_ONCE, "right")))


class RunningHistogram:
    """Feed it what each round admitted; it returns the thresholded histogram after each.

    What a round admits is all that the privacy unit allows to be counted: that has been decided before (bounding.py).

    `mechanism`: the calibrated counter; `noise`: the noise of this epoch.
    """

    def __init__(
        self,
        mechanism: CalibratedCounter,
        noise: KeyedNoise,
        state: HistogramState | None = None,
        earlier: "RunningHistogram | None" = None,
    ) -> None:
        """`earlier`: one whose labels are taken over where `state` begins with them; it is of no more use."""
        self.mechanism = mechanism
        self._noise = noise
        self._counter = mechanism.counter(noise)
        self._history = EMPTY_HISTORY
        self._seen = SeenLabels(noise)
        self._counts = np.empty(0, np.int32)
        self._visible = VisibleLabels()
        self._shown_since = np.empty(0, np.int32)
        if state is not None and earlier is not None and earlier._begins(state.labels, noise):
            self._seen = earlier._seen
        if state is not None:
            self._restore(state)

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self._counter.round

    @property
    def history(self) -> bytes:
        """The head of the hash chain over everything admitted so far."""
        return self._history

    @property
    def rounds_left(self) -> int:
        """Rounds that the epoch still has room for."""
        return self.mechanism.horizon - self.round

    def block_rounds(self, rounds: Sequence[Admitted], wanted: NDArray[np.bool_] | None = None) -> int:
        """How many of `rounds`, at least one, to observe at once: the matrices of those `wanted` fit into the cache.

        Every label counts as a new one, so this is known before any of them is looked up.
        """
        return rounds_at_once(self._counter.labels, rounds, wanted)

    def observe(self, rounds: Sequence[Admitted]) -> list[Snapshot]:
        """Close `rounds`, whatever their number, and return their snapshots."""
        return [snapshot for block in self.blocks(rounds) for snapshot in block.snapshots()]

    def blocks(
        self,
        rounds: Sequence[Admitted],
        histories: Sequence[bytes] | None = None,
        wanted: NDArray[np.bool_] | None = None,
    ) -> Iterator[ReleasedBlock]:
        """Close `rounds`, whatever their number, a block at a time.

        `histories`: the heads of the hash chain after each of them, if the log has several partitions.  `wanted`: which
        of them to release, if not all are.  Raises as `observe_block` does.
        """
        self._check_room(len(rounds))
        heads = self._histories(rounds) if histories is None else histories
        start = 0
        while start < len(rounds):
            part = slice(start, start + _MOST_ROUNDS)
            size = self.block_rounds(rounds[part], None if wanted is None else wanted[part])
            part = slice(start, start + size)
            yield self.observe_block(rounds[part], heads[part], None if wanted is None else wanted[part])
            start += size

    def observe_block(
        self,
        rounds: Sequence[Admitted],
        histories: Sequence[bytes] | None = None,
        wanted: NDArray[np.bool_] | None = None,
    ) -> ReleasedBlock:
        """Close `rounds`, all as one matrix.  A round that admitted nothing is a round like any other.

        `histories` and `wanted` are those of `blocks`.
        Raises `HorizonReached` before anything is changed when the epoch has no room for all of them.
        """
        self._check_room(len(rounds))
        first, known = self.round + 1, len(self._seen)
        heads = self._histories(rounds) if histories is None else histories
        admitted, steps, times = joined(rounds)
        rows = self._seen.rows_of(admitted)
        self._make_room()

        labels = len(self._seen)
        first_seen = np.zeros(labels - known, np.int64)
        late = np.flatnonzero(rows >= known)[::-1]  # backwards: the first round is written last, and stays
        first_seen[rows[late] - known] = first + steps[late]
        numbers = np.arange(first, first + len(rounds))
        if wanted is not None:
            numbers = numbers[wanted]
        hits = Hits(first + steps, rows, times)
        in_one_sweep = len(numbers) == len(rounds)
        noisy = self._counter.advance(
            self._seen.ids, heads, hits, first_seen, None if in_one_sweep else numbers
        )
        add_counts(noisy, numbers, self._counts[:labels], hits)
        hits.add_to(self._counts)
        if heads:
            self._history = heads[-1]
        tau = self.mechanism.taus(numbers)
        self._hide_early(noisy, tau, numbers, known, first_seen)
        return self._release(numbers, noisy, tau, heads if wanted is None else list(compress(heads, wanted)))

    def last_release(self) -> ReleasedBlock:
        """What the last round releases, or would if every round were released: it follows from the state alone."""
        numbers = np.array([self.round])
        noisy = self._counter.current() + self._counts[: len(self._seen)]
        return self._release(numbers, noisy[np.newaxis], self.mechanism.taus(numbers), [self._history])

    def state(self) -> HistogramState:
        """What a checkpoint keeps.  The arrays are the live ones: copy or write them before the next event."""
        labels = len(self._seen)
        counts, since = self._counts[:labels], self._shown_since[:labels]
        return HistogramState(self._history, self._seen.texts, counts, self._counter.state(), since)

    def _begins(self, labels: Sequence[str], noise: KeyedNoise) -> bool:
        """Whether the labels that are known here are the first ones of these, and their ids those of this noise."""
        same_ids = np.array_equal(self._noise.label_ids([b""]), noise.label_ids([b""]))
        return same_ids and self._seen.texts.begins(LabelTexts.of(labels))

    def _restore(self, state: HistogramState) -> None:
        self._seen.extend(state.labels, len(self._seen))
        self._make_room()
        self._counts[: len(state.labels)] = state.counts
        self._history = state.history
        assert state.shown_since is not None or not len(state.labels), (
            "labels come with the rounds that showed them"
        )
        if state.shown_since is not None:
            self._shown_since[: len(state.labels)] = state.shown_since
            shown = np.flatnonzero(state.shown_since)
            self._visible.include(shown, state.shown_since[shown], self._seen.texts)
        self._counter.restore(state.counter, len(state.labels))

    def _make_room(self) -> None:
        """For what is kept of each label that has been seen by now."""
        self._counts = grown(self._counts, len(self._seen))
        self._shown_since = grown(self._shown_since, len(self._seen))

    def _check_room(self, rounds: int) -> None:
        if rounds > self.rounds_left:
            raise HorizonReached(
                f"{rounds} more rounds were asked for but only {self.rounds_left} of the horizon of "
                f"{self.mechanism.horizon} are left"
            )

    def _histories(self, rounds: Sequence[Admitted]) -> list[bytes]:
        """The heads of the hash chain after each of the rounds to come."""
        return self._noise.extend_histories(self._history, self.round + 1, rounds)

    def _hide_early(
        self,
        noisy: NDArray[np.int32],
        tau: NDArray[np.int32],
        rounds: NDArray[np.int64],
        known: int,
        first_seen: NDArray[np.int64],
    ) -> None:
        """Keep the labels from row `known` on below `tau` in the rounds before they were first seen."""
        if not len(rounds) or not len(first_seen):
            return
        late = np.flatnonzero(first_seen > rounds[0])
        early = rounds[:, np.newaxis] < first_seen[late]
        noisy[:, known + late] = np.where(early, tau[:, np.newaxis] - 1, noisy[:, known + late])

    def _show(self, rows: NDArray[np.int64], reached: NDArray[np.int64]) -> None:
        """Remember that labels in `rows` have reached their threshold in rounds `reached`."""
        new = self._shown_since[rows] == 0
        rows, reached = rows[new], reached[new]
        self._shown_since[rows] = reached
        self._visible.include(rows, reached, self._seen.texts)

    def _release(
        self,
        rounds: NDArray[np.int64],
        noisy: NDArray[np.int32],
        tau: NDArray[np.int32],
        heads: Sequence[bytes],
    ) -> ReleasedBlock:
        """What the noisy table of `rounds` shows."""
        visible = self._visible
        if len(visible.rows) < noisy.shape[1]:
            reaches = noisy >= tau[:, np.newaxis]
            reaching = np.flatnonzero(np.any(reaches, axis=0))
            if len(reaching):
                self._show(reaching, rounds[np.argmax(reaches[:, reaching], axis=0)])
        counts = noisy.take(visible.rows, axis=1)
        if self.mechanism.shown == "kept":
            sizes = visible.first_shown.searchsorted(rounds, "right")
            return ReleasedBlock(rounds, sizes, counts, visible.labels, heads)
        shown = (counts >= tau[:, np.newaxis]) | (visible.first_shown == KNOWN)
        return ReleasedBlock.of_shown(rounds, counts, visible.labels, heads, shown)
