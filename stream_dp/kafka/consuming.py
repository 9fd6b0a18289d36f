"""Consumers of aiokafka, made in one place."""

import asyncio
import sys
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import aiokafka.consumer.fetcher
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import FetchResult

from stream_dp.config.connections import Kafka, aiokafka_options
from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.kafka.record_batches import read_within_bounds
from stream_dp.kafka.topic_metadata import METADATA_MILLISECONDS, make_no_topics

_PATIENT, _IN_A_HURRY = 100, 5
"""How many milliseconds the broker may wait for records of a fetch, all of whose partitions are at their ends.

Until it answers, aiokafka asks it for nothing else: a partition that has more would wait as well.  So it is in a hurry
where records are known to be there, unless none of them came last time: those of a partition without a leader, say.
"""

read_within_bounds(aiokafka.consumer.fetcher)


def batch_consumer(kafka: Kafka, **settings: Any) -> "BatchConsumer":
    """A consumer of committed records, by whole batches, that commits no offsets by itself.

    `settings` are those of aiokafka.
    """
    reader = BatchConsumer(
        **aiokafka_options(kafka),
        enable_auto_commit=False,
        isolation_level="read_committed",
        metadata_max_age_ms=METADATA_MILLISECONDS,
        **settings,
    )
    make_no_topics(reader._client)
    return reader


class BatchConsumer(AIOKafkaConsumer):
    """Gives records by whole batches, and leaves those that nobody wants yet where they are, as they were fetched."""

    _silent = False
    """Whether nothing came the last time that it was asked."""

    async def start(self) -> None:
        """See `AIOKafkaConsumer.start`."""
        await super().start()
        # Else it would fetch nothing while it still holds something of another partition.
        self._fetcher._prefetch_backoff = 0

    async def records_up_to(
        self, ends: Mapping[TopicPartition, int], timeout_ms: int, headers: bool = False
    ) -> dict[TopicPartition, list[Records]]:
        """What has come of these partitions, each up to the batch that reaches its end; waits for the first records.

        An end is the offset before which there are records, or `sys.maxsize` for all that come.
        `headers`: whether the records are to hold theirs.  `position` tells how far each was read.
        Raises as `getmany` does.
        """
        self._coordinator.check_errors()
        behind = any(self._position(place) < end < sys.maxsize for place, end in ends.items())
        self._fetcher._fetch_max_wait_ms = _IN_A_HURRY if behind and not self._silent else _PATIENT
        found = await self._come(ends, timeout_ms / 1000, headers)
        self._silent = bool(ends) and not found
        return found

    async def _come(
        self, ends: Mapping[TopicPartition, int], seconds: float, headers: bool
    ) -> dict[TopicPartition, list[Records]]:
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = {
                place: records for place in ends if (records := await self._held(place, ends[place], headers))
            }
            left = deadline - asyncio.get_running_loop().time()
            if found or left <= 0 or all(self._position(place) >= end for place, end in ends.items()):
                return found
            waiter = self._fetcher._create_fetch_waiter()
            await asyncio.wait([waiter], timeout=left)
            if waiter.done():
                waiter.result()

    def _position(self, place: TopicPartition) -> int:
        """Where to read on; -1 where that is not known."""
        assignment = self._subscription.subscription.assignment
        state = assignment.state_value(place) if assignment is not None else None
        return int(state.position) if state is not None and state.has_valid_position else -1

    async def _held(self, place: TopicPartition, end: int, headers: bool) -> list[Records]:
        """What has been fetched of a partition, up to the batch that reaches `end`."""
        fetched, found = self._fetcher._records, list[Records]()
        while (result := fetched.get(place)) is not None and self._position(place) < end:
            if type(result) is not FetchResult:  # an error, which this raises
                await self.getmany(place)
                continue
            before = self._position(place)
            if result.has_more():
                batches = result._partition_records._records
                batches.columns_of, batches.headers = place.partition, headers
            got = result.getone()
            if got is None:
                del fetched[place]
                self._fetcher._notify(self._fetcher._wait_consume_future)
                continue
            records = got.value if isinstance(got.value, Records) else Records.of([Record.of(got)])
            found.append(
                records if records.offsets[0] >= before else records[bisect_left(records.offsets, before) :]
            )
        return found
