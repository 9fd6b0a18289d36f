"""What happens between a start and the first round: fencing, the epoch, the key, and whether the log is the same.

A start reads everything it needs to be sure of before anything is sent, and all of it after the fence: what a worker
before it has written is complete by then, and what it writes later is refused.
"""

import logging

from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused, frozen_settings
from stream_dp.epochs.lifecycle import Epochs
from stream_dp.events.log_digest import LogDigester
from stream_dp.kafka import log
from stream_dp.pipeline.coordinator import AnyPipeline
from stream_dp.pipeline.frames import FrameRefused
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.privacy.vector import offsets_text
from stream_dp.sinks.releases import divided_as, sink_of
from stream_dp.store.checkpoint_records import damaged
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, StateDamaged
from stream_dp.store.exposure import exposed
from stream_dp.store.noise_key import NoKey, noise_key
from stream_dp.workers.counted_log import check_log
from stream_dp.workers.next_epoch import NewEpoch, Resumed, open_next
from stream_dp.workers.standby import Rehearsed
from stream_dp.workers.start_checks import check_epoch, check_key, check_partitions, check_sharding
from stream_dp.workers.stream_topics import prepare_topics
from stream_dp.workers.topic_watch import TopicWatch

__all__ = ["NewEpoch", "Resumed", "open_next", "resume", "take_over"]

logger = logging.getLogger(__name__)


def take_over(settings: Settings, store: CheckpointStore, redis: Redis) -> Epochs:
    """Fence off older workers, make sure that the topics can serve, and read what was guaranteed before."""
    store.take_over()
    if warning := exposed(redis):
        logger.warning(warning)
    prepare_topics(settings)
    return Epochs(settings, store, redis)


def resume(
    settings: Settings,
    store: CheckpointStore,
    redis: Redis,
    wish: NewEpoch | None = None,
    topics: TopicWatch | None = None,
    earlier: Rehearsed | None = None,
) -> Resumed:
    """Take the stream over and load its checkpoint, or open an epoch.  `topics` looks first after it is taken.

    `earlier` is used up: it saves reading and computing what it knows of labels.

    An epoch that is at its horizon gives way to the next one here, unless the settings say stop.
    With a `wish`, the running epoch is to be counted to its end and closed; where it cannot go on, it is closed here
    and the next one opened.  After an outage, ask again with the same wish: it is granted once.  Raises one of the
    worker's refusals (`Refused`).
    """
    epochs = take_over(settings, store, redis)
    if topics is not None:
        topics.look()  # what is read from here on is read from these topics, or the next look says so
        store.topics = topics.identities
    return _Start(settings, store, redis, epochs, wish, earlier).resumed()


class _Start:
    """One start of a worker that has taken the stream over, with what is left of an operator's wish."""

    def __init__(
        self,
        settings: Settings,
        store: CheckpointStore,
        redis: Redis,
        epochs: Epochs,
        wish: NewEpoch | None,
        earlier: Rehearsed | None,
    ) -> None:
        self._settings, self._store, self._redis, self._epochs = settings, store, redis, epochs
        self._earlier = earlier
        self._granted = wish is not None and wish.granted(epochs.journal)
        self._wish = None if self._granted else wish
        self._sink = sink_of(settings)

    def resumed(self) -> Resumed:
        """See `resume`."""
        try:
            self._epochs.finish_closing()
            checkpoint, key = self._checked(self._checkpoint())
            self._sink = sink_of(divided_as(self._settings, checkpoint))
            self._sink.published_since(checkpoint)
            pipeline = self._restored(checkpoint, key)
        except (EpochRefused, FrameRefused, NoKey, StateDamaged, log.LogRefused) as lost:
            if self._wish is None:
                raise
            logger.warning("the old epoch cannot be counted to its end: %s", lost)
            return self._next_epoch(self._wish)
        if self._wish is not None:
            events = log.offsets_of_all(self._settings.kafka_address, self._settings.events)
            ends = tuple(partition.end for partition in events)
            firsts = tuple(partition.first for partition in events)
            self._epochs.check_room(firsts if self._wish.recount else ends, ends)
        self._epochs.note_started(checkpoint.epoch.number)
        # The ends are asked last: another worker may still be releasing, and whatever it has released came from records
        # before them.
        return Resumed.of(
            self._settings, checkpoint, pipeline, key, self._sink, self._epochs, self._wish is not None
        )

    def _next_epoch(self, wish: NewEpoch) -> Resumed:
        return open_next(self._settings, self._redis, self._epochs, wish)

    def _checkpoint(self) -> Checkpoint:
        """The checkpoint to go on from: that of the open epoch, or the first of one that is opened here."""
        checkpoint, journal = self._loaded(), self._epochs.journal
        if journal.last_is_open and self._stopped_while_opening(checkpoint):
            opening = journal.opened[-1].epoch
            if self._wish is not None and opening.privacy == frozen_settings(self._settings):
                self._wish.instead_of = opening.number - 1
                self._wish = None  # this is the one that is asked for
            return self._epochs.finish_opening(checkpoint.position if checkpoint is not None else None)
        if checkpoint is None:
            checkpoint, self._wish = self._open_first(), None
        elif (
            self._wish is None and self._settings.at_horizon != "stop" and self._epochs.is_to_roll(checkpoint)
        ):
            checkpoint = self._roll(checkpoint)
        return checkpoint

    def _loaded(self) -> Checkpoint | None:
        """What Redis holds; what is no good is none where the next epoch is about to begin without it."""
        if not self._store.holds_state():
            return None
        try:
            return self._store.load(self._key(), self._earlier.labels if self._earlier else None)
        except (EpochRefused, StateDamaged):
            if self._epochs.journal.last_is_open and self._stopped_while_opening(None):
                return None
            raise

    def _key(self, may_create: bool = False) -> bytes:
        return noise_key(self._settings.noise_key, self._redis, self._settings.stream, may_create)

    def _checked(self, checkpoint: Checkpoint) -> tuple[Checkpoint, bytes]:
        """The checkpoint, once it is sure that it may be gone on from, and the noise key."""
        key = self._key()
        check_key(checkpoint, key)
        check_epoch(checkpoint, self._epochs.journal)
        checkpoint.epoch.check_noise()
        if self._wish is None:
            check_sharding(self._settings, checkpoint)
            check_partitions(self._settings, checkpoint)
            checkpoint.epoch.check_settings(self._settings)
        check_log(self._settings, checkpoint, LogDigester(key, checkpoint.epoch.reads_headers))
        return checkpoint, key

    def _restored(self, checkpoint: Checkpoint, key: bytes) -> AnyPipeline:
        """The pipeline as it was at the checkpoint.  Raises `StateDamaged` where it does not fit what was published."""
        try:
            earlier = self._earlier.pipeline if self._earlier else None
            pipeline = self._sink.pipeline(checkpoint, key, earlier)
        except (IndexError, KeyError, ValueError):  # a state without digests, of an earlier format
            raise damaged("columns") from None
        self._sink.check_state(checkpoint, pipeline)
        return pipeline

    def _stopped_while_opening(self, checkpoint: Checkpoint | None) -> bool:
        """Whether a worker died after it wrote the last epoch down and before it could release anything under it.

        That nothing of it is in the topics proves it only for epochs on whose start nothing is on record.
        """
        last = self._epochs.journal.last
        if last is None or (checkpoint is not None and checkpoint.epoch.nonce == last.epoch.nonce):
            return False
        if last.epoch.number in self._epochs.journal.started:
            return False
        # Whoever was granted the epoch has released nothing yet.
        return self._granted or not self._sink.holds(last)

    def _open_first(self) -> Checkpoint:
        """The first epoch of a stream that has never released anything."""
        settings, journal = self._settings, self._epochs.journal
        last = journal.last
        if self._sink.holds_anything():
            raise EpochRefused(
                f"the topic {settings.releases!r} holds releases but Redis has no state of stream "
                f"{settings.stream!r}: continuing would draw new noise for the same rounds; run `stream-dp rebuild` if "
                "the noise key is still there, else open a new epoch, which is charged, with --new-epoch"
            )
        if journal.last_is_open:
            assert last is not None
            raise EpochRefused(
                f"epoch {last.epoch.number} of stream {settings.stream!r} has started, but Redis has no state of it "
                f"and the topic {settings.releases!r} none of its releases: beginning again could use noise twice; "
                "restore one of them, or open a new epoch, which is charged, with --new-epoch"
            )
        if last is not None:
            raise EpochRefused(
                f"epoch {last.epoch.number} of stream {settings.stream!r} is closed: open the next with --new-epoch"
            )
        key = self._key(may_create=True)
        events = log.offsets_of_all(settings.kafka_address, settings.events)
        return self._epochs.open_next(tuple(partition.first for partition in events), key_check(key))

    def _roll(self, ended: Checkpoint) -> Checkpoint:
        """The next epoch, after all that a start makes sure of for the one that is at its horizon."""
        settings, key = self._settings, self._key()
        check_key(ended, key)
        ended.epoch.check_settings(settings)
        check_sharding(settings, ended)
        check_partitions(settings, ended)
        check_log(settings, ended, LogDigester(key, ended.epoch.reads_headers))
        past_the_end = self._sink.published_since(ended)
        self._restored(ended, key)
        if past_the_end:
            raise EpochRefused(
                f"the topic {settings.releases!r} holds rounds beyond the horizon of epoch {ended.epoch.number}: "
                "another producer wrote to this topic; nothing is sent"
            )
        checkpoint = self._epochs.roll(ended)
        logger.warning(
            "epoch %d is at its horizon of %d rounds and is closed; epoch %d, of %d rounds, continues at offset %s: it "
            "is charged, and its counts begin at zero",
            ended.epoch.number,
            ended.epoch.mechanism.horizon,
            checkpoint.epoch.number,
            checkpoint.epoch.mechanism.horizon,
            offsets_text(checkpoint.epoch.offsets),
        )
        return checkpoint
