"""Producers choose how they compress, and so does the worker: all of it is read."""

from itertools import islice

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer

from stream_dp.config.settings import Settings
from stream_dp.kafka import log
from stream_dp.sinks.sending import producer

pytestmark = pytest.mark.apache("batches")


async def test_the_setting_reaches_the_producer(kafka: str) -> None:
    for codec, bits in (("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)):
        sender = producer(kafka, codec)
        await sender.start()
        try:
            batch = sender.create_batch()
            batch.append(key=None, value=b"x" * 100, timestamp=None)
            assert batch._build()[22] & 7 == bits  # the attributes of a batch of format 2
        finally:
            await sender.stop()


async def test_what_is_written_by_default_is_read_by_every_client(kafka: str, topic_prefix: str) -> None:
    """Those that docs/clients.md names for Python."""
    settings = Settings(stream=topic_prefix, kafka=kafka)
    assert settings.compression == "zstd"
    log.create_topics(kafka, settings.releases)
    values = [b'{"round":%d}' % number * 50 for number in range(100)]
    sender = producer(kafka, settings.compression)
    await sender.start()
    try:
        batch = sender.create_batch()
        for value in values:
            assert batch.append(key=b"key", value=value, timestamp=None) is not None
        await (await sender.send_batch(batch, settings.releases, partition=0))
    finally:
        await sender.stop()
    begin = {"bootstrap_servers": kafka, "auto_offset_reset": "earliest"}
    with KafkaConsumer(settings.releases, **begin) as consumer:
        assert [record.value for record in islice(consumer, 100)] == values
    async with AIOKafkaConsumer(settings.releases, **begin) as reader:
        assert [(await reader.getone()).value for _ in values] == values
    confluent = Consumer({"bootstrap.servers": kafka, "group.id": topic_prefix})
    confluent.assign([TopicPartition(settings.releases, 0, 0)])
    found: list[bytes | None] = []
    while len(found) < len(values):
        found += [message.value() for message in confluent.consume(100, 1.0)]
    confluent.close()
    assert found == values
