"""How everything here sends batches with aiokafka, and how its clients are stopped."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata

from stream_dp.connections import Kafka, aiokafka_options

LARGEST_BATCH = 1 << 20
"""Most bytes that go to a partition at once: a little below Kafka's default limit."""

_FLUSH_SECONDS = 30.0


def producer(kafka: Kafka, compression: str) -> AIOKafkaProducer:
    """A producer whose batches are stored once and in order, or not at all; `compression` is that of the settings."""
    return AIOKafkaProducer(
        **aiokafka_options(kafka),
        compression_type=None if compression == "none" else compression,
        acks="all",
        enable_idempotence=True,
        max_batch_size=LARGEST_BATCH,
        linger_ms=2,
    )


def batches(sender: AIOKafkaProducer, key: bytes, values: Iterable[bytes]) -> Iterator[BatchBuilder]:
    """Pack values for the producer, which costs a third of handing it one record at a time."""
    batch = sender.create_batch()
    for value in values:
        if batch.append(key=key, value=value, timestamp=None) is None:
            yield batch
            batch = sender.create_batch()
            batch.append(key=key, value=value, timestamp=None)  # the first one always fits
    if batch.record_count():
        yield batch


async def offset_after(stored: Awaitable[RecordMetadata], records: int) -> int:
    """The offset after a batch of `records` records, once the broker has it."""
    return (await stored).offset + records


async def stop_producer(sender: AIOKafkaProducer) -> None:
    """Stop a producer when the broker has all that it was given, or has answered nothing for some seconds.

    aiokafka would wait without end for a broker that keeps its connections open and is silent.  What a worker's next
    session does not find published it computes and sends again.
    """
    flushing = asyncio.ensure_future(sender.flush())
    flushed, _ = await asyncio.wait({flushing}, timeout=_FLUSH_SECONDS)
    if not flushed:
        flushing.cancel()
        waiting, sending = sender._message_accumulator, sender._sender.sender_task
        for batch in chain(waiting._pending_batches, *waiting._batches.values()):
            batch.future.cancel()
        while not sending.done():  # the first time, it begins to wait for requests that are on their way
            sending.cancel()
            await asyncio.sleep(0)
    await stop_client(sender.stop(), sender.client)


async def stop_client(stopping: Coroutine[Any, Any, None], connection: AIOKafkaClient) -> None:
    """Stop a client, and close its connection even if that fails.

    While the broker is away, aiokafka's consumer ends its own tasks in a way that would look here as if this process
    had been cancelled, and leaves its connections open.
    """
    task = asyncio.ensure_future(stopping)
    await asyncio.wait({task})
    if task.cancelled() or task.exception() is not None:
        await connection.close()
