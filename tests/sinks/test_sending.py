"""Handing batches to the broker: so many wait for an answer and no more, and a silent broker is spoken of."""

import asyncio
from threading import Event
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.structs import RecordMetadata

from stream_dp.operations.watch import Watch
from stream_dp.pipeline.pipeline import ReleasedPart
from stream_dp.sinks import sending
from stream_dp.sinks.framing import LARGEST_BATCH
from stream_dp.sinks.sending import InFlight, packed


class Batch(sending.Batch):
    """As many records as are named."""

    def __init__(self, records: int) -> None:
        super().__init__(LARGEST_BATCH, 0)
        self._records = records

    def compress(self) -> None:
        """There is nothing to do."""

    def record_count(self) -> int:
        return self._records


class Broker:
    """A producer whose broker answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[RecordMetadata]] = []
        self.batches: list[Batch] = []

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        answer: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        assert (topic, partition) == ("t", 0)
        self.asked.append(answer)
        self.batches.append(batch)
        return answer

    def answer(self, nth: int, offset: int) -> None:
        self.asked[nth].set_result(RecordMetadata("t", 0, TopicPartition("t", 0), offset, -1, 0, 0))


def in_flight(broker: Broker, **clock: Any) -> tuple[InFlight, Watch]:
    watch = Watch("s", "s.events", **clock)
    return InFlight(broker, "t", "broker.example:9092", watch, batch_rounds=500), watch


async def asked(broker: Broker, batches: int) -> None:
    while len(broker.asked) < batches:
        await asyncio.sleep(0.001)


async def until_idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("records", "at_once"), [(5, 8), (500, 2), (501, 1), (400, 2), (2_000, 1)])
async def test_one_batch_more_waits_for_the_first_answer(records: int, at_once: int) -> None:
    broker = Broker()
    sent, _ = in_flight(broker)
    for _ in range(at_once):
        await asyncio.wait_for(sent.send(Batch(records)), 60)
    await asked(broker, at_once)
    another = asyncio.ensure_future(sent.send(Batch(records)))
    await until_idle()
    assert not another.done()
    broker.answer(0, offset=100)
    await another
    await asked(broker, at_once + 1)
    assert (len(broker.asked), sent.end(7)) == (at_once + 1, 100 + records)


async def test_batches_are_handed_over_in_their_order_however_long_one_is_compressed() -> None:
    broker, started, may_end = Broker(), Event(), Event()
    sent, _ = in_flight(broker)

    class Large(Batch):
        def compress(self) -> None:
            started.set()
            may_end.wait()

    await sent.send(Large(5))
    await sent.send(Batch(2))
    await asyncio.to_thread(started.wait)  # while it is compressed, everything else goes on
    await until_idle()
    assert not broker.asked
    may_end.set()
    await asked(broker, 2)
    assert [batch.record_count() for batch in broker.batches] == [5, 2]


async def test_nothing_follows_a_batch_that_the_producer_did_not_take() -> None:
    broker = Broker()
    sent, _ = in_flight(broker)

    class Impossible(Batch):
        def compress(self) -> None:
            raise MemoryError("no room")

    await sent.send(Impossible(1))
    await sent.send(Batch(1))
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            await sent.settle()
        sent._unanswered.popleft()
    assert not broker.asked


@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "snappy", "zstd"])
async def test_a_batch_is_the_same_whether_it_is_compressed_before_it_has_a_producer_or_after(
    codec: str | None,
) -> None:
    sender = AIOKafkaProducer(compression_type=codec, max_batch_size=LARGEST_BATCH)
    release = b'{"v":1,"ts":"2026-01-31T12:00:00.123Z","counts":[1,2,3]}'
    early, late = (
        packed(sender, b"s", [ReleasedPart(i, 1, release) for i in range(20)]),
        sender.create_batch(),
    )
    for _ in range(20):
        late.append(key=b"s", value=release, timestamp=1_769_860_800_123)
    early.compress()
    for batch in (early, late):
        batch._set_producer_state(2**40, 7, 123_456)
    assert bytes(early._build()) == bytes(late._build())
    await sender.stop()


async def test_a_topic_ends_where_its_last_answered_batch_does() -> None:
    broker = Broker()
    sent, _ = in_flight(broker)
    assert sent.end(7) == 7
    await sent.send(Batch(3))
    await sent.send(Batch(2))
    await asked(broker, 2)
    settled = asyncio.ensure_future(sent.settle())
    await until_idle()
    assert not settled.done()
    broker.answer(1, offset=23)
    broker.answer(0, offset=20)
    await settled
    assert (sent.end(7), sent.end(99)) == (25, 99)


async def test_a_silent_broker_is_spoken_of_and_the_worker_is_alive(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sending, "_LONGEST_SILENCE_SECONDS", 0.001)
    now, broker = 0.0, Broker()
    sent, watch = in_flight(broker, clock=lambda: now)
    watch.answered(True)
    await sent.send(Batch(1))
    await asked(broker, 1)
    now = 1e6
    assert not watch.alive
    settled = asyncio.ensure_future(sent.settle())
    while not watch.alive:
        await asyncio.sleep(0.001)
    assert not watch.ready
    broker.answer(0, offset=0)
    await settled
    assert "waiting for Kafka at broker.example:9092: no answer to a batch" in caplog.text


async def test_an_error_is_raised_where_the_answer_is_waited_for() -> None:
    broker = Broker()
    sent, _ = in_flight(broker)
    await sent.send(Batch(1))
    await asked(broker, 1)
    broker.asked[0].set_exception(OSError("the disk is full"))
    with pytest.raises(OSError, match="the disk is full"):
        await sent.settle()


async def test_what_is_dropped_is_waited_for_no_more() -> None:
    sent, _ = in_flight(Broker())
    await sent.send(Batch(1))
    await sent.drop()
    with pytest.raises(asyncio.CancelledError):
        await sent.settle()
