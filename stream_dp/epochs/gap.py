"""An epoch whose state is lost: which records its releases count, and how many have come since.

A new epoch begins at the end of the log, so that nobody counts those.  It may begin where the last release ends
instead: the lost epoch's charge stays on all offsets from its first one on, so that both are paid for in any case.
"""

from contextlib import closing
from dataclasses import dataclass
from functools import partial

from redis import Redis

from stream_dp.barriers.topic import read_barriers
from stream_dp.config.settings import Settings
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.barrier_chain import decode_barrier, ends_of
from stream_dp.events.rounds import events_of
from stream_dp.kafka import log
from stream_dp.privacy.vector import Vector
from stream_dp.releases.lookup import newest_release
from stream_dp.releases.release import Release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.store.checkpoints import CheckpointStore, StateDamaged
from stream_dp.store.noise_key import NoKey, noise_key


@dataclass(frozen=True)
class EpochGap:
    """The last release of a lost epoch is that of `round`, 0 if there is none, and the log ends before `end`.

    `begin`: no release counts a record at or after these offsets of the partitions, unless transactions left gaps among
    the offsets.  None where the barriers that ended the rounds do not say it.
    """

    epoch: int
    round: int
    begin: Vector | None
    end: Vector

    @property
    def records(self) -> int:
        """How many offsets lie between the last release and the end of the log."""
        return 0 if self.begin is None else sum(self.end) - sum(self.begin)

    def __str__(self) -> str:
        if self.begin is None:
            return (
                f"the last release of epoch {self.epoch} is that of round {self.round:,}, and the barrier that closed "
                "that round is lost, or several records claim to be it, so nobody can tell which records came after it"
            )
        return (
            f"the releases of epoch {self.epoch} count the records before offset {_text(self.begin)}, and the log "
            f"goes on to {_text(self.end)}: {self.records:,} records lie in between"
        )


def _text(offsets: Vector) -> str:
    return "/".join(f"{offset:,}" for offset in offsets)


def gap_of(settings: Settings, epoch: Epoch) -> EpochGap:
    """The records that came after the last release of `epoch`, as releases and log are now.  Raises KafkaError."""
    events = log.offsets_of_all(settings.kafka_address, settings.events)
    last = _last_release(settings, epoch)
    begin = epoch.offsets if last is None else _end_of_round(settings, epoch, last)
    if begin is not None:
        begin = log.within(begin, events)
    ends = tuple(partition.end for partition in events)
    return EpochGap(epoch.number, 0 if last is None else last.round, begin, ends)


def _last_release(settings: Settings, epoch: Epoch) -> Release | None:
    with closing(ReleasesTopic(settings.kafka_address, settings.releases)) as releases:
        newest = newest_release(releases)
    return newest if newest is not None and newest.nonce == epoch.nonce.hex() else None


def _end_of_round(settings: Settings, epoch: Epoch, last: Release) -> Vector | None:
    """The offsets before which the round of a release ends; None where no one barrier tells it.

    The key that shows which barriers count may be lost.  The release says when its barrier was due and, where barriers
    end rounds, its round which one of the epoch's it was.  Where events do, it is the one up to which they stand.
    """
    size, after = events_of(epoch.privacy["rounds"]), epoch.after_barrier
    if after is None:  # of a version whose rounds were ended otherwise, or without barriers
        return None if size is None else (epoch.first_offset + last.round * size,)
    number, due = after.number + last.round, milliseconds(parse_time(last.ts))
    end = log.offsets(settings.kafka_address, settings.barriers).end
    barriers = (decode_barrier(value) for _, value in read_barriers(settings, after.next_offset, end))
    ends = {
        ends_of(barrier.offsets)
        for barrier in barriers
        if barrier is not None and barrier.due == due and (barrier.n == number or size is not None)
    }
    return ends.pop() if len(ends) == 1 else None


def lost_epoch(settings: Settings, redis: Redis) -> Epoch | None:
    """The epoch that was opened last, if it cannot be counted to its end because its state or its key is lost."""
    if not log.existing(settings.kafka_address, settings.epochs):
        return None
    find_key = partial(noise_key, settings.noise_key, redis, settings.stream, may_create=False)
    journal = EpochJournal(settings, find_key)
    if journal.last is None:
        return None
    closed = journal.closed.get(journal.last.epoch.number)
    if closed is not None:
        return journal.last.epoch if closed.end_unknown else None
    try:
        checkpoint = CheckpointStore(redis, settings.stream).load(find_key())
    except (EpochRefused, StateDamaged, NoKey):
        return journal.last.epoch
    whole = checkpoint is not None and checkpoint.epoch == journal.last.epoch
    return None if whole else journal.last.epoch
