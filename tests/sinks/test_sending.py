"""Handing batches to the broker: at most two wait for an answer, and a silent broker is spoken of."""

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import RecordMetadata

from stream_dp.operations.watch import Watch
from stream_dp.sinks import sending
from stream_dp.sinks.sending import InFlight


class Batch:
    """As many records as are named."""

    def __init__(self, records: int) -> None:
        self._records = records

    def close(self) -> None:
        """Nothing is added to it any more."""

    def record_count(self) -> int:
        return self._records


class Broker:
    """A producer whose broker answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[RecordMetadata]] = []

    async def send_batch(self, _: Batch, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        answer: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        assert (topic, partition) == ("t", 0)
        self.asked.append(answer)
        return answer

    def answer(self, nth: int, offset: int) -> None:
        self.asked[nth].set_result(RecordMetadata("t", 0, TopicPartition("t", 0), offset, -1, 0, 0))


def in_flight(broker: Broker, **clock: Any) -> tuple[InFlight, Watch]:
    watch = Watch("s", "s.events", **clock)
    return InFlight(broker, "t", "broker.example:9092", watch), watch


async def until_idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_third_batch_waits_for_the_first_answer() -> None:
    broker = Broker()
    sent, _ = in_flight(broker)
    for _ in range(2):
        await sent.send(Batch(5))
    third = asyncio.ensure_future(sent.send(Batch(1)))
    await until_idle()
    assert not third.done()
    broker.answer(0, offset=100)
    await third
    assert (len(broker.asked), sent.end(7)) == (3, 105)


async def test_a_topic_ends_where_its_last_answered_batch_does() -> None:
    broker = Broker()
    sent, _ = in_flight(broker)
    assert sent.end(7) == 7
    await sent.send(Batch(3))
    await sent.send(Batch(2))
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
    broker.asked[0].set_exception(OSError("the disk is full"))
    with pytest.raises(OSError, match="the disk is full"):
        await sent.settle()


async def test_what_is_dropped_is_waited_for_no_more() -> None:
    sent, _ = in_flight(Broker())
    await sent.send(Batch(1))
    sent.drop()
    with pytest.raises(asyncio.CancelledError):
        await sent.settle()
