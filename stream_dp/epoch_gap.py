"""An epoch whose state is lost: which records its releases count, and how many have come since.

A new epoch begins at the end of the log, so that nobody counts those.  It may begin where the last release ends
instead: the lost epoch's charge stays on all offsets from its first one on, so that both are paid for in any case.
"""

from dataclasses import dataclass

from redis import Redis

from stream_dp import log
from stream_dp.epoch import Epoch, EpochRefused
from stream_dp.journal import EpochJournal
from stream_dp.releases_topic import ReleasesTopic
from stream_dp.rounds import events_of
from stream_dp.settings import Settings
from stream_dp.store.checkpoints import CheckpointStore, StateDamaged
from stream_dp.store.noise_key import NoKey, noise_key
from stream_dp.subscribe import newest_release


@dataclass(frozen=True)
class EpochGap:
    """The last release of a lost epoch is that of `round`, 0 if there is none, and the log ends before `end`.

    `begin`: no release counts a record at or after this offset, unless transactions left gaps among the offsets.  None
    where it does not follow from the round.
    """

    epoch: int
    round: int
    begin: int | None
    end: int

    @property
    def records(self) -> int:
        """How many offsets lie between the last release and the end of the log."""
        return 0 if self.begin is None else self.end - self.begin

    def __str__(self) -> str:
        if self.begin is None:
            return (
                f"the last release of epoch {self.epoch} is that of round {self.round:,}, and its rounds end by ticks, "
                "so its releases do not say which records came after it"
            )
        return (
            f"the releases of epoch {self.epoch} count the records before offset {self.begin:,}, and the log goes on "
            f"to {self.end:,}: {self.records:,} records lie in between"
        )


def gap_of(settings: Settings, epoch: Epoch) -> EpochGap:
    """The records that came after the last release of `epoch`, as releases and log are now.  Raises KafkaError."""
    events = log.offsets(settings.kafka_address, settings.events)
    last = _last_round(settings, epoch)
    size = events_of(epoch.privacy["rounds"])
    if size is None:
        return EpochGap(epoch.number, last, None, events.end)
    begin = epoch.first_offset + last * size
    return EpochGap(epoch.number, last, min(max(begin, events.first), events.end), events.end)


def _last_round(settings: Settings, epoch: Epoch) -> int:
    releases = ReleasesTopic(settings.kafka_address, settings.releases)
    try:
        newest = newest_release(releases)
    finally:
        releases.close()
    return newest.round if newest is not None and newest.nonce == epoch.nonce.hex() else 0


def lost_epoch(settings: Settings, redis: Redis) -> Epoch | None:
    """The epoch that was opened last, if it cannot be counted to its end because its state or its key is lost."""
    if settings.epochs not in log.topics(settings.kafka_address):
        return None
    journal = EpochJournal(settings)
    if journal.last is None:
        return None
    closed = journal.closed.get(journal.last.epoch.number)
    if closed is not None:
        return journal.last.epoch if closed.end_unknown else None
    try:
        key = noise_key(settings.noise_key, redis, settings.stream, may_create=False)
        checkpoint = CheckpointStore(redis, settings.stream).load(key)
    except (EpochRefused, StateDamaged, NoKey):
        return journal.last.epoch
    whole = checkpoint is not None and checkpoint.epoch == journal.last.epoch
    return None if whole else journal.last.epoch
