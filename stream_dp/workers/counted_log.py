"""Whether the log is still the one that was counted: what was counted last must stand where it stood.

Asked at a start, and by a session every few seconds: a topic that is made anew under a running worker, with more
records, would otherwise just seem to go on.
"""

import logging

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from stream_dp.barriers.topic import check_barrier, check_ends
from stream_dp.config.settings import Settings
from stream_dp.events.log_digest import LogDigester, offset_of
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.kafka.consuming import batch_consumer
from stream_dp.pipeline.pipeline import Position
from stream_dp.privacy.vector import at
from stream_dp.store.checkpoint_records import Checkpoint

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 3.0
_FETCHED_BYTES = 16_384
"""Most bytes of a partition that are read for its last record, but for a batch that alone is larger."""


def check_log(settings: Settings, checkpoint: Checkpoint, digester: LogDigester) -> None:
    """Raise `LogRefused` unless the last record applied of each partition is where it was, and the last barrier is."""
    position = checkpoint.position
    held = log.offsets_of_all(settings.kafka_address, settings.events)
    for number, (events, _) in enumerate(zip(held, position.offsets, strict=False)):
        check_partition(settings, checkpoint, digester, number, events)
    if position.barrier is not None:
        check_ends(settings, [events.end for events in held], position.offsets)
        check_barrier(settings, position.barrier)


def check_partition(
    settings: Settings, checkpoint: Checkpoint, digester: LogDigester, number: int, events: log.Offsets
) -> None:
    """Raise `LogRefused` unless the last record applied of a partition is where it was; `events`: what it holds."""
    position = checkpoint.position
    lasts, next_offset = position.log.lasts, at(position.offsets, number)
    last = lasts[number] if number < len(lasts) else b""
    offset = offset_of(last)
    if offset is not None:
        place = settings.kafka_address, settings.events, offset, offset + 1, number
        if offset < events.first and _goes_on(settings, checkpoint, next_offset, number, events):
            return
        found = list(log.read(*place)) if offset in events else []
        if [digester.in_place(record) for record in found] != [last]:
            raise another_log(settings.events, offset, number)
    elif next_offset < events.first:
        raise log.LogRefused(
            f"the topic {settings.events!r} has lost its first records before they were counted: "
            "use another stream name"
        )
    elif next_offset and settings.events in checkpoint.made_anew:
        raise log.LogRefused(
            f"the topic {settings.events!r} is not the log that was counted: it was deleted and re-created, or comes "
            f"from another cluster, and nothing shows that its records before offset {next_offset} are those "
            "that were left out or counted before; restore it, or open a new epoch, which is charged, with --new-epoch"
        )


def _goes_on(
    settings: Settings, checkpoint: Checkpoint, next_offset: int, number: int, events: log.Offsets
) -> bool:
    """Whether another team's topic has only forgotten what was counted.  It says what that leaves unproved.

    A topic of one identity loses records at its beginning alone, so those from `next_offset` on are what they were.
    Our own topics keep their records for ever, and one that does not is refused.
    """
    if settings.owns_events or settings.events not in checkpoint.unchanged or next_offset < events.first:
        return False
    logger.warning(
        "the topic %r no longer holds the last record counted of partition %d, because of its retention: only "
        "the identity that Kafka reports still shows that it is the log that was counted, which is weaker than "
        "comparing records; lost state could not be rebuilt; keep the records for longer than the worker may be down",
        settings.events,
        number,
    )
    return True


def another_log(topic: str, offset: int, partition: int) -> log.LogRefused:
    """What to say where the record at `offset`, which was counted, is not there any more."""
    where = f" of partition {partition}" if partition else ""
    return log.LogRefused(
        f"the topic {topic!r} is not the log that was counted: the last record counted, at "
        f"offset {offset}{where}, is missing or has changed; the topic was truncated, compacted or re-created; restore "
        "it, or open a new epoch, which is charged, with --new-epoch"
    )


class CountedLog:
    """What a running worker counted last, with a reader of its own to look at it again; its owner starts and stops it.

    No answer is no proof of another log, and neither is a record that the topic's retention has removed.
    """

    def __init__(self, settings: Settings, digester: LogDigester) -> None:
        self._settings, self._digester = settings, digester
        self._lasts: tuple[bytes, ...] = ()  # of each partition, place and digest of the last record counted
        self.reader = batch_consumer(
            settings.kafka_address,
            auto_offset_reset="none",
            max_partition_fetch_bytes=_FETCHED_BYTES,
            fetch_max_wait_ms=1,
        )

    def begin(self) -> None:
        """The reader has been started."""
        self._assign()

    def _assign(self) -> None:
        """Partitions never go, and those that come are there before anything of them was counted."""
        places = [self._place(number) for number in range(max(1, len(self._lasts)))]
        if len(self.reader.assignment()) < len(places):
            self.reader.assign(places)
            self.reader.pause(*places)

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self._settings.events, partition)

    @property
    def holds_any(self) -> bool:
        """Whether a record is known that was counted."""
        return any(self._lasts)

    def counted(self, position: Position) -> None:
        """All before `position` was counted."""
        self._lasts = position.log.lasts

    async def check(self, position: Position) -> None:
        """Raise `LogRefused` if what was counted last is another record now; then remember what is at `position`."""
        self._assign()
        if await self._are_in_place(
            {self._place(number): last for number, last in enumerate(self._lasts) if last}
        ):
            self.counted(position)

    async def _are_in_place(self, lasts: dict[TopicPartition, bytes]) -> bool:
        """Whether each of these records was found, or is kept no longer.  All partitions are asked at once."""
        awaited = {place: offset_of(last) or 0 for place, last in lasts.items()}
        for place, offset in awaited.items():
            self.reader.seek(place, offset)
        self.reader.resume(*awaited)
        try:
            while awaited:
                for place, record in await self._found(awaited):
                    if record is not None and self._digester.in_place(Record.of(record)) != lasts[place]:
                        raise another_log(self._settings.events, record.offset, place.partition)
                    del awaited[place]
                    self.reader.pause(place)
        except TimeoutError:
            return False
        finally:
            self.reader.pause(*awaited)
        return True

    async def _found(
        self, awaited: dict[TopicPartition, int]
    ) -> list[tuple[TopicPartition, ConsumerRecord | None]]:
        """What comes first: a record from its offset on, or None where it is kept no longer.  Raises TimeoutError."""
        try:
            found = await self.reader.getmany(*awaited, timeout_ms=int(_ANSWER_SECONDS * 1000), max_records=1)
        except OffsetOutOfRangeError as lost:
            [place] = lost.args[0]
            first = await self.reader.beginning_offsets([place])
            if first[place] <= awaited[place]:
                raise
            return [(place, None)]
        if not found:
            raise TimeoutError
        return [(place, record) for place, [record] in found.items()]
