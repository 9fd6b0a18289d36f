"""What a worker reads: its events and, where there are barriers, these too, as one log."""

import asyncio
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import TopicPartition

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import BarrierChain
from stream_dp.events.merged_log import LogEntry, LogPart, MergedLog, first_of, one_by_one
from stream_dp.events.records import Records
from stream_dp.kafka import log
from stream_dp.kafka.consuming import BatchConsumer
from stream_dp.pipeline.pipeline import Position
from stream_dp.privacy.vector import Vector, at

_POLL_MILLISECONDS = 200
_BARRIERS_HELD = 1_000
_EVENTS_AHEAD = 50_000
"""Most events that are read behind the first barrier that waits for some, or behind the last one that is known."""


@dataclass(frozen=True)
class LogEnds:
    """Where each partition of the events topic ends, and the barriers topic; None where there are no barriers."""

    events: Vector
    barriers: int | None = None


def ends_of(settings: Settings, epoch: Epoch) -> LogEnds:
    """Where the log of `epoch` ends now.  No barrier before that end is about an event behind it."""
    has_barriers = epoch.after_barrier is not None
    barriers = log.offsets(settings.kafka_address, settings.barriers).end if has_barriers else None
    held = log.offsets_of_all(settings.kafka_address, settings.events)
    return LogEnds(tuple(partition.end for partition in held), barriers)


class EventsReader:
    """Reads the log of a stream with `consumer` from `position` on.

    `ends` is where the log ended at the start; with `stop_there`, nothing behind it is given.
    """

    def __init__(
        self,
        settings: Settings,
        consumer: BatchConsumer,
        position: Position,
        chain: BarrierChain | None,
        ends: LogEnds,
        stop_there: bool = False,
        by_events: bool = False,
        headers: bool = False,
    ) -> None:
        """`by_events`: events end rounds, although there are barriers; `headers`: theirs decide about events."""
        self.silence = 0.0
        """For how many seconds nothing has come although it was waited for."""
        self._consumer, self._ends, self._stop_there = consumer, ends, stop_there
        self._at_once, self._by_events = settings.batch_rounds, by_events
        self._headers = headers
        self._segment_end: int | None = (
            None  # where the events ended, as the broker told, when the segment began
        )
        self._topic = settings.events
        self._barriers = TopicPartition(settings.barriers, 0)
        self._starts = position.offsets
        self._events: list[TopicPartition] = []
        self._fetched: deque[Records] = deque()  # of the only partition, what was not given yet
        self._merged: MergedLog | None = None
        self._segment: deque[LogEntry] = (
            deque()
        )  # where events end rounds, the rest of what a barrier has ordered
        self._barriers_read = 0
        if chain is not None:
            self._barriers_read = chain.last.next_offset
            self._merged = MergedLog(chain, *position.offsets, barriers_first=by_events)

    def begin(self) -> None:
        """Begin to read; the consumer has been started."""
        offsets = {self._place(number): offset for number, offset in enumerate(self._starts)}
        if self._merged is not None:
            offsets[self._barriers] = self._barriers_read
        self._assign(offsets)

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    def _assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign(list(offsets))
        for place, offset in offsets.items():
            self._consumer.seek(place, offset)
        self._events = [place for place in offsets if place != self._barriers]

    async def _assign_new_partitions(self) -> None:
        """Read the partitions too that a barrier was the first to name."""
        known = len(self._events)
        if self._merged is None or self._merged.partitions == known:
            return
        offsets = {place: await self._consumer.position(place) for place in (*self._events, self._barriers)}
        for number in range(known, self._merged.partitions):
            offsets[self._place(number)] = at(self._starts, number)
        self._assign(offsets)

    async def read(self, most: int) -> list[LogPart]:
        """What comes next, nothing if that takes a while: at most `most` events, or barriers and what they close.

        Where no barriers close rounds, none of the events is beyond the end of the segment that has begun.
        """
        if self._merged is None:
            return [*await self._read_plain(most)]
        if not self._by_events:
            return await self._read_merged(self._merged, most)
        if not self._segment:
            self._segment.extend(one_by_one(await self._read_merged(self._merged, 1)))
        return [self._segment.popleft() for _ in range(min(most, len(self._segment)))]

    async def _read_plain(self, most: int) -> list[Records]:
        """The next events of the only partition."""
        [place] = self._events
        if await self.at_segment_end():
            self._segment_end = None
        most = min(most, self._at_once)
        held = sum(map(len, self._fetched))
        if held < most:
            wanted = {place: await self._consumer.position(place) + most - held}
            found = await self._come(wanted, 0 if held else _POLL_MILLISECONDS)
            in_time = (self._before(records, at(self._ends.events, 0)) for records in found.get(place, ()))
            self._fetched.extend(filter(None, in_time))
        end = sys.maxsize if self._segment_end is None else self._segment_end
        taken = [*first_of(self._fetched, most, end)]
        if self._segment_end is None and taken:
            told = self._consumer.last_stable_offset(place) or 0
            self._segment_end = max(told, taken[-1].offsets[-1] + 1)
        return taken

    async def _reached(self) -> int:
        """The next offset of the only partition that was not given yet."""
        return (
            self._fetched[0].offsets[0] if self._fetched else await self._consumer.position(self._events[0])
        )

    async def _read_merged(self, merged: MergedLog, most: int) -> list[LogPart]:
        """What up to `most` barriers tell of the order of events."""
        if merged.barriers and not merged.awaited:
            await asyncio.sleep(0)  # whoever else waits has a turn
            return merged.take(most)
        found = await self._come(await self._wanted(merged), _POLL_MILLISECONDS)
        for records in found.pop(self._barriers, ()):
            self._barriers_read = records.offsets[-1] + 1
            in_time = self._before(records, self._ends.barriers or 0)
            merged.add_barriers(zip(in_time.offsets, in_time.values, strict=True))
        for place in self._events:
            number = place.partition
            for records in found.get(place, ()):
                in_time = self._before(records, at(self._ends.events, number))
                merged.add_events(in_time, records.offsets[-1] + 1, number)
            merged.add_events((), await self._consumer.position(place), number)
        await self._assign_new_partitions()
        return merged.take(most)

    def _before(self, records: Records, end: int) -> Records:
        """Those that are to be given."""
        return records[: bisect_left(records.offsets, end)] if self._stop_there else records

    async def _come(
        self, wanted: Mapping[TopicPartition, int], milliseconds: int
    ) -> dict[TopicPartition, list[Records]]:
        began = time.monotonic()
        found = await self._consumer.records_up_to(wanted, milliseconds, self._headers)
        self.silence = 0.0 if found else self.silence + time.monotonic() - began
        return found

    async def at_segment_end(self) -> bool:
        """Whether all that the log held when the segment began has been read.

        A batch of releases ends there (framing.py), because where a fetch ended depends on how large the events are.
        Where a barrier says in which order events come, its segment ends with them.
        """
        if self._merged is not None:
            return not self._segment
        return self._segment_end is not None and await self._reached() >= self._segment_end

    async def _wanted(self, merged: MergedLog) -> dict[TopicPartition, int]:
        """How far to read each topic now.  Events behind the last barrier that is known have to be kept in memory."""
        wanted = {} if merged.barriers >= _BARRIERS_HELD else {self._barriers: sys.maxsize}
        if merged.barriers:
            ends = merged.wanted(_EVENTS_AHEAD)
            return {**{place: at(ends, place.partition) for place in self._events}, **wanted}
        if merged.events < _EVENTS_AHEAD and await self._has_all_barriers():
            wanted |= dict.fromkeys(self._events, sys.maxsize)
        return wanted

    async def caught_up(self) -> bool:
        """Whether all that the log held at the start has been given, but for the events of an open round."""
        if self._merged is None:
            return await self._reached() >= self._ends.events[0]
        return not (self._segment or self._merged.barriers) and await self._has_all_barriers()

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

    def lag(self, offsets: Vector) -> int:
        """How many records are known to wait from `offsets` of the events topic on."""
        return sum(
            max(0, (self._consumer.highwater(place) or 0) - at(offsets, place.partition))
            for place in self._events
        )
