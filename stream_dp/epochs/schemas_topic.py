"""The topic `<stream>.schemas`: PRIVATE, because which schemas there are follows from the records that name them."""

import time
from collections.abc import Iterable, Iterator

from stream_dp.config.settings import Settings
from stream_dp.epochs.journal import append_all
from stream_dp.events.mapping.schema import Schema
from stream_dp.events.schema_book import SchemaBook
from stream_dp.kafka import log


class SchemasTopic:
    """The topic, as far as it has been read into a book."""

    def __init__(self, settings: Settings, book: SchemaBook) -> None:
        self._kafka, self._name, self._book, self._read = settings.kafka_address, settings.schemas, book, 0

    def read_on(self) -> None:
        """Read what has been appended since.  Raises `LogRefused`."""
        held = log.offsets(self._kafka, self._name)
        if held.first > self._read:
            raise log.LogRefused(
                f"the topic {self._name!r} has lost its first records, by which events are read: restore it, or open a "
                "new epoch, which is charged, with --new-epoch"
            )
        for record in log.read(self._kafka, self._name, self._read, held.end):
            self._book.take(record.value)
        self._read = held.end

    def settle(self, found: Iterable[tuple[int, Schema | None, float]]) -> None:
        """Put on record what these numbers stand for, and read what counts: somebody else may have been faster."""
        now = time.time_ns() // 1_000_000
        append_all(self._kafka, self._name, (self._book.encode(*each) for each in found), now)
        self.read_on()


def schema_records(settings: Settings) -> Iterator[bytes | None]:
    """All that the topic holds; nothing if there is none."""
    kafka, topic = settings.kafka_address, settings.schemas
    if log.existing(kafka, topic):
        held = log.offsets(kafka, topic)
        yield from (record.value for record in log.read(kafka, topic, held.first, held.end))


def check_schemas_topic(settings: Settings) -> None:
    """Raise `LogRefused` unless the topic keeps its records forever."""
    for forgetful in log.check_topic(settings.kafka_address, settings.schemas):
        raise log.LogRefused(
            f"{forgetful}, and events could not be read again: set retention.ms and retention.bytes to -1"
        )
