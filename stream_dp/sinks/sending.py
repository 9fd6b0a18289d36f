"""How everything here sends batches with aiokafka, and how its clients are stopped."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import RecordMetadata

from stream_dp.config.connections import Kafka, aiokafka_options
from stream_dp.kafka.record_batches import name_producer
from stream_dp.kafka.topic_metadata import METADATA_MILLISECONDS, make_no_topics
from stream_dp.operations.watch import Watch
from stream_dp.pipeline.pipeline import ReleasedPart
from stream_dp.releases.release import release_time
from stream_dp.sinks.framing import LARGEST_BATCH

logger = logging.getLogger(__name__)

_FLUSH_SECONDS = 30.0
_STOP_SECONDS = 30.0
_HAND_OVER_SECONDS = 5.0
_LONGEST_SILENCE_SECONDS = 30.0
_LETTER_MILLISECONDS = 10_000
_UNANSWERED = 8
ON_THEIR_WAY = 2
"""How many whole batches may be unanswered: a worker that slept may send them again, see `LONGEST_REPETITION`."""


def producer(kafka: Kafka, compression: str) -> AIOKafkaProducer:
    """A producer whose batches are stored once and in order, or not at all; `compression` is that of the settings."""
    sender = AIOKafkaProducer(
        **aiokafka_options(kafka),
        compression_type=None if compression == "none" else compression,
        acks="all",
        enable_idempotence=True,
        max_batch_size=LARGEST_BATCH,
        metadata_max_age_ms=METADATA_MILLISECONDS,
    )
    make_no_topics(sender.client)
    return sender


def letter_producer(kafka: Kafka, compression: str) -> AIOKafkaProducer:
    """A producer of dead letters, which gives up what is not stored soon: its owner keeps it and says so."""
    sender = AIOKafkaProducer(
        **aiokafka_options(kafka) | {"request_timeout_ms": _LETTER_MILLISECONDS},
        compression_type=None if compression == "none" else compression,
        acks="all",
        linger_ms=2,
        metadata_max_age_ms=METADATA_MILLISECONDS,
    )
    make_no_topics(sender.client)
    return sender


class Batch(BatchBuilder):
    """A batch of records that any thread can compress before the producer says who it is, which it does last."""

    def compress(self) -> None:
        """Compress it; nothing can be added from then on."""
        self._build()

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        name_producer(self._build(), (producer_id, producer_epoch, base_sequence), calc_crc32c)


def packed(sender: AIOKafkaProducer, key: bytes, parts: Iterable[ReleasedPart]) -> Batch:
    """These releases as one batch; each record has the time that its release tells, and not that of this clock."""
    waiting = sender._message_accumulator
    batch = Batch(waiting._batch_size, waiting._compression_type)
    for part in parts:
        if batch.append(key=key, value=part.value, timestamp=release_time(part.value)) is None:
            raise ValueError(f"round {part.round} does not fit into the batch that it was put into")
    return batch


class InFlight:
    """The batches that one producer has on their way to one topic: those that the broker has not answered yet.

    They hold at most as many records as two whole ones, and are at most eight: large releases make small batches.
    While the broker is silent it says so every half a minute, and that this process still works.
    """

    def __init__(
        self, sender: AIOKafkaProducer, topic: str, kafka: str, watch: Watch, batch_rounds: int
    ) -> None:
        """`topic` has one partition; `kafka` is the brokers' address as it is logged."""
        self._most = ON_THEIR_WAY * batch_rounds
        self._producer, self._topic, self._kafka, self._watch = sender, topic, kafka, watch
        self._unanswered = deque[tuple[asyncio.Future[int], int]]()  # with the number of records of each
        self._compressing = ThreadPoolExecutor(1, "compress")
        self._last: asyncio.Future[Awaitable[RecordMetadata]] | None = None
        self._end = 0

    async def send(self, batch: Batch) -> None:
        """Have a batch compressed beside whatever else runs, and handed to the producer.

        Waits only while too many others are unanswered.
        """
        records = batch.record_count()
        await self._answered(_UNANSWERED - 1, max(0, self._most - records))
        compressed = asyncio.get_running_loop().run_in_executor(self._compressing, batch.compress)
        self._last = asyncio.ensure_future(self._hand_over(batch, compressed, self._last))
        self._unanswered.append((asyncio.ensure_future(_end_of(batch, self._last)), records))

    async def _hand_over(
        self,
        batch: Batch,
        compressed: asyncio.Future[None],
        before: asyncio.Future[Awaitable[RecordMetadata]] | None,
    ) -> Awaitable[RecordMetadata]:
        """Give a batch to the producer once it is compressed; not if the one before failed."""
        await (compressed if before is None else asyncio.gather(before, compressed))
        stored: Awaitable[RecordMetadata] = await self._producer.send_batch(batch, self._topic, partition=0)
        return stored

    async def settle(self) -> None:
        """Wait until the broker has everything; the producer sends it until it does.  Raises KafkaError."""
        await self._answered(0, 0)

    def end(self, least: int) -> int:
        """The offset after the last batch that the broker has, or `least` where that is more or nothing was sent."""
        return max(least, self._end)

    async def drop(self) -> None:
        """Wait for no answer any more, only until the producer has what was sent, unless that takes long."""
        for unanswered, _ in self._unanswered:
            if not unanswered.cancel() and not unanswered.cancelled():
                unanswered.exception()  # else it would be reported as one that nobody has looked at
        if self._last is not None:
            await asyncio.wait({self._last}, timeout=_HAND_OVER_SECONDS)
            if not self._last.cancel() and not self._last.cancelled():
                self._last.exception()
        self._compressing.shutdown(wait=False)

    async def _answered(self, batches: int, records: int) -> None:
        """Wait until at most so many batches are unanswered, of at most so many records."""
        with self._watch.progress.waiting("kafka-acknowledgement"):
            unanswered = self._unanswered
            while len(unanswered) > batches or sum(held for _, held in unanswered) > records:
                self._end = max(self._end, await self._answer(unanswered[0][0]))
                unanswered.popleft()

    async def _answer(self, oldest: asyncio.Future[int]) -> int:
        while not (await asyncio.wait({oldest}, timeout=_LONGEST_SILENCE_SECONDS))[0]:
            why = f"no answer to a batch for {_LONGEST_SILENCE_SECONDS:.0f} s"
            self._watch.outages.waits(f"Kafka at {self._kafka}", why)
            self._watch.answered(False)
            self._watch.outage("kafka")
        return await oldest


async def _end_of(batch: Batch, handed_over: Awaitable[Awaitable[RecordMetadata]]) -> int:
    """The offset after a batch, once the broker has it."""
    stored = await (await asyncio.shield(handed_over))
    return stored.offset + batch.record_count()


async def stop_producer(sender: AIOKafkaProducer, why: type[BaseException] | None = None) -> None:
    """Stop a producer when the broker has all that it was given, or has answered nothing for some seconds.

    `why` is what the session ended with: one that was cancelled flushes nothing.  aiokafka would wait without end for a
    broker that keeps its connections open and is silent.  What a worker's next session does not find published it
    computes and sends again.
    """
    flushing = asyncio.ensure_future(sender.flush())
    flushed, _ = await asyncio.wait(
        {flushing}, timeout=0.0 if why is asyncio.CancelledError else _FLUSH_SECONDS
    )
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
    """Stop a client, and close its connection even if that fails or takes too long.

    While the broker is away, aiokafka's consumer ends its own tasks in a way that would look here as if this process
    had been cancelled, and leaves its connections open.
    """
    task = asyncio.ensure_future(stopping)
    stopped, _ = await asyncio.wait({task}, timeout=_STOP_SECONDS)
    if not stopped:
        logger.warning("a client of Kafka does not stop: it is left behind")
        task.cancel()
        await connection.close()
    elif task.cancelled() or task.exception() is not None:
        await connection.close()
