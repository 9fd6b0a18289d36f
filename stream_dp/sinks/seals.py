"""What a worker writes when a group reads its events: seals to the shards, and to the group how far they are.

Seals are frames without labels (frames.py), and are compared and sent like them.
"""

from collections.abc import Iterator

from aiokafka import AIOKafkaProducer

from stream_dp.config.settings import Settings
from stream_dp.pipeline.coordinator import AnyPipeline, Coordinator
from stream_dp.pipeline.partition_frames import Progress, encode
from stream_dp.pipeline.pipeline import Output, Pipeline
from stream_dp.sinks.frames import FramesSink
from stream_dp.sinks.sending import Addressed, InFlight, batches
from stream_dp.store.checkpoints import Checkpoint, Sharding

HEADS_OF_MEMBERS, HEADS_OF_WORKER = 0, 1
"""The partitions of the heads topic: in the first, members say how far they are, and in the second the worker."""


class SealsSink(FramesSink):
    """The frames topic, and the worker's partition of the heads topic.  See `Sink`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._nonce, self._told = b"", -1
        self._coordinator: Coordinator | None = None

    def pipeline(self, checkpoint: Checkpoint, key: bytes, earlier: Pipeline | None = None) -> Coordinator:
        """See `Sink.pipeline`; it keeps no labels."""
        assert checkpoint.sharding is not None
        super().pipeline(checkpoint, key)
        self._nonce = checkpoint.epoch.nonce
        place = checkpoint.position, checkpoint.state, checkpoint.sharding.heads or 0
        self._coordinator = Coordinator(checkpoint.epoch, key, self._settings.shards, *place)
        return self._coordinator

    def addressed(
        self, output: Output, reached: int, ends: bool, producer: AIOKafkaProducer
    ) -> Iterator[Addressed]:
        """See `Sink.addressed`."""
        yield from super().addressed(output, reached, ends, producer)
        passed = self._coordinator.passed if self._coordinator is not None else 0
        if passed > self._told:
            self._told = passed
            told = encode(Progress(1, self._nonce, passed))
            for batch in batches(producer, self._settings.stream.encode(), [told]):
                yield Addressed(self._settings.heads, HEADS_OF_WORKER, batch)

    def checkpoint(self, pipeline: AnyPipeline, key_check: str, sent: InFlight) -> Checkpoint:
        """See `Sink.checkpoint`."""
        assert isinstance(pipeline, Coordinator)
        checkpoint = super().checkpoint(pipeline, key_check, sent)
        assert checkpoint.sharding is not None
        shards, frames = checkpoint.sharding.shards, checkpoint.sharding.frames
        checkpoint.sharding = Sharding(shards, frames, pipeline.heads_offset)
        return checkpoint
