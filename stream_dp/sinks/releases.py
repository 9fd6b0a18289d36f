"""Where a worker's output goes, the releases topic, and what is there already."""

from collections.abc import Iterator

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from stream_dp.config.settings import Settings
from stream_dp.config.times import moment_of
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journal import EpochOpened, known_labels_of
from stream_dp.epochs.last_release import check_last_release
from stream_dp.epochs.published import anything_published, begin_after, published, published_of, value_digest
from stream_dp.kafka import log
from stream_dp.pipeline.pipeline import Output, Pipeline
from stream_dp.sinks.framing import Framing, rounds_per_batch
from stream_dp.sinks.sending import InFlight, packed
from stream_dp.store.checkpoints import Checkpoint


class ReleasesSink:
    """The releases topic, of which a worker asks this, in this order, from its start on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._published: dict[tuple[int, int], bytes] = {}  # digests, by round and part
        self._begin: int | None = (
            None  # where the releases after the checkpoint stand, once that was looked up
        )
        self._end = 0
        self.counts_offset: int | None = None
        """From where on the counts topic has to be read, if an engine counts the events."""
        self._framing = Framing(1, len(settings.stream))

    def holds_anything(self) -> bool:
        """Whether anything was ever written for this stream."""
        return anything_published(self._settings)

    def holds(self, opened: EpochOpened) -> bool:
        """Whether anything was written under this epoch."""
        return any(True for _ in published_of(self._settings, opened))

    def published_since(self, checkpoint: Checkpoint) -> int:
        """Read what was written after the checkpoint; returns the last round of it, 0 if there is none.

        Raises `EpochRefused` where it contradicts itself.
        """
        number, nonce = checkpoint.epoch.number, checkpoint.epoch.nonce.hex()
        self._published, self._begin = {}, begin_after(self._settings, checkpoint)
        for _, release, value in published(self._settings, self._begin):
            if release.nonce != nonce and release.epoch <= number:
                continue  # from a worker of a closed epoch that slept: what it had read was charged to that epoch
            if release.round > checkpoint.state.round or release.epoch > number:
                digest = value_digest(value)
                if self._published.setdefault((release.round, release.part), digest) != digest:
                    raise EpochRefused(
                        f"the topic {self._settings.releases!r} holds two different releases of round "
                        f"{release.round}: another producer wrote to this topic; nothing is sent"
                    )
        return self.not_given_again

    def pipeline(self, checkpoint: Checkpoint, key: bytes, earlier: Pipeline | None = None) -> Pipeline:
        """What makes the output, as it was at the checkpoint; `earlier`: see `Pipeline`."""
        self._end = checkpoint.releases_offset if self._begin is None else self._begin
        rounds = rounds_per_batch(checkpoint.epoch.privacy["rounds"], self._settings.batch_rounds)
        self._framing = Framing(rounds, len(self._settings.stream))
        place = checkpoint.position, checkpoint.state, checkpoint.pairs
        known = known_labels_of(self._settings, checkpoint.epoch)
        counted = self._settings.engine != "worker"
        if counted:
            self.counts_offset = _counts_offset(self._settings, checkpoint)
        return Pipeline(checkpoint.epoch, key, self._settings.events, *place, earlier, known, counted)

    def check_state(self, checkpoint: Checkpoint, pipeline: Pipeline) -> None:
        """Raise `StateDamaged` unless `pipeline`, as it was at the checkpoint, fits what was published by then.

        `published_since` has read what came after it.
        """
        assert self._begin is not None
        check_last_release(self._settings, checkpoint, pipeline, self._begin)

    @property
    def not_given_again(self) -> int:
        """The last round that is published and was not computed again yet; 0 if there is none."""
        return max((round_number for round_number, _ in self._published), default=0)

    def missing(self, output: Output) -> Output:
        """What of `output` is not published yet.  Raises `EpochRefused` at a difference from what is."""
        missing = Output(dead_letters=output.dead_letters, records=output.records)
        for release in output.releases:
            digest = self._published.pop((release.round, release.part), None)
            if digest is None:
                missing.releases.append(release)
            elif digest != value_digest(release.value):
                raise EpochRefused(
                    f"round {release.round} was published with other content than the events topic and the "
                    "key give now: the log, the key or the releases were changed; nothing is sent"
                )
        return missing

    @property
    def holds_back(self) -> bool:
        """Whether some output waits for the rest of its batch."""
        return self._framing.is_open

    def batches(
        self, output: Output, reached: int, ends: bool, producer: AIOKafkaProducer
    ) -> Iterator[BatchBuilder]:
        """The batches that have ended with this output, packed for the producer; the rest is held back.

        `reached`: the last round of the output.  `ends`: the log ended there.
        """
        key = self._settings.stream.encode()
        for parts in self._framing.cut(output.releases, reached, ends):
            yield packed(producer, key, parts)

    def checkpoint(self, pipeline: Pipeline, key_check: str, sent: InFlight) -> Checkpoint:
        """What to go on from later; everything `sent` must be settled."""
        place = pipeline.state(), pipeline.position, sent.end(self._end)
        return Checkpoint(pipeline.epoch, *place, key_check, pipeline.intake.pairs, self.counts_offset)


def _counts_offset(settings: Settings, checkpoint: Checkpoint) -> int:
    """From where on the counts topic has to be read, whose records have the times of their barriers."""
    if checkpoint.counts_offset is not None:
        return checkpoint.counts_offset
    barrier = checkpoint.position.barrier
    assert barrier is not None, "an engine counts rounds of barriers"
    after = moment_of(barrier.due + 1)
    found = log.offset_at(settings.kafka_address, settings.counts, after)
    return log.offsets(settings.kafka_address, settings.counts).end if found is None else found
