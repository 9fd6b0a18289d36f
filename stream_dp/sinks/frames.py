"""The frames topic as the sink of a worker that only sequences: it hands its rounds on to the shards."""

import logging
from collections.abc import Iterator
from itertools import groupby

import msgspec
from aiokafka import AIOKafkaProducer

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journal import EpochOpened
from stream_dp.epochs.last_release import other_than_published
from stream_dp.epochs.published import anything_published, sharding_now
from stream_dp.kafka import log
from stream_dp.pipeline.coordinator import AnyPipeline
from stream_dp.pipeline.frames import Frame, encode_frame
from stream_dp.pipeline.partition_frames import decode_of_shard
from stream_dp.pipeline.pipeline import Output, Pipeline
from stream_dp.pipeline.sequencer import Sequencer
from stream_dp.sinks.framing import rounds_per_batch
from stream_dp.sinks.sending import Addressed, InFlight, batches
from stream_dp.store.checkpoints import Checkpoint, Sharding

logger = logging.getLogger(__name__)

_LAST_FRAMES = 16


class FramesSink:
    """The frames topic, a partition for each shard.  See `Sink`.

    Frames are compared by what the head of the hash chain commits to: all labels of all rounds, whatever their ranges.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._published: dict[int, tuple[bytes, int]] = {}  # the chain's head and the time of each round
        self._last = [0] * settings.shards  # the last whole round in each partition
        self._ends: list[int] = []
        self._rounds = 1  # after whose multiples a batch ends
        self._open: list[Frame] = []
        self._releases_offset = 0

    def holds_anything(self) -> bool:
        """See `Sink.holds_anything`."""
        return anything_published(self._settings) or any(sharding_now(self._settings).frames)

    def holds(self, opened: EpochOpened) -> bool:
        """See `Sink.holds`."""
        nonce = opened.epoch.nonce
        return any(
            frame.nonce == nonce for shard in range(self._settings.shards) for frame in self._frames(shard, 0)
        )

    def published_since(self, checkpoint: Checkpoint) -> int:
        """See `Sink.published_since`."""
        assert checkpoint.sharding is not None
        self._published, self._last = {}, [0] * self._settings.shards
        for shard, start in enumerate(checkpoint.sharding.frames):
            begun, parts = 0, set[int]()
            for frame in self._frames(shard, start):
                if frame.epoch < checkpoint.epoch.number:
                    continue  # from a sequencer of a closed epoch that slept
                self._compare(frame, checkpoint)
                if frame.last > self._last[shard]:
                    parts = {*parts, frame.part} if frame.first == begun else {frame.part}
                    begun = frame.first
                    self._last[shard] = frame.last if len(parts) == frame.parts else self._last[shard]
        return self.not_given_again

    def _compare(self, frame: Frame, checkpoint: Checkpoint) -> None:
        """Take note of the rounds of a frame, which must be those of the checkpoint's epoch, and always the same."""
        changed = frame.epoch > checkpoint.epoch.number or frame.shards != self._settings.shards
        rounds = enumerate(zip(frame.histories(), frame.timestamps, strict=True), frame.first)
        for round_number, told in rounds:
            if round_number > checkpoint.state.round:
                changed |= self._published.setdefault(round_number, told) != told
        if changed:
            raise EpochRefused(
                f"the topic {self._settings.frames!r} holds rounds {frame.first} to {frame.last} in a form that does "
                "not fit the others: another producer wrote to this topic; nothing is sent"
            )

    def pipeline(self, checkpoint: Checkpoint, key: bytes, earlier: Pipeline | None = None) -> AnyPipeline:
        """See `Sink.pipeline`; a sequencer keeps no labels."""
        assert checkpoint.sharding is not None
        self._rounds = rounds_per_batch(checkpoint.epoch.privacy["rounds"], self._settings.batch_rounds)
        self._ends, self._releases_offset = list(checkpoint.sharding.frames), checkpoint.releases_offset
        place = checkpoint.position, checkpoint.state, checkpoint.pairs
        return Sequencer(checkpoint.epoch, key, self._settings.events, self._settings.shards, *place)

    def check_state(self, checkpoint: Checkpoint, pipeline: AnyPipeline) -> None:
        """See `Sink.check_state`: the head of the hash chain and the time are those of the last round handed out."""
        assert checkpoint.sharding is not None
        last, told = checkpoint.state.round, (checkpoint.state.history, checkpoint.position.closed)
        found = False
        for shard, start in enumerate(checkpoint.sharding.frames):
            for frame in self._frames(shard, max(0, start - _LAST_FRAMES)):
                if frame.nonce != checkpoint.epoch.nonce or not frame.first <= last <= frame.last:
                    continue
                found = True
                if (frame.head(last), frame.timestamps[last - frame.first]) != told:
                    raise other_than_published(last)
        if last and not found:
            logger.warning(
                "the state of round %d was not compared with a frame: the topic %r no longer holds it",
                last,
                self._settings.frames,
            )

    @property
    def not_given_again(self) -> int:
        """See `Sink.not_given_again`."""
        return max(self._published, default=0)

    def missing(self, output: Output) -> Output:
        """See `Sink.missing`."""
        missing = Output(dead_letters=output.dead_letters, records=output.records)
        for frame in output.frames:
            rounds = enumerate(zip(frame.histories(), frame.timestamps, strict=True), frame.first)
            for round_number, told in rounds:
                if self._published.get(round_number, told) != told:
                    raise EpochRefused(
                        f"round {round_number} was handed to the shards with other content than the events topic and "
                        "the key give now: the log, the key or the frames were changed; nothing is sent"
                    )
            if frame.last > self._last[frame.shard]:
                missing.frames.append(frame.after(self._last[frame.shard]))
        reached = max((frame.last for frame in output.frames), default=0)
        self._published = {place: told for place, told in self._published.items() if place > reached}
        return missing

    @property
    def holds_back(self) -> bool:
        """See `Sink.holds_back`."""
        return bool(self._open)

    def addressed(
        self, output: Output, reached: int, ends: bool, producer: AIOKafkaProducer
    ) -> Iterator[Addressed]:
        """See `Sink.addressed`.

        Frames are as long as their labels are, so their ends say nothing to the shards but where a batch has ended.
        """
        self._open += output.frames
        if not ends and reached % self._rounds:
            return
        by_shard = sorted(self._open, key=lambda frame: frame.shard)  # stable: the rounds stay in order
        self._open = []
        for shard, frames in groupby(by_shard, key=lambda frame: frame.shard):
            key = f"{self._settings.stream}/{shard}".encode()
            *others, last = frames
            marked = [*(msgspec.structs.replace(frame, ends=False) for frame in others), last]
            for batch in batches(producer, key, map(encode_frame, marked)):
                yield Addressed(self._settings.frames, shard, batch)

    def checkpoint(self, pipeline: AnyPipeline, key_check: str, sent: InFlight) -> Checkpoint:
        """See `Sink.checkpoint`."""
        frames = self._settings.frames
        ends = [sent.end(frames, shard, least) for shard, least in enumerate(self._ends)]
        return Checkpoint(
            pipeline.epoch,
            pipeline.state(),
            pipeline.position,
            self._releases_offset,
            key_check,
            pipeline.intake.pairs,
            Sharding(self._settings.shards, ends),
        )

    def _frames(self, shard: int, start: int) -> Iterator[Frame]:
        """The worker's own frames in a partition, from an offset on."""
        kafka, topic = self._settings.kafka_address, self._settings.frames
        held = log.offsets(kafka, topic, shard)
        if held.end < start:
            raise log.LogRefused(
                f"the topic {topic!r} has lost frames that were sent: it was truncated or re-created; write them "
                "again with `stream-dp rebuild --replace`, or restore the topic, or open a new epoch, which is "
                "charged, with --new-epoch"
            )
        for record in log.read(kafka, topic, max(start, held.first), held.end, shard):
            frame = decode_of_shard(record.value)
            if isinstance(frame, Frame):  # those of members of the intake are compared by the shards
                yield frame
