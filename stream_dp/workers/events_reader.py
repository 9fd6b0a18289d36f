"""What a worker reads: its events and, where rounds end by ticks, its barriers, as one log."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import BarrierChain
from stream_dp.events.merged_log import LogEntry, MergedLog
from stream_dp.events.record import Record
from stream_dp.events.rounds import TICKS
from stream_dp.kafka import log
from stream_dp.pipeline.pipeline import Position

_POLL_MILLISECONDS = 200
_BARRIERS_HELD = 1_000


@dataclass(frozen=True)
class LogEnds:
    """Where the events topic and the barriers topic end; `barriers` is None where rounds do not end by ticks."""

    events: int
    barriers: int | None = None


def ends_of(settings: Settings, epoch: Epoch) -> LogEnds:
    """Where the log of `epoch` ends now.  No barrier before that end is about an event behind it."""
    by_ticks = epoch.privacy["rounds"] == TICKS
    barriers = log.offsets(settings.kafka_address, settings.barriers).end if by_ticks else None
    return LogEnds(log.offsets(settings.kafka_address, settings.events).end, barriers)


class EventsReader:
    """Reads the log of a stream with `consumer` from `position` on.

    `ends` is where the log ended at the start; with `stop_there`, nothing behind it is given.
    """

    def __init__(
        self,
        settings: Settings,
        consumer: AIOKafkaConsumer,
        position: Position,
        chain: BarrierChain | None,
        ends: LogEnds,
        stop_there: bool = False,
    ) -> None:
        self.silence = 0.0
        """For how many seconds nothing has come although it was waited for."""
        self._consumer, self._ends, self._stop_there = consumer, ends, stop_there
        self._at_once = settings.batch_rounds
        self._segment_end: int | None = (
            None  # where the events ended, as the broker told, when the segment began
        )
        self._events = TopicPartition(settings.events, 0)
        self._barriers = TopicPartition(settings.barriers, 0)
        self._starts = {self._events: position.next_offset}
        self._merged: MergedLog | None = None
        if chain is not None:
            self._starts[self._barriers] = chain.last.next_offset
            self._merged = MergedLog(chain, position.next_offset)
        self._barriers_read = self._starts.get(self._barriers, 0)

    def begin(self) -> None:
        """Begin to read; the consumer has been started."""
        self._consumer.assign(list(self._starts))
        for partition, start in self._starts.items():
            self._consumer.seek(partition, start)

    async def read(self, most: int) -> list[LogEntry]:
        """What comes next, nothing if that takes a while: at most `most` events, or barriers and what they close.

        Where no barriers close rounds, none of the events is beyond the end of the segment that has begun.
        """
        began = time.monotonic()
        found = await self._consumer.getmany(
            *await self._wanted(), timeout_ms=_POLL_MILLISECONDS, max_records=await self._limit(most)
        )
        if self._segment_end is None and self._events in found:
            told = self._consumer.last_stable_offset(self._events) or 0
            self._segment_end = max(told, found[self._events][-1].offset + 1)
        self.silence = 0.0 if found else self.silence + time.monotonic() - began
        events = [
            Record.of(record) for record in self._in_time(found.get(self._events, ()), self._ends.events)
        ]
        if self._merged is None:
            return list(events)
        if self._barriers in found:
            self._barriers_read = found[self._barriers][-1].offset + 1
        barriers = self._in_time(found.get(self._barriers, ()), self._ends.barriers or 0)
        self._merged.add_barriers((record.offset, record.value) for record in barriers)
        self._merged.add_events(events, await self._consumer.position(self._events))
        return self._merged.take(self._at_once)

    async def _limit(self, most: int) -> int:
        if self._merged is not None:
            return self._at_once
        if await self.at_segment_end():
            self._segment_end = None
        limit = min(most, self._at_once)
        if self._segment_end is not None:
            limit = min(limit, self._segment_end - await self._consumer.position(self._events))
        return limit

    async def at_segment_end(self) -> bool:
        """Whether all that the log held when the segment began has been read.

        A batch of releases ends there (framing.py), because where a fetch ended depends on how large the events are.
        """
        reached = await self._consumer.position(self._events)
        return self._segment_end is not None and reached >= self._segment_end

    async def _wanted(self) -> list[TopicPartition]:
        """Which topics to read now.  Events behind the last barrier that is known have to be kept in memory."""
        if self._merged is None:
            return [self._events]
        if self._merged.barriers >= _BARRIERS_HELD:
            return [self._events]
        if not self._merged.barriers and not await self._has_all_barriers():
            return [self._barriers]
        return [self._events, self._barriers]

    def _in_time(self, found: Sequence[ConsumerRecord], end: int) -> list[ConsumerRecord]:
        return [record for record in found if record.offset < end] if self._stop_there else list(found)

    async def caught_up(self) -> bool:
        """Whether all that the log held at the start has been given, but for the events of an open round."""
        if self._merged is None:
            return await self._consumer.position(self._events) >= self._ends.events
        return not self._merged.barriers and await self._has_all_barriers()

    async def _has_all_barriers(self) -> bool:
        return await self._consumer.position(self._barriers) >= (self._ends.barriers or 0)

    @property
    def held_back(self) -> int:
        """How many events of an open round are in memory here."""
        return self._merged.events if self._merged is not None else 0

    @property
    def barrier_lag(self) -> int:
        """How many records of the barriers topic are known to wait."""
        if self._merged is None:
            return 0
        unread = (self._consumer.highwater(self._barriers) or 0) - self._barriers_read
        return self._merged.barriers + max(0, unread)

    def lag(self, next_offset: int) -> int:
        """How many records are known to wait from `next_offset` of the events topic on."""
        return max(0, (self._consumer.highwater(self._events) or 0) - next_offset)
