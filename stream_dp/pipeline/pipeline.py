"""From one batch of raw records to releases: decode, bound, count, add noise, encode.  Transport-free.

Every host drives this one pipeline: it reads and writes nothing, and its output is a function of the noise key,
the epoch and the records alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from stream_dp.engine.admitted import Admitted
from stream_dp.engine.cap_cells import CapCells, as_array, cells_of
from stream_dp.engine.counted_histogram import CountedHistogram
from stream_dp.engine.counting import Histogram, histogram_of
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels
from stream_dp.engine.released_block import ReleasedBlock
from stream_dp.engine.round_chain import RoundChain
from stream_dp.engine.window_histogram import WindowHistogram
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.merged_log import LogPart
from stream_dp.pipeline.counted_intake import CountedIntake
from stream_dp.pipeline.intake import Intake, Position
from stream_dp.releases.encoder import ReleaseEncoder

__all__ = ["Output", "Pipeline", "Position", "ReleasedPart"]

MOST_COUNTED = 1 << 30
"""An epoch that has released such a count goes no further, because counts have 32 bits.

What was released decides, so nobody learns more from that.
"""


class ReleasedPart(NamedTuple):
    """One message for the releases topic: part `part` of the release of `round`."""

    round: int
    part: int
    value: bytes


@dataclass
class Output:
    """What one batch gives: the releases of the rounds that it closed, and their records that were no events.

    `records` is how many records the rounds held, events or not, and `heads` the heads of the hash chain after each
    round; both are private.  `blocks`: see `ClosedRounds`.
    """

    releases: list[ReleasedPart] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    records: int = 0
    heads: list[bytes] = field(default_factory=list)
    blocks: dict[int, Position] = field(default_factory=dict)


class Pipeline:
    """The running histogram of an events topic.

    `position`, `state` and `pairs` are what an earlier one had at the end of a round: all of them, or none.
    `earlier`: a pipeline of the same epoch and key, which is used up; what it knows of labels need not be computed.
    `known`: the labels that the epoch shows from its first round on; raises ValueError for any others.
    `counted`: an engine counts the events, and the log is what it has counted.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        position: Position | None = None,
        state: HistogramState | None = None,
        pairs: bytes | bytearray = b"",
        earlier: "Pipeline | None" = None,
        known: KnownLabels = NOTHING_KNOWN,
        counted: bool = False,
    ) -> None:
        if state is None:
            state = HistogramState.before_any_round(known.labels, shown=True)
        if epoch.guarantee.unit == "user" and state.counts.any() and not pairs and not counted:
            raise ValueError("what the users have brought so far is missing: they would all count anew")
        self.epoch = epoch
        same = earlier.histogram if earlier is not None and earlier.epoch == epoch else None
        self.histogram: Histogram = histogram_of(epoch.mechanism, epoch.noise(key), state, same, counted)
        self.intake: Intake | CountedIntake = Intake(epoch, key, topic, position, pairs)
        if isinstance(self.histogram, CountedHistogram):
            self.intake = CountedIntake(epoch, key, position, self.histogram.shown_labels)
        self._chain = RoundChain(epoch.noise(key), epoch.mechanism.chain_rounds, self.histogram.history)
        self._cells = cells_of(epoch.mechanism, epoch.noise(key), state.cells, self.histogram.round)
        self._releaser = Releaser(epoch, key, self.intake.position.released, known, self._cells)

    def begin_block(self, number: int, carried: Sequence[str]) -> None:
        """See `WindowHistogram.begin_block`; `position` is then where that block begins."""
        if not isinstance(self.histogram, WindowHistogram):
            raise ValueError("only windows can begin with a later block")
        self.histogram.begin_block(number, carried)

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self.histogram.round

    @property
    def position(self) -> Position:
        """How far the events topic has been applied, at the end of a round."""
        return replace(self.intake.position, released=self._releaser.released)

    def state(self) -> HistogramState:
        """What a checkpoint keeps of the histogram; see `RunningHistogram.state`."""
        state = self.histogram.state()
        return state if self._cells is None else replace(state, cells=self._cells.state())

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached: the records that follow belong to another epoch."""
        return self.histogram.rounds_left == 0

    def last_release(self, previous: int | None) -> list[bytes]:
        """What the last round releases, from the state alone; `previous` is the round that was released before it."""
        return self._releaser.again(self.histogram, self.position.closed, previous)

    def process(self, log: Sequence[LogPart]) -> Output:
        """Take what comes next in the log and release the rounds that it closes.

        What was taken before is skipped; what lies beyond the horizon is left.
        """
        *_, output = self.steps(log)
        return output

    def steps(self, log: Sequence[LogPart]) -> Iterator[Output]:
        """The same output, which gets more releases with each block of rounds, so that other work may have a turn."""
        before = self.intake.position.closed
        closed = self.intake.process(log, self.histogram.rounds_left, self.round)
        chain, first = self._chain, self.round + 1
        if closed.digests:
            heads = chain.join(first, closed.digests, closed.cells)
        else:
            heads = chain.extend(first, closed.parts, closed.cells)
        if isinstance(self.histogram, CountedHistogram):
            self.histogram.found |= closed.found
        output = Output(
            dead_letters=closed.dead_letters, records=closed.records, heads=heads, blocks=closed.blocks
        )
        yield output
        for parts in self._releaser.release(
            self.histogram, closed.admitted, closed.timestamps, before, heads, closed.cells
        ):
            output.releases += parts
            yield output


class Releaser:
    """Closes rounds in a histogram and encodes what the epoch releases of them.

    `released` is the last round that was released, 0 before any.
    `known` are the labels that the epoch shows from its first round on, and `cells` those that it counts beside labels.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        released: int,
        known: KnownLabels,
        cells: CapCells | None = None,
    ) -> None:
        if known.digest != epoch.known:
            raise ValueError(
                f"these are not the labels that epoch {epoch.number} knows from its beginning on"
            )
        self.released = released
        self._cells = cells
        self._epoch = epoch.number
        self._largest = 0  # of the counts that were released
        self._horizon, self._schedule = epoch.mechanism.horizon, epoch.release_schedule
        self._encoder = ReleaseEncoder(
            epoch.privacy["stream"],
            epoch.number,
            epoch.nonce,
            epoch.mechanism,
            epoch.guarantee,
            epoch.release_tags(key),
            known,
        )

    def release(
        self,
        histogram: Histogram,
        admitted: Sequence[Admitted],
        timestamps: Sequence[int],
        before: int,
        heads: Sequence[bytes],
        counts: Sequence[tuple[int, int]] = (),
    ) -> Iterator[list[ReleasedPart]]:
        """The messages of the rounds that admitted these labels, a block of rounds at a time.

        `timestamps` tell when each round was closed and `before` when the one before them was; `heads`: see
        `RunningHistogram.blocks`; `counts` are what they add to the cells.  Raises `EpochRefused` where a count has
        become too large.
        """
        if self._largest >= MOST_COUNTED:
            raise EpochRefused(
                f"epoch {self._epoch} has released a count of {self._largest:,}, and it cannot go on far beyond "
                f"{MOST_COUNTED:,}: open a new epoch, which is charged, with --new-epoch"
            )
        first = histogram.round + 1
        wanted = self._schedule.wanted(first, timestamps, before, self._horizon)
        cells = None if self._cells is None else self._cells.observe(as_array(counts), heads, wanted)
        for block in histogram.blocks(admitted, heads, wanted):
            if cells is not None:
                mine, cells = np.split(cells, [len(block.rounds)])
                block = replace(block, cap_cells=mine)
            self._see(block)
            yield list(self._parts(block, [timestamps[number - first] for number in block.rounds.tolist()]))

    def again(self, histogram: Histogram, timestamp: int, previous: int | None) -> list[bytes]:
        """The messages of the last round of `histogram`, which was closed at `timestamp`, once more."""
        block = histogram.last_release()
        if self._cells is not None:
            block = replace(block, cap_cells=self._cells.current())
        self._see(block)
        [parts] = self._encoder.encode(block, [timestamp], previous or 0)
        return parts

    def _see(self, block: ReleasedBlock) -> None:
        if block.counts.max(initial=0) >= MOST_COUNTED:
            self._largest = max(self._largest, int(block.counts[block.cells()].max(initial=0)))

    def _parts(self, block: ReleasedBlock, timestamps: Sequence[int]) -> Iterator[ReleasedPart]:
        rounds = block.rounds.tolist()
        encoded = self._encoder.encode(block, timestamps, self.released)
        self.released = rounds[-1] if rounds else self.released
        for number, parts in zip(rounds, encoded, strict=True):
            for part, value in enumerate(parts, 1):
                yield ReleasedPart(number, part, value)
