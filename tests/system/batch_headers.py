"""Record batches as they lie in a partition: what a reader of the topic can see beside the releases themselves."""

import asyncio
import struct
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest

from stream_dp.dev.record_batch import read_header
from stream_dp.kafka import log

_FIRST_TIMESTAMP = 27
"""Where the header of a batch of format 2 has its first timestamp."""


class Batch(NamedTuple):
    """The header of a batch, but for what follows from its content and for its producer, which restarts decide."""

    offset: int
    records: int
    attributes: int
    first_timestamp: int
    max_timestamp: int


def batches_of(kafka: str, topic: str, partition: int = 0) -> list[Batch]:
    """The batches of a partition, read as they are stored, by either broker."""
    return asyncio.run(_batches_of(kafka, topic, partition))


async def _batches_of(kafka: str, topic: str, partition: int) -> list[Batch]:
    end = await asyncio.to_thread(lambda: log.offsets(kafka, topic, partition).end)
    client = AIOKafkaClient(bootstrap_servers=kafka)
    await client.bootstrap()
    found: list[Batch] = []
    try:
        await client.set_topics([topic])
        node = client.get_random_node()
        while not found or found[-1].offset + found[-1].records < end:
            start = found[-1].offset + found[-1].records if found else 0
            request = FetchRequest(500, 1, 50 << 20, 1, [(topic, [(partition, start, 8 << 20)])])
            response = await client.send(node, request)
            ((_, (part,)),) = response.topics
            assert part[1] == 0, part[1]
            found += _whole_batches(part[-1])
    finally:
        await client.close()
    return found


def _whole_batches(data: bytes) -> Sequence[Batch]:
    """The batches in an answer, the last of which may be cut."""
    found, start = [], 0
    while (header := read_header(data, start)) is not None and start + header.size <= len(data):
        (first,) = struct.unpack_from(">q", data, start + _FIRST_TIMESTAMP)
        found.append(
            Batch(
                header.base_offset,
                header.records,
                header.attributes,
                first,
                header.max_timestamp,
            )
        )
        start += header.size
    return found
