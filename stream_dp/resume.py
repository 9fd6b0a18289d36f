"""What stands between a start and the first round: fencing, the epoch, the key, and whether the log is the same.

A start reads everything it needs to be sure of before anything is sent.
"""

import logging
from dataclasses import dataclass

import msgspec
from redis import Redis

from stream_dp import log
from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.topic import check_barrier, cut_off, prepare_barriers
from stream_dp.clients import kept_clients
from stream_dp.dead_letters import prepare_dead_letters
from stream_dp.epoch import EpochRefused
from stream_dp.epoch_gap import gap_of
from stream_dp.epochs import Epochs
from stream_dp.events_reader import LogEnds, ends_of
from stream_dp.framing import LARGEST_BATCH
from stream_dp.journal import EpochJournal, check_journal
from stream_dp.log_digest import LogDigester
from stream_dp.outlet import Outlet, ReleasesOutlet
from stream_dp.pipeline import Pipeline, Position
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.rounds import TICKS
from stream_dp.settings import Settings
from stream_dp.shards.frames import FrameRefused
from stream_dp.shards.outlet import FramesOutlet
from stream_dp.shards.sequencer import Sequencer
from stream_dp.store.checkpoint_records import damaged
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, StateDamaged
from stream_dp.store.exposure import exposed
from stream_dp.store.noise_key import NoKey, noise_key
from stream_dp.topic_watch import TopicWatch

logger = logging.getLogger(__name__)


@dataclass
class Resumed:
    """A pipeline at the last checkpoint, and where its output goes.

    `outlet` knows what has been published since then; `ends` is where the log ended at the start.
    `closing`: count up to there, then the epoch is to be closed.  `barrier_key` is what it takes to write barriers.
    """

    pipeline: Pipeline | Sequencer
    key_check: str
    digester: LogDigester
    outlet: Outlet
    ends: LogEnds
    epochs: Epochs
    barrier_key: bytes
    closing: bool = False


@dataclass
class NewEpoch:
    """An operator's wish: close the epoch and open another one, which is charged.

    `recount`: count the events topic again from its beginning, instead of going on where the old epoch ended.
    `from_last_release`: where the old epoch is lost, begin where its last release ends, instead of at the log's end.
    `instead_of`: the number of the epoch that is to be closed, 0 if there is none; the first start finds it out.
    """

    recount: bool = False
    from_last_release: bool = False
    instead_of: int | None = None

    def granted(self, journal: EpochJournal) -> bool:
        """Whether the next epoch is on record, because an outage ended the last attempt after that was written."""
        last = journal.last.epoch.number if journal.last is not None else 0
        if self.instead_of is None:
            self.instead_of = last
        return last > self.instead_of


def take_over(settings: Settings, store: CheckpointStore, redis: Redis) -> Epochs:
    """Fence off older workers, make sure that the topics can serve, and read what was promised before."""
    store.take_over()
    if warning := exposed(redis):
        logger.warning(warning)
    if settings.create_topics:
        log.create_topics(settings.kafka_address, settings.events, settings.epochs)
    for warning in log.check_topic(settings.kafka_address, settings.events):
        logger.warning(warning)
    prepare_releases_topic(settings)
    check_journal(settings.kafka_address, settings.epochs)
    if settings.rounds == TICKS:
        prepare_barriers(settings)
    prepare_dead_letters(settings)
    if settings.shards:
        prepare_topics_of_shards(settings)
    return Epochs(settings, store, redis)


def prepare_releases_topic(settings: Settings) -> None:
    """Make sure that the releases topic can serve, and warn if it keeps releases longer or shorter than it should."""
    days = settings.releases_retention_days
    if settings.create_topics:
        log.create_topics(settings.kafka_address, settings.releases, retention_days=days)
    for warning in log.check_topic(
        settings.kafka_address, settings.releases, LARGEST_BATCH, retention_days=days
    ):
        logger.warning(warning)


def prepare_topics_of_shards(settings: Settings) -> None:
    """Make sure that the frames topic and that of the shards' releases can serve."""
    topics = settings.frames, settings.shard_releases
    if settings.create_topics:
        log.create_topics(settings.kafka_address, *topics, partitions=settings.shards)
    for topic in topics:
        for warning in log.check_topic(settings.kafka_address, topic, LARGEST_BATCH, settings.shards):
            logger.warning(warning)


@kept_clients()
def resume(
    settings: Settings,
    store: CheckpointStore,
    redis: Redis,
    wish: NewEpoch | None = None,
    topics: TopicWatch | None = None,
) -> Resumed:
    """Take the stream over and load its checkpoint, or open an epoch.  `topics` looks first after it is taken.

    An epoch that is at its horizon gives way to the next one here, unless the settings say stop.
    With a `wish`, the running epoch is to be counted to its end and closed; where it cannot go on, it is closed here
    and the next one opened.  After an outage, ask again with the same wish: it is granted once.  Raises one of the
    worker's `REFUSALS`.
    """
    epochs = take_over(settings, store, redis)
    if topics is not None:
        topics.look()  # what is read from here on is read from these topics, or the next look says so
    outlet = outlet_of(settings, settings.shards)
    granted = wish is not None and wish.granted(epochs.journal)
    wish = None if granted else wish
    try:
        epochs.finish_closing()
        checkpoint = _load(settings, store, redis, epochs, outlet, granted)
        if epochs.journal.last_is_open and _stopped_while_opening(outlet, epochs, checkpoint, granted):
            opening = epochs.journal.opened[-1].epoch
            if wish is not None and opening.privacy == settings.privacy:
                wish.instead_of, wish = opening.number - 1, None  # this is the one that is asked for
            checkpoint = epochs.finish_opening(checkpoint.position if checkpoint is not None else None)
        elif checkpoint is None:
            checkpoint, wish = _open_first(settings, outlet, epochs, redis), None
        elif wish is None and settings.at_horizon != "stop" and epochs.is_to_roll(checkpoint):
            checkpoint = _roll(settings, outlet, epochs, redis, checkpoint)
        key = noise_key(settings.noise_key, redis, settings.stream, may_create=False)
        _check_key(checkpoint, key)
        _check_epoch(checkpoint, epochs)
        checkpoint.epoch.check_noise()
        if wish is None:
            _check_sharding(settings, checkpoint)
            checkpoint.epoch.check_settings(settings)
        _check_log(settings, checkpoint.position, LogDigester(key))
        outlet = outlet_of(settings, _shards(checkpoint))
        published = outlet.published_since(checkpoint)
        if wish is not None and checkpoint.epoch.has_lost_rounds and not published:
            return open_next(settings, store, redis, epochs, wish, checkpoint.position)
        checkpoint.epoch.check_rounds()
        pipeline = _restored(outlet, checkpoint, key)
    except (EpochRefused, FrameRefused, NoKey, StateDamaged, log.LogRefused) as lost:
        if wish is None:
            raise
        logger.warning("the old epoch cannot be counted to its end: %s", lost)
        return open_next(settings, store, redis, epochs, wish)
    if wish is not None:
        events = log.offsets(settings.kafka_address, settings.events)
        epochs.check_room(events.first if wish.recount else events.end, events.end)
    epochs.note_started(checkpoint.epoch.number)
    # Asked last: another worker may still be releasing, and whatever it has released came from records before this end.
    return Resumed(
        pipeline,
        checkpoint.key_check,
        LogDigester(key),
        outlet,
        ends_of(settings, checkpoint.epoch),
        epochs,
        barrier_key(key),
        closing=wish is not None,
    )


@kept_clients()
def open_next(
    settings: Settings,
    store: CheckpointStore,
    redis: Redis,
    epochs: Epochs,
    wish: NewEpoch,
    counted: Position | None = None,
) -> Resumed:
    """Close the last epoch and open the next one.

    `counted` is how far the old one has counted.  None where that is not known, because its state is lost or the log is
    another one by now: then its charge does not end, and must leave room for the next one.
    """
    events = log.offsets(settings.kafka_address, settings.events)
    if counted is None:
        ended = events.end if wish.recount else _end_of_lost_epoch(settings, epochs.journal, events, wish)
        epochs.check_room(events.first if wish.recount else ended, None)
    key = noise_key(settings.noise_key, redis, settings.stream, may_create=True)
    if counted is None:
        epochs.close_last(ended, None)
    else:
        ended = epochs.close_last(counted.next_offset, counted)
    # A log that was made anew may end before what was counted of the old one.
    first_offset = events.first if wish.recount else max(min(ended, events.end), events.first)
    checkpoint = epochs.open_next(first_offset, key_check(key), counted, wish.recount)
    outlet = outlet_of(settings, settings.shards)
    return Resumed(
        outlet.pipeline(checkpoint, key),
        checkpoint.key_check,
        LogDigester(key),
        outlet,
        ends_of(settings, checkpoint.epoch),
        epochs,
        barrier_key(key),
    )


def _end_of_lost_epoch(settings: Settings, journal: EpochJournal, events: log.Offsets, wish: NewEpoch) -> int:
    """Where the next epoch begins if nobody can tell how far the last one has counted; says what it leaves out."""
    last = journal.last
    if last is None:
        return events.end
    closed = journal.closed.get(last.epoch.number)
    if closed is not None and not closed.end_unknown:
        return max(each.end_offset for each in journal.closed.values())
    gap = gap_of(settings, last.epoch)
    if wish.from_last_release:
        if gap.begin is None:
            raise EpochRefused(f"{gap}: leave --from-last-release out")
        logger.warning("%s; the new epoch begins with them", gap)
        return gap.begin
    logger.warning(
        "%s; the new epoch begins after them%s",
        gap,
        "; with --from-last-release it would have begun with them" if gap.records else "",
    )
    return events.end


def _load(
    settings: Settings, store: CheckpointStore, redis: Redis, epochs: Epochs, outlet: Outlet, granted: bool
) -> Checkpoint | None:
    """The checkpoint; one that is no good is none where the next epoch is about to begin without it."""
    if not store.holds_state():
        return None
    try:
        return store.load(noise_key(settings.noise_key, redis, settings.stream, may_create=False))
    except (EpochRefused, StateDamaged):
        if epochs.journal.last_is_open and _stopped_while_opening(outlet, epochs, None, granted):
            return None
        raise


def _restored(outlet: Outlet, checkpoint: Checkpoint, key: bytes) -> Pipeline | Sequencer:
    """The pipeline as it was at the checkpoint.  Raises `StateDamaged` where it does not fit what was published."""
    try:
        pipeline = outlet.pipeline(checkpoint, key)
    except (IndexError, KeyError, ValueError):  # a state without digests, of an earlier format
        raise damaged("columns") from None
    outlet.check_state(checkpoint, pipeline)
    return pipeline


def _stopped_while_opening(
    outlet: Outlet, epochs: Epochs, checkpoint: Checkpoint | None, granted: bool
) -> bool:
    """Whether a worker died after it wrote the last epoch down and before it could release anything under it.

    That nothing of it is in the topics proves it only for epochs on whose start nothing is on record.
    """
    last = epochs.journal.last
    if last is None or (checkpoint is not None and checkpoint.epoch.nonce == last.epoch.nonce):
        return False
    if last.epoch.number in epochs.journal.started:
        return False
    return granted or not outlet.holds(last)  # whoever was granted the epoch has released nothing yet


def _open_first(settings: Settings, outlet: Outlet, epochs: Epochs, redis: Redis) -> Checkpoint:
    """The first epoch of a stream that has never released anything."""
    last = epochs.journal.last
    if outlet.holds_anything():
        raise EpochRefused(
            f"the topic {settings.releases!r} holds releases but Redis has no state of stream "
            f"{settings.stream!r}: going on would draw their noise anew; run `stream-dp rebuild` if the noise key is "
            "still there, else open a new epoch, which is charged, with --new-epoch"
        )
    if epochs.journal.last_is_open:
        assert last is not None
        raise EpochRefused(
            f"epoch {last.epoch.number} of stream {settings.stream!r} has started, but Redis has no state of it and "
            f"the topic {settings.releases!r} none of its releases: beginning again could use noise twice; restore "
            "one of them, or open a new epoch, which is charged, with --new-epoch"
        )
    if last is not None:
        raise EpochRefused(
            f"epoch {last.epoch.number} of stream {settings.stream!r} is closed: open the next with --new-epoch"
        )
    key = noise_key(settings.noise_key, redis, settings.stream, may_create=True)
    return epochs.open_next(log.offsets(settings.kafka_address, settings.events).first, key_check(key))


def _roll(settings: Settings, outlet: Outlet, epochs: Epochs, redis: Redis, ended: Checkpoint) -> Checkpoint:
    """The next epoch, after all that a start makes sure of for the one that is at its horizon."""
    key = noise_key(settings.noise_key, redis, settings.stream, may_create=False)
    _check_key(ended, key)
    ended.epoch.check_settings(settings)
    _check_sharding(settings, ended)
    _check_log(settings, ended.position, LogDigester(key))
    if outlet.published_since(ended):
        raise EpochRefused(
            f"the topic {settings.releases!r} holds rounds beyond the horizon of epoch {ended.epoch.number}: "
            "somebody else has written there; nothing is sent"
        )
    checkpoint = epochs.roll(ended)
    logger.warning(
        "epoch %d is at its horizon of %d rounds and is closed; epoch %d, of %d rounds, goes on at offset %d: it is "
        "charged, and its counts begin at zero",
        ended.epoch.number,
        ended.epoch.mechanism.horizon,
        checkpoint.epoch.number,
        checkpoint.epoch.mechanism.horizon,
        checkpoint.epoch.first_offset,
    )
    return checkpoint


def _check_key(checkpoint: Checkpoint, key: bytes) -> None:
    """Raise `EpochRefused` unless `key` is the one of the checkpoint's epoch."""
    if checkpoint.key_check != key_check(key):
        raise EpochRefused(
            f"the noise key is not the one that epoch {checkpoint.epoch.number} was opened with: supply that one"
        )


def _check_epoch(checkpoint: Checkpoint, epochs: Epochs) -> None:
    """Raise `EpochRefused` unless the checkpoint's epoch is the open one, `StateDamaged` if it says something else."""
    number = checkpoint.epoch.number
    if any(each.epoch.number == number and each.epoch != checkpoint.epoch for each in epochs.journal.opened):
        raise damaged("meta")
    last = epochs.journal.last
    if last is None or last.epoch.number > number:
        raise EpochRefused(
            f"Redis holds epoch {number}, which is not the last one that was opened: Redis was rolled back, or the "
            "epochs topic was lost; restore them, or open a new epoch, which is charged, with --new-epoch"
        )
    if number in epochs.journal.closed:
        raise EpochRefused(f"epoch {number} is closed: open the next one, which is charged, with --new-epoch")


def outlet_of(settings: Settings, shards: int) -> Outlet:
    """Where a worker writes whose epoch is divided into so many shards, which the settings may want to change."""
    return (
        FramesOutlet(msgspec.structs.replace(settings, shards=shards)) if shards else ReleasesOutlet(settings)
    )


def _shards(checkpoint: Checkpoint) -> int:
    return checkpoint.sharding.shards if checkpoint.sharding else 0


def _check_sharding(settings: Settings, checkpoint: Checkpoint) -> None:
    """Raise `EpochRefused` unless the labels of the checkpoint's epoch are divided as the settings say.

    A label that changed its owner would be counted from zero there, under the noise that it had before.
    """
    shards = _shards(checkpoint)
    if shards != settings.shards:
        raise EpochRefused(
            f"epoch {checkpoint.epoch.number} of stream {settings.stream!r} runs with shards = {shards} and the "
            f"settings say shards = {settings.shards}: restore the setting, or open a new epoch, which is charged, "
            "with --new-epoch"
        )


def _check_log(settings: Settings, position: Position, digester: LogDigester) -> None:
    """Raise `LogRefused` unless the last record applied is still where it was, and the last barrier is."""
    events = log.offsets(settings.kafka_address, settings.events)
    last = position.log.last_offset
    if last is not None:
        found = (
            list(log.read(settings.kafka_address, settings.events, last, last + 1)) if last in events else []
        )
        if [digester.in_place(record) for record in found] != [position.log.last]:
            raise another_log(settings, last)
    elif position.next_offset < events.first:
        raise log.LogRefused(
            f"the topic {settings.events!r} has lost its first records before they were counted: "
            "use another stream name"
        )
    if position.barrier is not None:
        if events.end < position.next_offset:
            raise cut_off(settings, events.end, position.next_offset)
        check_barrier(settings, position.barrier)


def another_log(settings: Settings, offset: int) -> log.LogRefused:
    """What to say where the record at `offset`, which was counted, is not there any more."""
    return log.LogRefused(
        f"the topic {settings.events!r} is not the log that was counted: the last record counted, at "
        f"offset {offset}, is gone or another; the topic was truncated, compacted or re-created; restore "
        "it, or open a new epoch, which is charged, with --new-epoch"
    )
