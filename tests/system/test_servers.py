"""What every other system test takes for granted, asked of whichever broker is running and of Redis.

The same questions go to the embedded broker and to Apache Kafka, through three independent client libraries.
"""

import asyncio
import time
from collections.abc import Callable

import aiokafka
import confluent_kafka
import pytest
import redis
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError

from tests.system.conftest import KafkaOfOneTest
from tests.system.waiting import GIVE_UP_SECONDS

pytestmark = pytest.mark.apache("contract")

Record = tuple[bytes | None, bytes | None]

RECORDS: list[Record] = [(f"key {i}".encode(), f"värde {i}".encode()) for i in range(200)]


def create_topic(kafka: str, name: str, **configs: str) -> None:
    """A topic of one partition."""
    options = {"num_partitions": 1, "replication_factor": 1, "configs": configs}
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        admin.create_topics({name: options}, wait_for_metadata=True)


def write_with_kafka_python(kafka: str, topic: str, records: list[Record]) -> None:
    with KafkaProducer(bootstrap_servers=kafka) as producer:
        sent = [producer.send(topic, key=key, value=value) for key, value in records]
        offsets = [future.get(GIVE_UP_SECONDS).offset for future in sent]
    assert list(range(len(records))) == offsets


def write_with_aiokafka(kafka: str, topic: str, records: list[Record]) -> None:
    async def write() -> list[int]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka, enable_idempotence=True) as producer:
            sent = [await producer.send(topic, key=key, value=value) for key, value in records]
            return [(await future).offset for future in sent]

    assert list(range(len(records))) == asyncio.run(write())


def write_with_confluent(kafka: str, topic: str, records: list[Record]) -> None:
    offsets: list[int | None] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None
        offsets.append(message.offset())

    producer = confluent_kafka.Producer({"bootstrap.servers": kafka})
    for key, value in records:
        producer.produce(topic, key=key, value=value, on_delivery=delivered)
    assert producer.flush(GIVE_UP_SECONDS) == 0
    assert list(range(len(records))) == offsets


def read_with_kafka_python(kafka: str, topic: str, count: int) -> list[Record]:
    """All of the topic, at least `count` records, as a lone reader without a group."""
    records: list[Record] = []
    deadline = time.monotonic() + GIVE_UP_SECONDS
    with KafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(records) < count and time.monotonic() < deadline:
            for batch in consumer.poll(1_000).values():
                records += [(record.key, record.value) for record in batch]
    return records


def read_with_aiokafka(kafka: str, topic: str, count: int) -> list[Record]:
    """All of the topic, at least `count` records, as the workers read: committed records, in batches."""

    async def read() -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + GIVE_UP_SECONDS
        options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=kafka, **options) as consumer:
            while len(records) < count and time.monotonic() < deadline:
                for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                    records += [(record.key, record.value) for record in batch]
        return records

    return asyncio.run(read())


def read_with_confluent(kafka: str, topic: str, count: int) -> list[Record]:
    """All of the topic, at least `count` records, as the only member of a group named like the topic."""
    records: list[Record] = []
    deadline = time.monotonic() + GIVE_UP_SECONDS
    settings = {"bootstrap.servers": kafka, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    try:
        while len(records) < count and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=1.0):
                assert message.error() is None, message.error()
                records.append((message.key(), message.value()))
    finally:
        consumer.close()
    return records


WRITERS = [write_with_kafka_python, write_with_aiokafka, write_with_confluent]
READERS = [read_with_kafka_python, read_with_aiokafka, read_with_confluent]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("write", WRITERS)
def test_every_client_reads_what_every_client_wrote(
    kafka: str,
    topic_prefix: str,
    write: Callable[[str, str, list[Record]], None],
    read: Callable[[str, str, int], list[Record]],
) -> None:
    create_topic(kafka, topic_prefix)
    write(kafka, topic_prefix, RECORDS)
    assert read(kafka, topic_prefix, len(RECORDS)) == RECORDS


def test_a_group_goes_on_where_it_committed(kafka: str, topic_prefix: str) -> None:
    create_topic(kafka, topic_prefix)
    write_with_kafka_python(kafka, topic_prefix, RECORDS)

    def next_records(count: int) -> list[bytes]:
        settings = {"group_id": topic_prefix, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        with KafkaConsumer(topic_prefix, bootstrap_servers=kafka, **settings) as consumer:
            values = [next(consumer).value for _ in range(count)]
            consumer.commit()
        return values

    expected = [value for _, value in RECORDS]
    assert next_records(70) == expected[:70]
    assert next_records(130) == expected[70:]


def test_a_topic_keeps_the_settings_it_was_created_with(kafka: str, topic_prefix: str) -> None:
    """The worker checks these three at its start, before it promises that a log can be replayed."""
    wanted = {"cleanup.policy": "delete", "retention.ms": "7200000", "retention.bytes": "-1"}
    create_topic(kafka, topic_prefix, **wanted)
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic_prefix, dict.fromkeys(wanted))
        described = admin.describe_configs([resource], config_filter="all")
        partitions = admin.describe_topics([topic_prefix])[0]["partitions"]
    settings = described["topic"][topic_prefix]
    assert {name: settings[name]["value"] for name in wanted} == wanted
    assert len(partitions) == 1


def test_a_topic_is_created_once(kafka: str, topic_prefix: str) -> None:
    create_topic(kafka, topic_prefix)
    with pytest.raises(TopicAlreadyExistsError):
        create_topic(kafka, topic_prefix)


@pytest.mark.parametrize(
    ("asked", "offset"),
    [(0, 0), (1_000_000, 0), (1_000_001, 1), (1_000_500, 1), (1_001_000, 2), (1_001_001, None)],
)
def test_offsets_by_timestamp(kafka: str, topic_prefix: str, asked: int, offset: int | None) -> None:
    """The first record at or after the asked millisecond; nothing when all are earlier.

    Retention goes by the records' own timestamps, so records of 1970 live only in a topic without it.
    """
    create_topic(kafka, topic_prefix, **{"retention.ms": "-1"})
    with KafkaProducer(bootstrap_servers=kafka) as producer:
        for timestamp in (1_000_000, 1_000_500, 1_001_000):
            producer.send(topic_prefix, value=b"x", timestamp_ms=timestamp).get(GIVE_UP_SECONDS)
    partition = TopicPartition(topic_prefix, 0)
    with KafkaConsumer(bootstrap_servers=kafka) as consumer:
        found = consumer.offsets_for_times({partition: asked})[partition]
    assert (None if found is None else found.offset) == offset


def test_acknowledged_records_survive_a_kill_and_none_is_stored_twice(
    own_kafka: KafkaOfOneTest, topic_prefix: str
) -> None:
    """An idempotent producer sends on across the crash: every record once, in order.

    Half of the records are acknowledged before the kill; the others are on their way when it comes.
    """
    create_topic(own_kafka.address, topic_prefix)
    with KafkaProducer(bootstrap_servers=own_kafka.address) as producer:
        sent = [producer.send(topic_prefix, key=key, value=value) for key, value in RECORDS[:100]]
        producer.flush(GIVE_UP_SECONDS)
        sent += [producer.send(topic_prefix, key=key, value=value) for key, value in RECORDS[100:]]
        own_kafka.kill()
        own_kafka.start()
        offsets = [future.get(GIVE_UP_SECONDS).offset for future in sent]
    assert list(range(len(RECORDS))) == offsets
    assert read_with_kafka_python(own_kafka.address, topic_prefix, len(RECORDS)) == RECORDS


def test_redis_transaction_fails_when_a_watched_key_changes(redis_url: str, topic_prefix: str) -> None:
    """A checkpoint is a compare-and-set: all of it, or, after another writer, none of it."""
    key = f"{topic_prefix}:fence"
    with redis.Redis.from_url(redis_url) as mine, redis.Redis.from_url(redis_url) as other:
        mine.set(key, 1)
        with mine.pipeline() as change:
            change.watch(key)
            other.set(key, 2)
            change.multi()
            change.set(key, 3)
            change.set(f"{key}:also", 3)
            with pytest.raises(redis.WatchError):
                change.execute()
        assert mine.get(key) == b"2"
        assert mine.get(f"{key}:also") is None


def test_redis_transaction_applies_all_when_nothing_changed(redis_url: str, topic_prefix: str) -> None:
    key = f"{topic_prefix}:fence"
    with redis.Redis.from_url(redis_url) as mine:
        mine.set(key, 1)
        with mine.pipeline() as change:
            change.watch(key)
            change.multi()
            change.set(key, 2)
            change.hset(f"{key}:also", "round", 7)
            assert change.execute() == [True, 1]
        assert mine.get(key) == b"2"
        assert mine.hget(f"{key}:also", "round") == b"7"
