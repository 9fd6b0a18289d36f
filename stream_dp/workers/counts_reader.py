"""What a worker reads if an engine counts the events: counted rounds, and the barriers that close them, as one log."""

import asyncio
import time
from collections import deque

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_dp.config.settings import Settings
from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.events.counted_round import CountedRounds
from stream_dp.events.merged_log import LogPart
from stream_dp.privacy.vector import Vector, at
from stream_dp.workers.events_reader import LogEnds

_POLL_MILLISECONDS = 200
_BARRIERS_HELD = 1_000


class CountsReader:
    """Serves a session as `EventsReader` does: each barrier comes once its counted round has come, and after that.

    It reads the counts topic with `consumer` from the offset `begin` on; `rounds` puts its records together.
    """

    def __init__(
        self,
        settings: Settings,
        consumer: AIOKafkaConsumer,
        rounds: CountedRounds,
        begin: int,
        chain: BarrierChain,
        ends: LogEnds,
        stop_there: bool = False,
    ) -> None:
        """`ends`, `stop_there`: see `EventsReader`."""
        self.silence = 0.0
        """For how many seconds nothing has come although it was waited for."""
        self.held_back = 0
        self._consumer, self._ends, self._stop_there = consumer, ends.barriers or 0, stop_there
        self._chain, self._rounds = chain, rounds
        self._counts = TopicPartition(settings.counts, 0)
        self._barriers = TopicPartition(settings.barriers, 0)
        self._barriers_read, self._counts_read = chain.last.next_offset, begin
        self._open: deque[Barrier] = deque()

    @property
    def counts_offset(self) -> int:
        """From where on the counts topic has to be read again: that of the first record that is not used up."""
        first = self._rounds.first_offset
        return self._counts_read if first is None else first

    def begin(self) -> None:
        """Begin to read; the consumer has been started."""
        self._consumer.assign([self._counts, self._barriers])
        self._consumer.seek(self._counts, self._counts_read)
        self._consumer.seek(self._barriers, self._barriers_read)

    async def read(self, most: int) -> list[LogPart]:
        """What comes next, nothing if that takes a while: at most `most` barriers, each after its counted round."""
        if taken := self._taken(most):
            await asyncio.sleep(0)  # whoever else waits has a turn
            return taken
        wanted = [self._counts] if len(self._open) >= _BARRIERS_HELD else [self._counts, self._barriers]
        began = time.monotonic()
        found = await self._consumer.getmany(*wanted, timeout_ms=_POLL_MILLISECONDS)
        self.silence = 0.0 if found else self.silence + time.monotonic() - began
        for record in found.get(self._barriers, ()):
            self._barriers_read = record.offset + 1
            if not self._stop_there or record.offset < self._ends:
                barrier = self._chain.take(record.offset, record.value)
                if barrier is not None:
                    self._open.append(barrier)
        for record in found.get(self._counts, ()):
            self._rounds.add(record.offset, record.value)
            self._counts_read = record.offset + 1
        return self._taken(most)

    def _taken(self, most: int) -> list[LogPart]:
        taken: list[LogPart] = []
        while self._open and most and self._rounds.has_next():
            taken += [self._rounds.take(), self._open.popleft()]
            most -= 1
        return taken

    @property
    def awaited(self) -> str | None:
        """What the next round waits for, if a barrier has closed it."""
        return "engine" if self._open else None

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
