"""The histogram of labels that are found at tests: labels that are not shown cost a text and a count.

What it does in a test round, in this order: count what the round admits; keep the tweaks of the test, which follow from
the head of the chain after the round; let the labels that are shown already take their ordinary step; measure every
other label that has enough events (counters/discovery.py); and show those that reach the threshold, with the measured
count.  Their later events enter a counter that begins with zeros.

Like the other histograms it reads no clock and no socket, and releases the same however a stream is cut into blocks.
"""

from collections.abc import Iterator, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.discovery import KNOWN, DiscoveryMechanism
from stream_dp.counters.discovery_noise import DiscoveryNoise
from stream_dp.counters.protocol import CounterState, Hits, grown
from stream_dp.engine.admitted import Admitted, joined
from stream_dp.engine.histogram import HistogramState, HorizonReached, ShownLabels
from stream_dp.engine.label_texts import LabelTexts
from stream_dp.engine.noisy_counts import add_counts
from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.engine.seen_labels import SeenLabels
from stream_dp.engine.visible_labels import VisibleLabels
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise

_MOST_ROUNDS = 1 << 12
_CELLS_AT_ONCE = 1 << 17
_NONE = np.empty(0, np.int64)


class DiscoveryHistogram:
    """For its methods see `RunningHistogram`.

    A label has a row, and if it is shown a column.  Its count is its true count until it is found, and from then on
    what was measured and its later true count.  `_counts` has the counts of rows that are not shown, and -1 - c of one
    that is shown in column c; `_shown` has the counts of columns.
    """

    def __init__(
        self,
        mechanism: DiscoveryMechanism,
        noise: KeyedNoise,
        state: HistogramState | None = None,
        earlier: "DiscoveryHistogram | None" = None,
    ) -> None:
        self.mechanism = mechanism
        self._noise = noise
        self._tests = DiscoveryNoise(mechanism, noise)
        self._counter = mechanism.counts.counter(noise)
        self._history = EMPTY_HISTORY
        self._seen = SeenLabels(noise)
        self._counts = np.empty(0, np.int32)
        self._shown = np.empty(0, np.int32)
        self._rows = np.empty(0, np.int64)  # of each column
        self._found = np.empty(0, np.int32)
        self._ids = np.empty((0, 2), np.uint64)  # of the columns
        self._visible = VisibleLabels()
        if state is not None:
            if earlier is not None and earlier._begins(state.labels, noise):
                self._seen = earlier._seen
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

    def blocks(
        self,
        rounds: Sequence[Admitted],
        histories: Sequence[bytes] | None = None,
        wanted: NDArray[np.bool_] | None = None,
    ) -> Iterator[ReleasedBlock]:
        """See `RunningHistogram.blocks`.  A test round is a block of its own."""
        if len(rounds) > self.rounds_left:
            raise HorizonReached(
                f"{len(rounds)} more rounds were asked for but only {self.rounds_left} of the horizon of "
                f"{self.mechanism.horizon} are left"
            )
        heads = (
            self._noise.extend_histories(self._history, self.round + 1, rounds)
            if histories is None
            else histories
        )
        if wanted is None:
            wanted = np.ones(len(rounds), bool)
        start = 0
        while start < len(rounds):
            end = start + self._rounds_at_once(wanted[start : start + _MOST_ROUNDS])
            yield self._block(rounds[start:end], heads[start:end], wanted[start:end])
            start = end

    def last_release(self) -> ReleasedBlock:
        """See `RunningHistogram.last_release`."""
        noisy = self._counter.current() + self._shown
        return self._release(np.array([self.round]), noisy[np.newaxis], [self._history])

    def state(self) -> HistogramState:
        """See `RunningHistogram.state`."""
        labels, counter = len(self._seen), self._counter.state()
        everyone = CounterState(self.round, [], self._tests.state())
        shown = ShownLabels(self._rows, self._found, self._shown, counter)
        return HistogramState(self._history, self._seen.texts, self._counts[:labels], everyone, shown=shown)

    def _begins(self, labels: Sequence[str], noise: KeyedNoise) -> bool:
        same_ids = np.array_equal(self._noise.label_ids([b""]), noise.label_ids([b""]))
        return same_ids and self._seen.texts.begins(LabelTexts.of(labels))

    def _rounds_at_once(self, wanted: NDArray[np.bool_]) -> int:
        """How many of the next rounds to count at once: up to a test, or one that is."""
        next_test = self._next_test()
        if next_test == self.round + 1:
            return 1
        cells = np.cumsum(wanted) * max(1, len(self._rows))
        fits = max(1, int(cells.searchsorted(_CELLS_AT_ONCE, "right")))
        return min(fits, next_test - 1 - self.round)

    def _next_test(self) -> int:
        """Its round, or the one after the horizon."""
        tests = self.mechanism.tests
        return tests[self._tests.tests] if self._tests.tests < len(tests) else self.mechanism.horizon + 1

    def _block(
        self, rounds: Sequence[Admitted], heads: Sequence[bytes], wanted: NDArray[np.bool_]
    ) -> ReleasedBlock:
        first, is_test = self.round + 1, self._next_test() == self.round + 1
        numbers = np.arange(first, first + len(rounds))[wanted]
        wanted_rounds = None if len(numbers) == len(rounds) else numbers
        admitted, steps, times = joined(rounds)
        rows = self._seen.rows_of(admitted)
        self._counts = grown(self._counts, len(self._seen))
        hits, marks = Hits(first + steps, rows, times), self._counts[rows]
        shown = hits.among(-1 - np.minimum(marks, 0).astype(np.int64))
        noisy = self._counter.advance(self._ids, heads, shown, _NONE, wanted_rounds)
        add_counts(noisy, numbers, self._shown, shown)
        shown.add_to(self._shown)
        hits.among(np.where(marks < 0, -1, rows)).add_to(self._counts)
        self._history = heads[-1]
        if is_test:
            self._tests.begin_test(first, self._history)
            measured = self._test()
            noisy = np.concatenate([noisy, np.tile(measured, (len(numbers), 1))], axis=1)
        else:
            self._tests.follow(self._seen.ids)
        return self._release(numbers, noisy, list(compress(heads, wanted)))

    def _test(self) -> NDArray[np.int32]:
        """Find labels in this round; returns what was measured of those that are found."""
        labels, test = len(self._seen), self._tests.tests
        tau, least = int(self.mechanism.test_taus[test - 1]), self.mechanism.at_least
        rows = self._tests.could_reach(self._seen.ids, self._counts[:labels], least, tau)
        measured = self._counts[rows] + self._tests.rounded(self._seen.ids[rows])
        rows, measured = rows[measured >= tau], measured[measured >= tau]
        order = self._by_text(rows)
        rows, measured = rows[order], measured[order]
        self._show(rows, test, measured)
        return measured

    def _show(self, rows: NDArray[np.int64], test: int, counts: NDArray[np.int32]) -> None:
        """Labels that are shown from now on, with these counts."""
        self._counter.begin(len(rows))
        self._add_columns(rows, np.full(len(rows), test, np.int32), counts)

    def _add_columns(
        self, rows: NDArray[np.int64], tests: NDArray[np.int32], counts: NDArray[np.int32]
    ) -> None:
        self._counts[rows] = -1 - np.arange(len(self._rows), len(self._rows) + len(rows))
        self._shown = np.concatenate([self._shown, counts])
        self._rows = np.concatenate([self._rows, rows])
        self._found = np.concatenate([self._found, tests])
        self._ids = self._seen.ids[self._rows]
        self._visible.include(rows, tests, self._seen.texts)

    def _restore(self, state: HistogramState) -> None:
        self._seen.extend(state.labels, len(self._seen))
        self._counts = grown(self._counts, len(self._seen))
        self._counts[: len(state.labels)] = state.counts
        self._history = state.history
        if state.shown is None:
            known = np.flatnonzero(state.shown_since) if state.shown_since is not None else _NONE
            known = known[self._by_text(known)]
            self._show(known, KNOWN, self._counts[known])
            return
        self._tests.restore(state.counter.tweaks)
        self._add_columns(state.shown.rows, state.shown.tests, state.shown.counts)
        self._counter.restore(state.shown.counter, len(state.shown.rows))

    def _release(
        self, rounds: NDArray[np.int64], noisy: NDArray[np.int32], heads: Sequence[bytes]
    ) -> ReleasedBlock:
        """The noisy table of `rounds`, of which all is shown: columns are in the order in which labels were found."""
        sizes, shown = np.full(len(rounds), len(self._rows)), self._visible
        return ReleasedBlock(rounds, sizes, noisy, shown.labels, heads, found=self._found)

    def _by_text(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """In which order to take these rows so that their labels ascend."""
        texts = self._seen.texts.take(rows)  # the order of UTF-8 is that of code points
        return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
