"""What clients on their defaults rely on, asked of whichever broker is running: groups, tables, settings, kills."""

import asyncio
import random
import threading
import time
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
)

from stream_dp.kafka import clients, consuming
from stream_dp.sinks import sending
from tests.system.conftest import KafkaOfOneTest
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

pytestmark = pytest.mark.apache("contract")


def read_all(address: str, topic: str, count: int) -> list[bytes]:
    """At least `count` values of partition 0 from its start."""
    found: list[bytes] = []
    deadline = time.monotonic() + GIVE_UP_SECONDS
    with KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count and time.monotonic() < deadline:
            for records in consumer.poll(1000).values():
                found += [record.value for record in records]
    return found


def test_a_deleted_topic_is_gone_with_its_records_and_offsets(kafka: str, topic_prefix: str) -> None:
    name = topic_prefix
    settings = {"bootstrap_servers": kafka, "group_id": name, "auto_offset_reset": "earliest"}
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
        with KafkaProducer(bootstrap_servers=kafka) as producer:
            producer.send(name, b"old").get(GIVE_UP_SECONDS)
        with KafkaConsumer(name, **settings) as consumer:
            assert next(consumer).value == b"old"
            consumer.commit()
        admin.delete_topics([name])
        wait_until(lambda: name not in admin.list_topics(), lambda: "the topic is not deleted")
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    with KafkaProducer(bootstrap_servers=kafka) as producer:
        assert producer.send(name, b"new").get(GIVE_UP_SECONDS).offset == 0
    with KafkaConsumer(name, **settings) as consumer:
        assert next(consumer).value == b"new"


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("../outside", {}, InvalidTopicError),
        ("..", {}, InvalidTopicError),
        ("ok", {"replication_factor": 3}, InvalidReplicationFactorError),
        ("ok", {"configs": {"clean.policy": "delete"}}, InvalidConfigurationError),
        ("ok", {"configs": {"cleanup.policy": "shred"}}, InvalidConfigurationError),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    kafka: str, name: str, options: dict[str, Any], error: type[Exception]
) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka) as admin, pytest.raises(error):
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1} | options})


def test_settings_that_were_not_given_are_the_defaults(kafka: str, topic_prefix: str) -> None:
    """What Apache Kafka's defaults are, a topic made by use included: one partition."""
    with KafkaProducer(bootstrap_servers=kafka) as producer:
        producer.send(topic_prefix, b"made by use").get(GIVE_UP_SECONDS)
        assert producer.partitions_for(topic_prefix) == {0}
    names = {
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
    }
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic_prefix, dict.fromkeys(names))
        found = admin.describe_configs([resource], config_filter="all")["topic"][topic_prefix]
    assert {name: found[name]["value"] for name in names} == names


def test_a_batch_above_the_topics_limit_is_refused(kafka: str, topic_prefix: str) -> None:
    topic = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "2000"}}
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        admin.create_topics({topic_prefix: topic}, wait_for_metadata=True)
    with KafkaProducer(bootstrap_servers=kafka) as producer:
        producer.send(topic_prefix, b"x" * 1900).get(GIVE_UP_SECONDS)
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic_prefix, b"x" * 2000).get(GIVE_UP_SECONDS)
    with KafkaProducer(
        bootstrap_servers=kafka
    ) as producer:  # the refusal is fatal for an idempotent producer
        assert producer.send(topic_prefix, b"y").get(GIVE_UP_SECONDS).offset == 1


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_compressed_batches_are_kept_and_found_by_time(kafka: str, topic_prefix: str, codec: str) -> None:
    """librdkafka compresses and decompresses; by time the first record at or after it is found, or its batch."""
    options = {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "-1"}}
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        admin.create_topics({topic_prefix: options}, wait_for_metadata=True)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka, "compression.type": codec, "linger.ms": 50}
    )
    for number in range(1000):
        producer.produce(topic_prefix, b"value %d" % number, timestamp=1000 + number)
    assert producer.flush(GIVE_UP_SECONDS) == 0
    settings = {"bootstrap.servers": kafka, "group.id": topic_prefix}
    consumer = confluent_kafka.Consumer(settings)
    [found] = consumer.offsets_for_times(
        [confluent_kafka.TopicPartition(topic_prefix, 0, 1500)], GIVE_UP_SECONDS
    )
    assert 0 <= found.offset <= 500
    consumer.assign([confluent_kafka.TopicPartition(topic_prefix, 0, 0)])
    read: list[bytes | None] = []
    while len(read) < 1000:
        read += [message.value() for message in consumer.consume(1000, 1.0)]
    consumer.close()
    assert read == [b"value %d" % number for number in range(1000)]


async def test_two_members_of_a_group_share_its_partitions(kafka: str, topic_prefix: str) -> None:
    """The second takes one partition over, and after it leaves the first has both again."""
    with KafkaAdminClient(bootstrap_servers=kafka) as admin:
        admin.create_topics(
            {topic_prefix: {"num_partitions": 2, "replication_factor": 1}}, wait_for_metadata=True
        )

    def member() -> aiokafka.AIOKafkaConsumer:
        options = {"group_id": topic_prefix, "heartbeat_interval_ms": 100, "session_timeout_ms": 300_000}
        return aiokafka.AIOKafkaConsumer(
            topic_prefix, bootstrap_servers=kafka, auto_offset_reset="earliest", **options
        )

    first = member()
    await first.start()
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        second = member()
        await second.start()
        while {len(first.assignment()), len(second.assignment())} != {1}:
            await asyncio.sleep(0.05)
        assert first.assignment() | second.assignment() == {
            aiokafka.TopicPartition(topic_prefix, number) for number in range(2)
        }
        for number in range(2):
            await producer.send_and_wait(topic_prefix, b"%d" % number, partition=number)
        got = {(await first.getone()).partition, (await second.getone()).partition}
        assert got == {0, 1}
        await second.stop()
        while len(first.assignment()) < 2:
            await asyncio.sleep(0.05)
        await producer.send_and_wait(topic_prefix, b"again", partition=0)
        await producer.send_and_wait(topic_prefix, b"again", partition=1)
        more = {(await first.getone()).partition for _ in range(2)}
    await first.stop()
    assert more == {0, 1}


async def test_a_static_member_comes_back_to_its_partition_without_waiting(
    kafka: str, topic_prefix: str
) -> None:
    """It stops without leaving; its session would last far longer than the test may."""
    options = {"group_id": topic_prefix, "group_instance_id": "worker-1", "session_timeout_ms": 300_000}
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        await producer.send_and_wait(topic_prefix, b"1")
        for expected in (b"1", b"2"):
            consumer = aiokafka.AIOKafkaConsumer(
                topic_prefix, bootstrap_servers=kafka, auto_offset_reset="earliest", **options
            )
            await consumer.start()
            assert (await consumer.getone()).value == expected
            await consumer.commit()
            await consumer.stop()
            await producer.send_and_wait(topic_prefix, b"2")


def test_kills_at_random_moments_lose_nothing_acknowledged(
    own_kafka: KafkaOfOneTest, topic_prefix: str
) -> None:
    """aiokafka's idempotent producer sends across three kills; offsets committed before them stay too."""
    dice, acknowledged, done = random.Random(11), [], threading.Event()

    async def produce() -> None:
        options = {"enable_idempotence": True, "linger_ms": 1}
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=own_kafka.address, **options) as producer:
            number = 0
            while not done.is_set():
                sent = [await producer.send(topic_prefix, b"%d" % (number + step)) for step in range(20)]
                acknowledged.extend([(await future).offset for future in sent])
                number += 20

    thread = threading.Thread(target=lambda: asyncio.run(produce()))
    thread.start()
    for kill in range(3):
        while len(acknowledged) < 300 * (kill + 1) + dice.randrange(200):
            time.sleep(dice.random() * 0.01)
        own_kafka.kill()
        own_kafka.start()
    reached = len(acknowledged)
    while len(acknowledged) < reached + 100:
        time.sleep(0.01)
    done.set()
    thread.join()
    assert acknowledged == list(range(len(acknowledged)))
    values = read_all(own_kafka.address, topic_prefix, len(acknowledged))
    assert values == [b"%d" % number for number in range(len(acknowledged))]


def test_committed_offsets_survive_a_kill(own_kafka: KafkaOfOneTest, topic_prefix: str) -> None:
    settings = {"group_id": "readers", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with KafkaProducer(bootstrap_servers=own_kafka.address) as producer:
        for number in range(10):
            producer.send(topic_prefix, b"%d" % number).get(GIVE_UP_SECONDS)
    with KafkaConsumer(topic_prefix, bootstrap_servers=own_kafka.address, **settings) as consumer:
        assert [next(consumer).value for _ in range(4)][-1] == b"3"
        consumer.commit()
    own_kafka.kill()
    own_kafka.start()
    with KafkaConsumer(topic_prefix, bootstrap_servers=own_kafka.address, **settings) as consumer:
        assert next(consumer).value == b"4"


async def test_no_client_makes_a_topic_by_asking_for_it(kafka: str, topic_prefix: str) -> None:
    """Neither those of kafka-python nor those of aiokafka, which the worker uses; the broker would make it."""
    topic = f"{topic_prefix}-missing"
    with clients.producer_client(kafka, max_block_ms=500) as producer, pytest.raises(KafkaError):
        producer.send(topic, b"x").get(1)
    with clients.consumer_client(kafka) as consumer:
        assert not consumer.partitions_for_topic(topic)
    sender = sending.producer(kafka, "none")
    reader = consuming.batch_consumer(kafka)
    for client in (sender, reader):
        await client.start()
    place = aiokafka.TopicPartition(topic, 0)
    reader.assign([place])
    reader.seek(place, 0)
    assert await reader.getmany(timeout_ms=300) == {}
    asked = asyncio.ensure_future(sender.partitions_for(topic))
    await asyncio.wait({asked}, timeout=0.3)
    asked.cancel()
    for client in (sender, reader):
        await client.stop()
    with clients.admin_client(kafka) as admin:
        assert topic not in admin.list_topics()
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as careless:
            await careless.partitions_for(topic)
        assert topic in admin.list_topics(), "the broker makes none, so this tests nothing"
