"""What happens between a start and the first round: what a worker makes sure of before it takes the stream over.

It first looks: it connects, and compares settings, rights, epoch, key, log and budget with what is on record, and
writes nothing.  What would refuse it refuses it now, while another worker may be at work, and that one goes on.  Only
then it takes the stream over.  What a worker before it has written since the look is read again: that is complete by
then, and what it writes later is refused.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused, frozen_settings
from stream_dp.epochs.lifecycle import Epochs
from stream_dp.epochs.registry import Registry
from stream_dp.errors import Refused
from stream_dp.events.log_digest import LogDigester
from stream_dp.kafka import log
from stream_dp.kafka.rights import require_rights
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.privacy.vector import offsets_text
from stream_dp.sinks.releases import ReleasesSink
from stream_dp.store.checkpoint_records import damaged
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, KnownLabels, StateDamaged
from stream_dp.store.exposure import exposed
from stream_dp.store.fence import NotTakenOver
from stream_dp.store.noise_key import IN_REDIS, NoKey, noise_key
from stream_dp.workers.counted_log import check_log
from stream_dp.workers.events_reader import ends_of
from stream_dp.workers.next_epoch import NewEpoch, Resumed, open_next
from stream_dp.workers.start_checks import check_engine, check_epoch, check_key, check_partitions
from stream_dp.workers.stream_topics import prepare_topics, worker_rights
from stream_dp.workers.topic_watch import TopicWatch

__all__ = ["NewEpoch", "Resumed", "WarmState", "open_next", "resume", "take_over"]

logger = logging.getLogger(__name__)

_LOOKS = 3


@dataclass(frozen=True)
class WarmState:
    """What a standby has of the checkpoint that it read last: its labels, and the pipeline as it was then."""

    labels: KnownLabels
    pipeline: Pipeline

    @classmethod
    def of(cls, store: CheckpointStore, found: Resumed | None) -> "WarmState | None":
        """What a look leaves: the pipeline that it `found` from what `store` has loaded."""
        if found is None:
            return None
        labels = found.pipeline.state().labels
        return cls(store.known_labels(found.pipeline.epoch.nonce, labels), found.pipeline)


def take_over(settings: Settings, store: CheckpointStore, redis: Redis) -> Epochs:
    """Make sure that the topics can serve, fence off older workers, and read what was guaranteed before."""
    registry = Registry(settings.kafka_address)
    prepare_topics(settings, registry)
    store.take_over()
    epochs = Epochs(settings, store, redis, registry)
    epochs.complete_ledger()
    return epochs


def resume(
    settings: Settings,
    store: CheckpointStore,
    redis: Redis,
    registry: Registry,
    wish: NewEpoch | None = None,
    topics: TopicWatch | None = None,
    warm: WarmState | None = None,
    seize: Callable[[], None] = lambda: None,
) -> Resumed:
    """Take the stream over, unless `store` has, and load its checkpoint, or open an epoch.

    `registry`: as it was read at this start.
    `topics` look before anything is read that is gone on from.  `warm` is used up: it saves reading and computing what
    it knows of labels.  `seize` is called when the stream is about to be taken over.

    An epoch that is at its horizon gives way to the next one here, unless the settings say stop.
    With a `wish`, the running epoch is to be counted to its end and closed; if it cannot go on, it is closed here and
    the next one opened.  After an outage, ask again with the same wish: it is granted once.  Raises one of the worker's
    refusals (`Refused`); what can be known before the stream is taken over is asked before.
    """
    if warning := exposed(redis):
        logger.warning(warning)
    if not store.is_taken:
        if settings.noise_key == "redis":
            logger.warning(IN_REDIS)
        require_rights(settings.kafka_address, worker_rights(settings, registry))
    prepare_topics(settings, registry)
    if topics is not None:
        topics.look()  # what is read from here on is read from these topics, or the next look says so
        store.topics = topics.identities
    found, sent = None, log.offsets(settings.kafka_address, settings.releases).end
    if not store.is_taken:
        found = look(settings, store, redis, registry, wish, warm)
        warm = WarmState.of(store, found)
        seize()
        store.take_over()
    if found is None or _is_outdated(settings, store, found, sent):
        epochs = Epochs(settings, store, redis, registry)
        epochs.complete_ledger()
        return _Start(settings, store, redis, epochs, wish, warm).resumed()
    found.epochs.complete_ledger()
    found.ends = ends_of(settings, found.pipeline.epoch)  # see `_Start.resumed`
    return found


def _is_outdated(settings: Settings, store: CheckpointStore, found: Resumed, sent: int) -> bool:
    """Whether another worker may have written since the look that `found` this, when `sent` releases were there."""
    releases = log.offsets(settings.kafka_address, settings.releases).end
    return releases != sent or store.has_changed() or store.is_closing() or found.epochs.journal.has_changed()


def look(
    settings: Settings,
    store: CheckpointStore,
    redis: Redis,
    registry: Registry,
    wish: NewEpoch | None = None,
    warm: WarmState | None = None,
) -> Resumed | None:
    """What a worker would go on from if it took the stream over now; nothing is written.

    None if the first thing that it would do is to write, and nothing stands against that.  Raises a refusal.  A worker
    that is at work may write while this reads, so a refusal is believed if what it was read from still stands.
    """
    assert not store.is_taken
    for left in reversed(range(_LOOKS)):
        epochs = Epochs(settings, store, redis, registry)
        try:
            return _Start(settings, store, redis, epochs, wish, warm).resumed()
        except NotTakenOver:
            return None
        except Refused:
            if not left or not (store.has_changed() or epochs.journal.has_changed()):
                raise
    raise AssertionError("unreachable")


class _Start:
    """One start of a worker that has taken the stream over, with what is left of an operator's wish."""

    def __init__(
        self,
        settings: Settings,
        store: CheckpointStore,
        redis: Redis,
        epochs: Epochs,
        wish: NewEpoch | None,
        warm: WarmState | None,
    ) -> None:
        self._settings, self._store, self._redis, self._epochs = settings, store, redis, epochs
        self._warm = warm
        self._granted = wish is not None and wish.granted(epochs.journal)
        self._wish = None if self._granted else wish
        self._sink = ReleasesSink(settings)

    def resumed(self) -> Resumed:
        """See `resume`."""
        try:
            if self._store.is_taken:
                self._epochs.finish_closing()
            checkpoint, key = self._checked(self._checkpoint())
            self._sink.published_since(checkpoint)
            pipeline = self._restored(checkpoint, key)
        except (EpochRefused, NoKey, StateDamaged, log.LogRefused) as lost:
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
        return open_next(self._settings, self._epochs, wish)

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
            return self._store.load(self._key(), self._warm.labels if self._warm else None)
        except (EpochRefused, StateDamaged):
            if self._epochs.journal.last_is_open and self._stopped_while_opening(None):
                return None
            raise

    def _key(self) -> bytes:
        return noise_key(self._settings.noise_key, self._redis, self._settings.stream, may_create=False)

    def _checked(self, checkpoint: Checkpoint) -> tuple[Checkpoint, bytes]:
        """The checkpoint, once it is sure that it may be gone on from, and the noise key."""
        key = self._key()
        check_key(checkpoint, key)
        check_epoch(checkpoint, self._epochs.journal)
        checkpoint.epoch.check_noise()
        if self._wish is None:
            check_engine(self._settings, checkpoint)
            check_partitions(self._settings, checkpoint)
            checkpoint.epoch.check_settings(self._settings)
        check_log(self._settings, checkpoint, LogDigester(key, checkpoint.epoch.reads_headers))
        return checkpoint, key

    def _restored(self, checkpoint: Checkpoint, key: bytes) -> Pipeline:
        """The pipeline as it was at the checkpoint.  Raises `StateDamaged` where it does not fit what was published."""
        try:
            warm = self._warm.pipeline if self._warm else None
            pipeline = self._sink.pipeline(checkpoint, key, warm)
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
        events = log.offsets_of_all(settings.kafka_address, settings.events)
        firsts = tuple(partition.first for partition in events)
        return self._epochs.open_next(firsts, key_check(self._epochs.admit(firsts, None)))

    def _roll(self, ended: Checkpoint) -> Checkpoint:
        """The next epoch, after all that a start makes sure of for the one that is at its horizon."""
        settings, key = self._settings, self._key()
        check_key(ended, key)
        ended.epoch.check_settings(settings)
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
