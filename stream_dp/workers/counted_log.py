"""Whether the log is still the one that was counted: what was counted last must stand where it stood.

Asked at a start, and by a session every few seconds: a topic that is made anew under a running worker, with more
records, would otherwise just seem to go on.
"""

from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from stream_dp.barriers.topic import check_barrier, cut_off
from stream_dp.config.settings import Settings
from stream_dp.events.log_digest import LogDigester
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.kafka.consuming import consumer
from stream_dp.pipeline.pipeline import Position
from stream_dp.store.checkpoint_records import Checkpoint

_ANSWER_SECONDS = 3.0


def check_log(settings: Settings, checkpoint: Checkpoint, digester: LogDigester) -> None:
    """Raise `LogRefused` unless the last record applied is still where it was, and the last barrier is."""
    position = checkpoint.position
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
    elif position.next_offset and settings.events in checkpoint.made_anew:
        raise log.LogRefused(
            f"the topic {settings.events!r} is not the log that was counted: it was deleted and made anew, or comes "
            f"from another cluster, and nothing shows that its records before offset {position.next_offset} are those "
            "that were left out or counted before; restore it, or open a new epoch, which is charged, with --new-epoch"
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


class CountedLog:
    """What a running worker counted last, with a reader of its own to look at it again; its owner starts and stops it.

    No answer is no proof of another log, and neither is a record that the topic's retention has removed.
    """

    def __init__(self, settings: Settings, digester: LogDigester) -> None:
        self._settings, self._digester = settings, digester
        self._partition = TopicPartition(settings.events, 0)
        self._last = (
            0,
            b"",
        )  # offset and digest of the last record counted; the latter is empty where none was
        self.reader = consumer(
            settings.kafka_address,
            auto_offset_reset="none",
            max_partition_fetch_bytes=1,  # one batch comes in any case
            fetch_max_wait_ms=1,
        )

    def begin(self) -> None:
        """The reader has been started."""
        self.reader.assign([self._partition])
        self.reader.pause(self._partition)

    @property
    def holds_any(self) -> bool:
        """Whether a record is known that was counted."""
        return bool(self._last[1])

    def counted(self, position: Position) -> None:
        """All before `position` was counted."""
        self._last = position.log.last_offset or 0, position.log.last

    async def check(self, position: Position) -> None:
        """Raise `LogRefused` if what was counted last is another record now; then remember what is at `position`."""
        if self.holds_any and not await self._is_in_place(*self._last):
            return
        self.counted(position)

    async def _is_in_place(self, offset: int, digest: bytes) -> bool:
        """Whether the record was found, or is kept no longer."""
        self.reader.seek(self._partition, offset)
        self.reader.resume(self._partition)
        try:
            found = await self.reader.getmany(
                self._partition, timeout_ms=int(_ANSWER_SECONDS * 1000), max_records=1
            )
        except OffsetOutOfRangeError:
            first = await self.reader.beginning_offsets([self._partition])
            if first[self._partition] <= offset:
                raise
            return True
        finally:
            self.reader.pause(self._partition)
        if self._partition not in found:
            return False
        [record] = found[self._partition]
        if self._digester.in_place(Record.of(record)) != digest:
            raise another_log(self._settings, offset)
        return True
