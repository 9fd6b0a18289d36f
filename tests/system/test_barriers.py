"""Barriers on real servers: which rounds they end, what others write among them, and what the topic is like."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaException, Producer

from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.topic import check_barriers_topic, prepare_barriers, read_barriers
from stream_dp.barriers.writer import last_of
from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp
from stream_dp.events.barrier_chain import PARTITION, BarrierChain
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.kafka.consuming import batch_consumer
from stream_dp.verification.rebuild import verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.events_reader import EventsReader, ends_of
from tests.system.example_events import event, some_events
from tests.system.streams import Stream
from tests.system.ticking import MakeStream, open_epoch, times


def test_rounds_hold_what_was_there_and_say_when_their_barrier_was_due(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea"), b"{", event("milk")])
        stream.close_rounds(10_000, 11_000)
        stream.feed([event("tea")])
        stream.close_rounds(60_000)
        stream.feed([event("tea")] * 3)  # the open round
        assert stream.run(until_round=3) == 0
        dues = (10_000, 11_000, 60_000)
        assert times(stream) == {number: iso_timestamp(due) for number, due in enumerate(dues, 1)}
        found = stream.checkpoint()
        assert dict(zip(found.state.labels, found.state.counts.tolist(), strict=True)) == {
            "tea": 2,
            "milk": 1,
        }
        assert (found.position.next_offset, stream.barrier().number) == (4, 3)
        stream.check_everything()


def test_what_others_write_among_the_barriers_changes_nothing(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        topic, first = stream.settings.barriers, stream.barrier()
        other = BarrierChain(barrier_key(bytes(32)), stream.settings.stream, first)
        twice = stream.chain()
        for number in range(1, 6):
            stream.feed(some_events(4, seed=number))
            foreign = [None, b"", b"{", b"\xff", event("tea"), other.encode(10**12, {PARTITION: 0})]
            stream.write(topic, [Record(0, 1, None, value) for value in foreign])
            slept = stream.chain().encode(1_000 * number + 1, {PARTITION: 4 * number - 2})
            stream.close_rounds(1_000 * number)
            stream.write(topic, [Record(0, 1, b"key", slept), Record(0, 1, None, slept)])
            stream.write(topic, [Record(0, 1, None, twice.encode(10**9, {PARTITION: 1}))])
        assert stream.run(until_round=5) == 0
        assert list(times(stream).values()) == [iso_timestamp(1_000 * number) for number in range(1, 6)]
        assert (stream.checkpoint().position.next_offset, stream.barrier().number) == (20, 5)
        stream.check_everything()


def test_a_chain_is_found_from_the_end_of_its_topic(by_hand: MakeStream) -> None:
    with by_hand() as stream:
        open_epoch(stream)
        own, start = stream.settings, stream.barrier()
        values = []
        following = stream.chain()
        for number in range(1, 3_001):
            values.append(following.encode(number, {PARTITION: 0}))
            following.take(len(values) - 1, values[-1])
        stream.write(
            own.barriers, [Record(0, 1, None, value) for value in [*values, *values[2_900:2_950], b"x"]]
        )
        assert last_of(own, barrier_key(stream.key()), start) == following.last
        assert sum(1 for _ in read_barriers(own, 0, 3_051)) == 3_051


@pytest.mark.apache("transactions")
def test_aborted_records_and_the_marks_of_transactions_hold_no_round_up(by_hand: MakeStream) -> None:
    """Their offsets count and they do not; on a broker without transactions all of it is committed at once."""
    with by_hand() as stream:
        open_epoch(stream)
        stream.feed([event("tea")])
        in_transactions = fed_in_transactions(stream, [(event("milk"), True), (event("bad"), False)])
        stream.close_rounds(1_000)
        assert stream.run(until_round=1) == 0
        found = stream.checkpoint()
        assert found.state.labels == (["tea", "milk"] if in_transactions else ["tea", "milk", "bad"])
        assert found.position.next_offset == (5 if in_transactions else 3)
        stream.close_rounds(2_000)
        assert stream.run(until_round=2) == 0
        with stream.redis() as client:
            assert verify_epoch(stream.settings, client).certificate.verdict is Verdict.IDENTICAL


def fed_in_transactions(
    stream: Stream, values: Sequence[tuple[bytes, bool]], times: Sequence[int] | None = None
) -> bool:
    """Append events, each in a transaction that is committed or not; false where the broker has none.

    `times`: their timestamps, in milliseconds since 1970; now, where they are left out.
    """
    own = stream.settings
    producer = Producer({"bootstrap.servers": own.kafka, "transactional.id": own.stream, "log_level": 0})
    try:
        producer.init_transactions(60)
    except KafkaException:
        now = time.time_ns() // 1_000_000
        at = [now] * len(values) if times is None else times
        records = [Record(0, ts, None, value) for (value, _), ts in zip(values, at, strict=True)]
        stream.write(own.events, records)
        return False
    for number, (value, is_committed) in enumerate(values):
        producer.begin_transaction()
        producer.produce(own.events, value, timestamp=0 if times is None else times[number])
        producer.flush(60)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(60)
    return True


@pytest.mark.apache("times")
def test_a_topic_that_takes_barriers_of_any_clock_is_told(kafka: str, topic_prefix: str) -> None:
    settings = Settings(stream=topic_prefix, kafka=kafka, rounds="ticks")
    limit = "message.timestamp.after.max.ms"
    log.create_topics(kafka, settings.barriers, configs=log.LOG | {limit: str(2**63 - 1)})
    [told] = check_barriers_topic(settings)
    assert told.endswith(f"--entity-name {settings.barriers} --add-config {limit}=60000")


def test_a_broker_that_knows_no_such_limit_gets_a_topic_without(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(stream=topic_prefix, kafka=kafka, rounds="ticks")
    monkeypatch.setattr("stream_dp.barriers.topic.BOUNDED", {"no.such.setting": "1"})
    prepare_barriers(settings)
    assert settings.barriers in log.topics(kafka)


def test_barriers_that_wait_are_counted_for_operators(by_hand: MakeStream) -> None:
    with by_hand(batch_rounds=1) as stream:
        open_epoch(stream)
        stream.close_rounds(1_000, 2_000, 3_000, 4_000)
        assert asyncio.run(lags(stream)) == [3, 2, 1, 0]


async def lags(stream: Stream) -> list[int]:
    """How many barriers wait after each round that is read, one at a time."""
    settings, checkpoint = stream.settings, stream.checkpoint()
    reading = batch_consumer(settings.kafka_address, auto_offset_reset="none")
    ends = ends_of(settings, checkpoint.epoch)
    reader = EventsReader(settings, reading, checkpoint.position, stream.chain(stream.barrier()), ends)
    await reading.start()
    try:
        reader.begin()
        found: list[int] = []
        while len(found) < 4:
            if await reader.read(1):
                found.append(reader.barrier_lag)
        return found
    finally:
        await reading.stop()
