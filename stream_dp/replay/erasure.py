"""A copy of an events topic without one person: in the place of each of their records stands an empty one.

So the copy has as many records as the topic had, with the same times, and is a neighbour of it in the sense of the
guarantee: how many records were erased is not to be seen.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from kafka import KafkaProducer

from stream_dp.config.connections import Kafka
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import Decoder
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.kafka.clients import admin_client, borrowed, producer_client
from stream_dp.kafka.rights import naming

_ANSWER_SECONDS = 30
_GONE_SECONDS = 30
_LARGEST_REQUEST = 2 << 20
_EMPTY = b""

IsErased = Callable[[Record], bool]


class ErasureRefused(log.LogRefused):
    """A copy that cannot be made; the message says what to change."""


@dataclass
class Erased:
    """How many records were copied, and how many of them are empty in the copy: the person's, and those of nobody."""

    records: int = 0
    emptied: int = 0


def of_user(decode: Decoder, user: str) -> IsErased:
    """Whether a record is this user's, by a mapping that reads users; of what is no event, nobody knows it."""

    def is_erased(record: Record) -> bool:
        try:
            event = decode(record)
        except BadRecord:
            return True
        return not event.items or event.user == user

    return is_erased


def of_condition(decode: Decoder) -> IsErased:
    """Whether a condition holds for a record, by a mapping whose one item is true or false."""

    def is_erased(record: Record) -> bool:
        try:
            return decode(record).items != ["false"]
        except BadRecord:
            return True

    return is_erased


def copy_without(
    kafka: Kafka, topic: str, into: str, is_erased: IsErased, progress: Callable[[int, int], None]
) -> Erased:
    """Copy all records of a topic into another one, which is made.  Raises `ErasureRefused`, or KafkaError."""
    described = log.describe(kafka, topic, "retention.ms", "retention.bytes")
    if described is None:
        raise ErasureRefused(f"there is no topic {topic!r}: nothing was copied")
    if log.existing(kafka, into):
        raise ErasureRefused(
            f"the topic {into!r} exists, perhaps with records: name another one that is to be made"
        )
    log.create_topics(kafka, into, partitions=described.partitions, configs=described.settings)
    held = log.offsets_of_all(kafka, topic)
    total, erased = sum(each.end - each.first for each in held), Erased()
    with naming("WRITE", into), borrowed(_copier, kafka) as producer:
        for partition, place in enumerate(held):
            for record in log.read(kafka, topic, place.first, place.end, partition):
                empty = is_erased(record)
                _send(producer, into, record, empty)
                erased.records += 1
                erased.emptied += empty
                if erased.records % 1_000 == 0:
                    progress(erased.records, total)
        producer.flush(_ANSWER_SECONDS)
    copied = sum(each.end - each.first for each in log.offsets_of_all(kafka, into))
    if copied != erased.records:
        raise ErasureRefused(
            f"of {erased.records} records {copied} are in {into!r}: delete that topic, and try again"
        )
    return erased


def delete_topic(kafka: Kafka, topic: str) -> bool:
    """Delete a topic with all that it holds; false where there is none.  Raises KafkaError."""
    if not log.existing(kafka, topic):
        return False
    with naming("DELETE", topic), borrowed(admin_client, kafka) as admin:
        admin.delete_topics([topic])
    until = time.monotonic() + _GONE_SECONDS
    while log.existing(kafka, topic):
        if time.monotonic() > until:
            raise ErasureRefused(f"Kafka still lists the topic {topic!r}: see that it is deleted")
        time.sleep(0.1)
    return True


def _copier(kafka: Kafka) -> KafkaProducer:
    return producer_client(kafka, max_request_size=_LARGEST_REQUEST)


def _send(producer: KafkaProducer, into: str, record: Record, empty: bool) -> None:
    place = {"partition": record.partition, "timestamp_ms": record.timestamp}
    if empty:
        producer.send(into, _EMPTY, **place)
    else:
        headers = [(name, value or b"") for name, value in record.headers]
        producer.send(into, record.value, record.key, headers=headers, **place)
