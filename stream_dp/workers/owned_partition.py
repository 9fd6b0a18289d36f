"""A partition in the hands of one member of the intake: its state, its fence, what is read of it.

Nothing that it writes depends on who owns it, so a member that slept can only say again what its successor says.  The
fence in Redis keeps it from saving.  And its state may always be thrown away: the partition is then counted again from
the epoch's beginning, which gives the same frames.
"""

import logging
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.journal import EpochOpened
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.log_digest import LogDigester, offset_of
from stream_dp.events.merged_log import taken_before
from stream_dp.events.records import Records
from stream_dp.events.schema_book import SchemaBook
from stream_dp.kafka import log
from stream_dp.pipeline.partition_counts import PartitionCounts
from stream_dp.pipeline.partition_intake import PartitionIntake, PartOfRound
from stream_dp.store.checkpoints import Checkpoint, CheckpointStore, PreparedCheckpoint, StateDamaged
from stream_dp.workers.counted_log import another_log, check_partition

logger = logging.getLogger(__name__)

_RECORDS_AHEAD = 20_000
"""Most records that are read behind the next barrier, or behind the last one that is known."""

_BYTES_AHEAD = 8 << 20
"""About so many bytes of counts are read ahead of their barriers."""


def state_of_partition(settings: Settings, number: int) -> str:
    """Under which name Redis keeps what a member knows of a partition."""
    kind = "counts" if settings.intake == "counts" else "intake"
    return f"{settings.stream}/{kind}/{number}"


class OwnedPartition(ABC):
    """Partition `number`, taken over when this is made, which reads Redis and Kafka.  Raises a `Refused`.

    `reached` is where to read on in the topic that members divide.
    """

    intake: PartitionIntake | PartitionCounts
    reached: int

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        number: int,
        opened: EpochOpened,
        key: bytes,
        schemas: SchemaBook | None = None,
        topics: Callable[[], dict[str, str]] = dict,
    ) -> None:
        """`key` is the noise key; `schemas`: see `Intake`; `topics` tells the identities of the stream's topics."""
        self.number = number
        self._settings, self._opened, self._key = settings, opened, key
        self._store = CheckpointStore(redis, state_of_partition(settings, number))
        self._store.topics = topics
        self._store.take_over()
        found = self._loaded()
        self._is_new = found is None
        self._barriers: deque[Barrier] = deque()
        self._begin(found, schemas)
        self._saved = (self.intake.passed, time.monotonic())

    @abstractmethod
    def _begin(self, found: Checkpoint | None, schemas: SchemaBook | None) -> None:
        """Make `intake` as the checkpoint has it, once what was counted is seen to be there still."""

    def _loaded(self) -> Checkpoint | None:
        """What Redis holds of this epoch; what cannot be read is counted again."""
        if not self._store.holds_state():
            return None
        try:
            found = self._store.load(self._key)
        except (EpochRefused, StateDamaged) as lost:
            logger.warning(
                "stream %s: partition %d is counted again from the epoch's beginning: %s",
                self._settings.stream,
                self.number,
                lost,
            )
            return None
        return found if found is not None and found.epoch == self._opened.epoch else None

    def check_hold(self) -> None:
        """Raise `Fenced` if another member has taken the partition over."""
        self._store.check_hold()

    @property
    def last_barrier(self) -> Barrier:
        """The last one that is known here."""
        return self._barriers[-1] if self._barriers else self.intake.barrier

    @property
    @abstractmethod
    def counted(self) -> int:
        """The offset up to which it is counted."""

    @property
    def waiting_barriers(self) -> int:
        """How many known barriers have not closed their round here."""
        return len(self._barriers)

    def lacks_records(self, most: int) -> bool:
        """Whether the next barrier, if it is at most number `most`, waits for records of the partition."""
        waits = bool(self._barriers) and not self.intake.finished and self.intake.passed < most
        return waits and not self._has(self._barriers[0])

    def add_barrier(self, barrier: Barrier) -> None:
        """Take the next barrier; one that is known is passed over."""
        if barrier.number == self.last_barrier.number + 1:
            self._barriers.append(barrier)

    @abstractmethod
    def wanted(self, most: int) -> int:
        """The offset up to which to read on, where barriers up to number `most` may close
        rounds; `reached` where nothing is to be.
        """

    @abstractmethod
    def add(self, records: Sequence[Records], reached: int) -> None:
        """The next records; everything before the offset `reached` has been read with them."""

    def close(self, most: int) -> Iterator[PartOfRound]:
        """Close the rounds of barriers up to number `most` of the epoch of which everything has been read."""
        while self._barriers and not self.intake.finished and self.intake.passed < most:
            if not self._has(self._barriers[0]):
                return
            part = self._close(self._barriers.popleft())
            if part is not None:
                yield part

    @abstractmethod
    def _has(self, barrier: Barrier) -> bool:
        """Whether everything has been read that the next barrier closes."""

    @abstractmethod
    def _close(self, barrier: Barrier) -> PartOfRound | None: ...

    @property
    def checkpoint_due(self) -> bool:
        """Whether enough rounds or enough time has passed since the last checkpoint."""
        rounds, at_time = self._saved
        fresh = self.intake.passed - rounds
        return self._settings.checkpoint_pace.of_members.is_due(fresh, time.monotonic() - at_time)

    @property
    def is_saved(self) -> bool:
        """Whether Redis has all that was counted."""
        return self.intake.passed == self._saved[0]

    def prepare(self) -> PreparedCheckpoint:
        """Copy the state, of which the broker has everything by now."""
        if self._is_new:
            self._store.start_over(self._key)
            self._is_new = False
        self._saved = (self.intake.passed, time.monotonic())
        return self._store.prepare(self._checkpoint())

    def commit(self, prepared: PreparedCheckpoint) -> None:
        """Write it to Redis.  Raises `Fenced`."""
        self._store.commit(prepared)

    def _checkpoint(self) -> Checkpoint:
        intake = self.intake
        return Checkpoint(
            intake.epoch, intake.state(), intake.position, 0, self._opened.key_check, intake.pairs
        )


class OwnedEvents(OwnedPartition):
    """A partition of the events topic."""

    intake: PartitionIntake

    def _begin(self, found: Checkpoint | None, schemas: SchemaBook | None) -> None:
        settings, epoch, number = self._settings, self._opened.epoch, self.number
        position, state, pairs = (found.position, found.state, found.pairs) if found else (None, None, b"")
        whose = epoch, self._key, settings.events, number, settings.shards
        self.intake = PartitionIntake(*whose, position, state, pairs, schemas)
        held = log.offsets(settings.kafka_address, settings.events, number)
        digester = LogDigester(self._key, epoch.reads_headers)
        check_partition(settings, found or self._checkpoint(), digester, number, held)
        self.reached = self.counted
        self._records: deque[Records] = deque()

    @property
    def counted(self) -> int:
        """See `OwnedPartition.counted`."""
        return self.intake.next_offset

    def wanted(self, most: int) -> int:
        """What the next barrier closes, and what those behind it close as far as that is not too much."""
        if not self._barriers:
            return sys.maxsize if sum(map(len, self._records)) < _RECORDS_AHEAD else self.reached
        ends = [each.end_of(self.number) for each in self._within(most)]
        enough = self.counted + _RECORDS_AHEAD
        return max([self.reached, *ends[:1], *(end for end in ends if end <= enough)])

    def _within(self, most: int) -> Sequence[Barrier]:
        return [each for place, each in enumerate(self._barriers, self.intake.passed + 1) if place <= most]

    def add(self, records: Sequence[Records], reached: int) -> None:
        """See `OwnedPartition.add`."""
        self._records.extend(records)
        self.reached = max(self.reached, reached)

    def _has(self, barrier: Barrier) -> bool:
        return self.reached >= barrier.end_of(self.number)

    def _close(self, barrier: Barrier) -> PartOfRound | None:
        records = taken_before(self._records, barrier.end_of(self.number))
        return self.intake.close(barrier, list(records))


class OwnedCounts(OwnedPartition):
    """A partition of the counts topic, of the same number as the one of the events topic that was counted."""

    intake: PartitionCounts

    def _begin(self, found: Checkpoint | None, schemas: SchemaBook | None) -> None:
        settings, epoch, number = self._settings, self._opened.epoch, self.number
        whose = epoch, self._key, settings.counts, number, settings.shards
        place = (found.position, found.state) if found else (None, None)
        self.intake = PartitionCounts(*whose, *place)
        held = log.offsets(settings.kafka_address, settings.counts, number)
        self.reached = held.first
        last = self.intake.last
        offset = offset_of(last)
        if offset is not None:
            again = settings.kafka_address, settings.counts, offset, offset + 1, number
            records = list(log.read(*again)) if offset in held else []
            if [LogDigester(self._key).in_place(record) for record in records] != [last]:
                raise another_log(settings.counts, offset, number)
            self.reached = offset
        elif held.first:
            raise log.LogRefused(
                f"the topic {settings.counts!r} has lost its first records before they were counted: keep them for "
                "ever, and let the engine write them again"
            )

    @property
    def counted(self) -> int:
        """See `OwnedPartition.counted`: what waits for its barrier is read."""
        return self.reached

    def wanted(self, most: int) -> int:
        """All that comes, unless much waits and the next round is there."""
        waits = not self._barriers or self.intake.has(self._barriers[0])
        return self.reached if waits and self.intake.held_bytes >= _BYTES_AHEAD else sys.maxsize

    def add(self, records: Sequence[Records], reached: int) -> None:
        """See `OwnedPartition.add`.  Raises `CountsRefused`."""
        for several in records:
            for record in several:
                self.intake.add(record)
        self.reached = max(self.reached, reached)

    def _has(self, barrier: Barrier) -> bool:
        return self.intake.has(barrier)

    def _close(self, barrier: Barrier) -> PartOfRound | None:
        return self.intake.close(barrier)


def take_over(settings: Settings, *place: Any) -> OwnedPartition:
    """Take a partition over, of events or of counts as the settings say; `place`: see `OwnedPartition`."""
    return (OwnedCounts if settings.intake == "counts" else OwnedEvents)(settings, *place)
