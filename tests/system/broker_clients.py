"""The clients by which a test writes topics and reads them: one of a kind for each broker, kept for all tests."""

import time
from contextlib import suppress

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from stream_dp.kafka import log
from tests.system.waiting import GIVE_UP_SECONDS

_producers: dict[str, Producer] = {}
_readers: dict[str, KafkaConsumer] = {}
_admins: dict[str, AdminClient] = {}


def leave(kafka: str) -> None:
    """Close what this process keeps for a broker that goes: it would look for the broker until the last test ends."""
    _producers.pop(kafka, None)
    _admins.pop(kafka, None)
    reader = _readers.pop(kafka, None)
    if reader is not None:
        reader.close()


def producer_of(kafka: str) -> Producer:
    """One for all tests, because the first record of an idempotent one, which keeps the order, waits half a second."""
    options = {
        "enable.idempotence": True,
        "linger.ms": 1,
        "message.max.bytes": 2_000_000,
        "log_level": 0,
    }
    if kafka not in _producers:
        _producers[kafka] = Producer({"bootstrap.servers": kafka, **options})
    return _producers[kafka]


def _reader(kafka: str) -> KafkaConsumer:
    """One for all tests: connecting takes longer than reading."""
    if kafka not in _readers:
        _readers[kafka] = log.read_only_consumer(kafka, auto_offset_reset="none", retry_backoff_ms=10)
    return _readers[kafka]


def delete_topics_of(kafka: str, stream: str) -> None:
    """Delete what a test has made: where thousands of topics lie, every client that starts reads all their names."""
    if kafka not in _admins:
        _admins[kafka] = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    with suppress(KafkaException):  # the broker may be gone
        topics = _admins[kafka].list_topics(timeout=GIVE_UP_SECONDS).topics
        made = [name for name in topics if name.startswith(stream)]
        for deleted in _admins[kafka].delete_topics(made).values() if made else ():
            deleted.result()


def end_of(kafka: str, topic: str) -> int:
    """Where the first partition of the topic ends at this moment: one request, where reading takes four."""
    reader, place = _reader(kafka), TopicPartition(topic, 0)
    reader.assign([place])
    return int(reader.end_offsets([place])[place])


def all_records(kafka: str, topic: str, last_only: bool = False, partition: int = 0) -> list[ConsumerRecord]:
    """What a partition of the topic holds at this moment."""
    reader, place = _reader(kafka), TopicPartition(topic, partition)
    reader.assign([place])
    first = reader.beginning_offsets([place])[place]
    end = reader.end_offsets([place])[place]
    reader.seek(place, max(first, end - 1) if last_only else first)
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while reader.position(place) < end:
        assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
        found += reader.poll(100).get(place, [])
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets)), f"{topic} was read out of order: {offsets}"
    return found


def new_producer(kafka: str) -> None:
    """Forget the producer: it would not see soon that a topic was made anew, or that it got a partition."""
    _producers.pop(kafka, None)
