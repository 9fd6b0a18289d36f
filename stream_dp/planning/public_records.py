"""The newest records of a topic whose records are PUBLIC: what they are made of, and how many items they hold."""

import json

from stream_dp.config.connections import Kafka
from stream_dp.config.events_section import EventsSection
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.planning.record_shapes import Shape, joined, shape_of_value

_RECORDS = 200
_SHARE = 0.9


def public_shape(kafka: Kafka, topic: str, partitions: int) -> Shape:
    """What the newest JSON records are made of; None where none is JSON."""
    shape: Shape = None
    for record in newest_records(kafka, topic, partitions, _RECORDS):
        try:
            shape = joined(shape, shape_of_value(json.loads(record.value or b"null")))
        except (ValueError, RecursionError):
            continue
    return shape


def distinct_items(kafka: Kafka, topic: str, partitions: int, section: EventsSection) -> int | None:
    """How many items nine in ten of the newest events hold at most; None where none is an event."""
    decode = decoder_of(Mapping.of(section))
    sizes: list[int] = []
    for record in newest_records(kafka, topic, partitions, _RECORDS):
        try:
            sizes.append(len(set(decode(record).items)))
        except BadRecord:
            continue
    sizes = sorted(size for size in sizes if size)
    return sizes[int(_SHARE * (len(sizes) - 1))] if sizes else None


def newest_records(kafka: Kafka, topic: str, partitions: int, number: int) -> list[Record]:
    """The newest records of a topic, of each partition about as many.  Raises KafkaError."""
    found: list[Record] = []
    for partition in range(partitions):
        held = log.offsets(kafka, topic, partition)
        share = number // partitions + (partition < number % partitions)
        found += log.read(kafka, topic, max(held.first, held.end - share), held.end, partition)
    return found
