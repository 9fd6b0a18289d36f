"""The newest records of a topic whose records are PUBLIC: what they are made of, and how many items they hold."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from stream_dp.config.connections import Kafka
from stream_dp.config.events_section import EventsSection, Format
from stream_dp.errors import Refused
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.csv_values import COLUMNS, csv_reader
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.mapping.schema import schema_number
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.planning.record_shapes import Shape, joined, shape_of_value

_RECORDS = 200
_SHARE = 0.9
_DELIMITERS = (",", ";", "\t", "|")


class Found(NamedTuple):
    """How public records are written, and what they are made of; of CSV, columns by their number."""

    format: Format
    shape: Shape
    delimiter: str = ","
    columns: int = 0


def public_shape(kafka: Kafka, topic: str, partitions: int) -> Found | None:
    """What the newest records are; None where there is none that can be read.  Raises `Refused`."""
    values = [record.value for record in newest_records(kafka, topic, partitions, _RECORDS) if record.value]
    shape: Shape = None
    for value in values:
        try:
            shape = joined(shape, shape_of_value(json.loads(value)))
        except (ValueError, RecursionError):
            continue
    if isinstance(shape, dict | list):
        return Found("json", shape)
    if values and all(schema_number(value) is not None for value in values):
        raise Refused(
            f"the records of {topic!r} name schemas of a registry: give its address with --schema-registry"
        )
    return _text_of(values)


def _text_of(values: Sequence[bytes]) -> Found | None:
    """Lines of CSV, if one delimiter cuts all of them into as many columns, or plain text."""
    try:
        texts = [value.decode() for value in values]
    except UnicodeDecodeError:
        return None
    if not texts:
        return None
    for delimiter in _DELIMITERS:
        read = csv_reader(delimiter, None)
        try:
            columns = {len(read(text)[COLUMNS]) for text in texts}
        except BadRecord:
            continue
        if len(columns) == 1 and (number := columns.pop()) > 1:
            return Found("csv", None, delimiter, number)
    return Found("text", None)


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
