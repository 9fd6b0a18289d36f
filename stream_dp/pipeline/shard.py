"""One shard's work without its topics: frames in, its part of every round out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress

from stream_dp.engine.admitted import Admitted
from stream_dp.engine.counting import histogram_of
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.known_labels import NOTHING_KNOWN, KnownLabels
from stream_dp.engine.window_histogram import WindowHistogram
from stream_dp.pipeline.frames import SEAL_VERSION, Frame, FrameRefused, FramesLost, shards_of
from stream_dp.pipeline.intake import Position
from stream_dp.pipeline.partition_frames import FramesOfPartitions, PartitionFrame
from stream_dp.pipeline.pipeline import ReleasedPart, Releaser


class Shard:
    """The running histogram of the labels that fall to shard `number` of `shards`."""

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        number: int,
        shards: int,
        position: Position | None = None,
        state: HistogramState | None = None,
        known: KnownLabels = NOTHING_KNOWN,
    ) -> None:
        """`position` is the place in the shard's partition of the frames topic; default: its beginning.

        `known`: see `Pipeline`; those of all shards.
        """
        self.epoch = epoch
        self.number, self.shards = number, shards
        self._position = position or Position(0)
        noise = epoch.noise(key)
        self._noise = noise
        if state is None:
            state = HistogramState.before_any_round(self._mine(known.labels), shown=True)
        self.histogram = histogram_of(epoch.mechanism, noise, state)
        self._releaser = Releaser(epoch, key, self._position.released, known, (number, shards))
        self._parts: dict[int, Frame] = {}
        self._of_partitions = FramesOfPartitions(noise, epoch.mechanism.chain_rounds)

    def begin_block(self, number: int, carried: Sequence[str]) -> None:
        """See `Pipeline.begin_block`; `carried`: those of all shards."""
        if not isinstance(self.histogram, WindowHistogram):
            raise ValueError("only windows can begin with a later block")
        self.histogram.begin_block(number, self._mine(carried))

    def _mine(self, labels: Sequence[str]) -> list[str]:
        owners = shards_of(self._noise.label_ids(label.encode() for label in labels), self.shards)
        return list(compress(labels, owners == self.number))

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self.histogram.round

    @property
    def position(self) -> Position:
        """How far its partition of the frames topic has been counted: nothing before it is needed any more."""
        return replace(self._position, released=self._releaser.released)

    def last_release(self, previous: int | None) -> list[bytes]:
        """See `Pipeline.last_release`."""
        return self._releaser.again(self.histogram, self.position.closed, previous)

    def process(self, frames: Iterable[tuple[int, Frame | PartitionFrame]]) -> Iterator[list[ReleasedPart]]:
        """Close the rounds of this epoch's frames, each given with its offset, in the order of their partition.

        Gives the releases a block of rounds at a time; the shard is in one piece again when all blocks were taken.
        Rounds that are closed already are skipped, as are frames of older epochs.
        Raises `FrameRefused` at a frame that does not go on where this shard is; what came before it is lost, so the
        shard must be made anew from its checkpoint.
        """
        rounds: list[Admitted] = []
        histories: list[bytes] = []
        timestamps: list[int] = []
        reached, history, before = self.round, self.histogram.history, self._position.closed
        for offset, frame in frames:
            if not self._is_of_epoch(frame):
                rest = None
            elif isinstance(frame, PartitionFrame):
                rest = None
                if frame.round > reached:
                    self._of_partitions.add(offset, frame)
            else:
                rest = self._rest(frame, reached, history)
            if rest is not None:
                rounds += rest.admitted()
                histories += rest.histories()
                timestamps += rest.timestamps
                reached, history = rest.last, histories[-1]
                self._of_partitions.forget(reached)
            if not self._parts:  # else a checkpoint must not pass over the parts that came before
                waiting = self._of_partitions.first_offset
                closed = timestamps[-1] if timestamps else before
                self._position = Position(offset + 1 if waiting is None else waiting, closed=closed)
        yield from self._releaser.release(self.histogram, rounds, timestamps, before, histories)

    def _is_of_epoch(self, frame: Frame | PartitionFrame) -> bool:
        """Whether a frame belongs to this shard's epoch; False for one of an older epoch, whose writer slept.

        Raises `FrameRefused` for any other.
        """
        if frame.epoch < self.epoch.number:
            return False
        if frame.epoch > self.epoch.number or frame.nonce != self.epoch.nonce:
            raise FrameRefused(
                f"the frames topic holds frames of another epoch {frame.epoch} than the one that shard {self.number} "
                "counts: start the shard again; if that does not help, the topic was changed"
            )
        if (frame.shard, frame.shards) != (self.number, self.shards):
            raise FrameRefused(
                f"the frames are cut for {frame.shards} shards and this is one of {self.shards}: "
                "give sequencer and shards the same setting shards"
            )
        return True

    def _rest(self, frame: Frame, reached: int, history: bytes) -> Frame | None:
        """What `frame` says beyond round `reached`, whose head of the hash chain is `history`; None if nothing."""
        if frame.last <= reached:
            return None
        if frame.first > reached + 1:
            raise FramesLost(
                f"the frames of shard {self.number} go from round {reached} to round {frame.first}: frames were lost; "
                "restore the frames topic, or open a new epoch, which is charged, with --new-epoch"
            )
        if frame.head(reached) != history:
            raise FrameRefused(
                f"the frames of shard {self.number} do not continue where its round {reached} ended: another log was "
                "sequenced, or the frames topic was changed; nothing is sent"
            )
        rest = frame.after(reached)
        return self._of_partitions.joined(rest) if frame.v == SEAL_VERSION else self._whole(rest)

    def _whole(self, frame: Frame) -> Frame | None:
        """The frame, put together if its only round comes in parts; None until the last of them has come."""
        if frame.parts == 1:
            self._parts = {}
            return frame
        self._parts[frame.part] = frame
        if len(self._parts) < frame.parts:
            return None
        parts = [self._parts[part] for part in sorted(self._parts)]
        self._parts = {}
        return frame.joined(parts)
