"""What every member of a group reads: the barriers, and how far the worker has sealed rounds."""

import asyncio

from aiokafka import TopicPartition

from stream_dp.config.settings import Settings
from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.kafka.consuming import consumer
from stream_dp.pipeline.partition_frames import decode_progress
from stream_dp.sinks.seals import HEADS_OF_WORKER


class BarrierFeed:
    """The barriers that have come, and in `sealed` the last round of the epoch that is known to be sealed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._barriers = TopicPartition(settings.barriers, 0)
        self._progress = TopicPartition(settings.heads, HEADS_OF_WORKER)
        self._chain: BarrierChain | None = None
        self._nonce, self.sealed = b"", 0  # see `Progress`
        self.reader = consumer(settings.kafka_address, auto_offset_reset="none")

    @property
    def lag(self) -> int:
        """How many records of the barriers topic are known to wait."""
        read = self._chain.last.next_offset if self._chain is not None else 0
        return max(0, (self.reader.highwater(self._barriers) or 0) - read)

    async def begin(self, nonce: bytes, key: bytes, last: Barrier) -> None:
        """Give the barriers of an epoch from the one after `last` on.  The reader has been started."""
        if nonce != self._nonce:
            self._nonce, self.sealed = nonce, 0
        self._chain = BarrierChain(key, self._settings.stream, last)
        self.reader.assign([self._barriers, self._progress])
        self.reader.seek(self._barriers, last.next_offset)
        ends = await self.reader.end_offsets([self._progress])
        self.reader.seek(self._progress, max(0, ends[self._progress] - 1))

    async def read(self, milliseconds: int, barriers: bool) -> list[Barrier]:
        """The barriers that have come; none without `barriers`."""
        if self._chain is None:
            await asyncio.sleep(milliseconds / 1000)
            return []
        wanted = [self._progress, self._barriers] if barriers else [self._progress]
        found = await self.reader.getmany(*wanted, timeout_ms=milliseconds)
        for record in found.get(self._progress, ()):
            told = decode_progress(record.value)
            if told is not None and told.nonce == self._nonce:
                self.sealed = max(self.sealed, told.round)
        taken = (self._chain.take(record.offset, record.value) for record in found.get(self._barriers, ()))
        return [barrier for barrier in taken if barrier is not None]
