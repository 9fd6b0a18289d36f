"""Reads ranges of partitions in a process that lives from task to task, over a connection that stays."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping

from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError

from stream_dp.config.connections import Kafka
from stream_dp.events.merged_log import taken_before
from stream_dp.events.records import Records
from stream_dp.kafka.consuming import BatchConsumer, batch_consumer

_POLL_MILLISECONDS = 500
_SILENT_SECONDS = 20.0


class PartitionReader:
    """The partitions of `topic`, read from one offset to another; `headers`: whether records are to hold theirs."""

    def __init__(self, kafka: Kafka, topic: str, headers: bool) -> None:
        self._kafka, self._topic, self._headers = kafka, topic, headers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._consumer: BatchConsumer | None = None
        self._assigned: frozenset[int] = frozenset()
        self._held: dict[int, deque[Records]] = {}  # what was read beyond the end that was asked for
        self._reached: dict[int, int] = {}
        self._given: dict[int, int] = {}  # the end that was asked for last

    def read(self, ranges: Mapping[int, tuple[int, int]]) -> dict[int, deque[Records]]:
        """The records of partitions from a first offset to before another.

        Raises KafkaError, also if nothing comes for long.
        """
        self._loop = self._loop or asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(self._read(ranges))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection up; the next range makes another."""
        consumer, loop, self._consumer, self._loop = self._consumer, self._loop, None, None
        self._assigned = frozenset()
        if loop is not None:
            if consumer is not None:
                loop.run_until_complete(consumer.stop())
            loop.close()

    async def _read(self, ranges: Mapping[int, tuple[int, int]]) -> dict[int, deque[Records]]:
        if self._consumer is None:
            self._consumer = batch_consumer(self._kafka, auto_offset_reset="none")
            await self._consumer.start()
        consumer = self._consumer
        if self._assigned != frozenset(ranges):
            self._assigned, self._given = frozenset(ranges), {}
            consumer.assign([TopicPartition(self._topic, number) for number in ranges])
        for number, (start, end) in ranges.items():
            if self._given.get(number) != start:
                self._held[number], self._reached[number] = deque(), start
                consumer.seek(TopicPartition(self._topic, number), start)
            self._given[number] = end
        since = time.monotonic()
        while wanted := {
            TopicPartition(self._topic, number): end
            for number, (_, end) in ranges.items()
            if self._reached[number] < end
        }:
            found = await consumer.records_up_to(wanted, _POLL_MILLISECONDS, self._headers)
            for place in wanted:
                self._held[place.partition].extend(found.get(place, ()))
                now = await consumer.position(place)
                if now != self._reached[place.partition]:
                    self._reached[place.partition], since = now, time.monotonic()
            if time.monotonic() - since > _SILENT_SECONDS:
                raise KafkaTimeoutError(f"no records of {self._topic!r}, which holds more")
        return {number: deque(taken_before(self._held[number], end)) for number, (_, end) in ranges.items()}
