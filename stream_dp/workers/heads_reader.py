"""What a worker reads where a group reads the events: the heads of partitions, and the barriers, as one log."""

import asyncio
import time
from collections import deque

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_dp.config.settings import Settings
from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.events.merged_log import LogPart
from stream_dp.events.record import Record
from stream_dp.pipeline.coordinator import Coordinator, HeadsOfRounds
from stream_dp.privacy.vector import Vector, at
from stream_dp.sinks.seals import HEADS_OF_MEMBERS
from stream_dp.workers.events_reader import LogEnds

_POLL_MILLISECONDS = 200
_BARRIERS_HELD = 1_000


class HeadsReader:
    """Reads with `consumer` from where `coordinator` is on.  It serves a session as `EventsReader` does.

    A barrier is given once the heads of all its partitions have come, after them.
    """

    def __init__(
        self,
        settings: Settings,
        consumer: AIOKafkaConsumer,
        coordinator: Coordinator,
        chain: BarrierChain,
        ends: LogEnds,
        stop_there: bool = False,
    ) -> None:
        """`ends`, `stop_there`: see `EventsReader`."""
        self.silence = 0.0
        """For how many seconds nothing has come although it was waited for."""
        self.held_back = 0
        self._consumer, self._ends, self._stop_there = consumer, ends.barriers or 0, stop_there
        self._chain = chain
        self._at_once = settings.batch_rounds
        self._heads = TopicPartition(settings.heads, HEADS_OF_MEMBERS)
        self._barriers = TopicPartition(settings.barriers, 0)
        self._barriers_read, self._heads_read = chain.last.next_offset, coordinator.heads_offset
        self._waiting = HeadsOfRounds(coordinator.epoch, coordinator.passed)
        self._round = coordinator.passed
        self._open: deque[Barrier] = deque()

    def begin(self) -> None:
        """Begin to read; the consumer has been started."""
        self._consumer.assign([self._heads, self._barriers])
        self._consumer.seek(self._heads, self._heads_read)
        self._consumer.seek(self._barriers, self._barriers_read)

    async def read(self, most: int) -> list[LogPart]:
        """What comes next, nothing if that takes a while: at most `most` barriers, each after its heads."""
        taken = self._taken(most)
        if taken:
            await asyncio.sleep(0)  # whoever else waits has a turn
            return taken
        wanted = [self._heads] if len(self._open) >= _BARRIERS_HELD else [self._heads, self._barriers]
        began = time.monotonic()
        found = await self._consumer.getmany(*wanted, timeout_ms=_POLL_MILLISECONDS)
        self.silence = 0.0 if found else self.silence + time.monotonic() - began
        for record in found.get(self._barriers, ()):
            self._barriers_read = record.offset + 1
            if not self._stop_there or record.offset < self._ends:
                barrier = self._chain.take(record.offset, record.value)
                if barrier is not None:
                    self._open.append(barrier)
        self._waiting.add(Record.of(record) for record in found.get(self._heads, ()))
        return self._taken(most)

    def _taken(self, most: int) -> list[LogPart]:
        taken: list[LogPart] = []
        while self._open and most:
            partitions = len(self._open[0].offsets)
            if self._waiting.missing(self._round + 1, partitions):
                break
            self._round += 1
            taken += [*self._waiting.take(self._round, partitions), self._open.popleft()]
            most -= 1
        return taken

    @property
    def awaited(self) -> list[int]:
        """The partitions that hold up the next round."""
        return self._waiting.missing(self._round + 1, len(self._open[0].offsets)) if self._open else []

    async def at_segment_end(self) -> bool:
        """Whether a batch ends here: a barrier ends one."""
        return True

    async def caught_up(self) -> bool:
        """Whether all that the log held at the start has been given."""
        return not self._open and self._barriers_read >= self._ends

    @property
    def barrier_lag(self) -> int:
        """How many records of the barriers topic are known to wait."""
        unread = (self._consumer.highwater(self._barriers) or 0) - self._barriers_read
        return len(self._open) + max(0, unread)

    def lag(self, offsets: Vector) -> int:
        """How many records are known to wait from `offsets` of the events topic on, as barriers tell."""
        ends = self._chain.last.ends
        return sum(max(0, end - at(offsets, number)) for number, end in enumerate(ends))
