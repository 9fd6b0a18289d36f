"""Where real clients on their defaults send records that are keyed by users."""

from collections.abc import Callable

import aiokafka
import confluent_kafka
import pytest
from kafka import KafkaProducer

from stream_dp.config.events_section import Partitioner
from stream_dp.events.user_partitions import partition_rule
from stream_dp.kafka import log

PARTITIONS = 12
USERS = [*(f"c{number}" for number in range(200)), "é", "🍵" * 9, "x" * 1000, " "]

Sent = Callable[[str, str], dict[str, int]]
"""Sends a record of each user to a topic, and tells the partitions."""


def by_librdkafka(**settings: str) -> Sent:
    def sent(kafka: str, topic: str) -> dict[str, int]:
        found: dict[str, int] = {}

        def delivered(error: confluent_kafka.KafkaError | None, told: confluent_kafka.Message) -> None:
            key, partition = told.key(), told.partition()
            assert key is not None
            assert partition is not None
            found[key.decode()] = partition

        producer = confluent_kafka.Producer({"bootstrap.servers": kafka, **settings})
        for user in USERS:
            producer.produce(topic, b"", user, on_delivery=delivered)
        producer.flush()
        return found

    return sent


def by_kafka_python(kafka: str, topic: str) -> dict[str, int]:
    with KafkaProducer(bootstrap_servers=kafka) as producer:
        sent = {user: producer.send(topic, b"", user.encode()) for user in USERS}
        return {user: each.get(60).partition for user, each in sent.items()}


CLIENTS: dict[str, tuple[Sent, Partitioner]] = {
    "librdkafka": (by_librdkafka(), "crc32"),
    "librdkafka, as Java": (by_librdkafka(partitioner="murmur2_random"), "murmur2"),
    "librdkafka, as Sarama": (by_librdkafka(partitioner="fnv1a_random"), "fnv1a"),
    "kafka-python": (by_kafka_python, "murmur2"),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_user_stands_where_the_rule_says(kafka: str, topic_prefix: str, client: str) -> None:
    log.create_topics(kafka, topic_prefix, partitions=PARTITIONS)
    sent, partitioner = CLIENTS[client]
    rule = partition_rule(partitioner, PARTITIONS)
    assert sent(kafka, topic_prefix) == {user: rule(user) for user in USERS}


async def test_also_by_aiokafka(kafka: str, topic_prefix: str) -> None:
    log.create_topics(kafka, topic_prefix, partitions=PARTITIONS)
    rule = partition_rule("murmur2", PARTITIONS)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        sent = [await producer.send(topic_prefix, b"", user.encode()) for user in USERS]
        assert [(await each).partition for each in sent] == [rule(user) for user in USERS]
