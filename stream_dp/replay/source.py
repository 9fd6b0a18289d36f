"""What a replay reads: the rows of a file or of a range of a topic, each with its number, its time and its bytes.

No row is ever left out because of what it holds.  A row that is no event is passed on as it is and closes its round
like an empty one: if it were dropped, the number of all later rounds would tell that it was there.
"""

import csv
import gzip
import heapq
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from hashlib import blake2b
from itertools import zip_longest
from typing import IO, Any, NamedTuple, Protocol, cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from stream_dp.config.connections import Kafka
from stream_dp.config.file_kinds import kind_of
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.events.arrow_rows import UNREADABLE, each_row
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import Decoder, decoder_of
from stream_dp.events.record import Record, cut, kept
from stream_dp.events.stored_files import StoredFile
from stream_dp.kafka import log
from stream_dp.kafka.log import LogRefused

HEADER = "replay"
"""Header of every replayed record: `<digest of its source>:<place of the row>`."""

OWN_FORMAT = decoder_of(None)

_ROWS_AT_ONCE = 10_000
_DAMAGE = (OSError, EOFError, zlib.error, pa.ArrowException)


class Place(NamedTuple):
    """Where a row stands in its source: its number in a partition; a file has one."""

    partition: int
    number: int

    def __str__(self) -> str:
        """The place as the header `replay` has it: without the partition if it is the first one."""
        return f"{self.partition}/{self.number}" if self.partition else str(self.number)

    @classmethod
    def parsed(cls, text: str) -> "Place | None":
        """The place that a header tells; None for what is none.

        >>> Place.parsed("7"), Place.parsed("3/7"), Place.parsed("x")
        (Place(partition=0, number=7), Place(partition=3, number=7), None)
        """
        partition, _, number = text.rpartition("/")
        if not (number.isdecimal() and (partition or "0").isdecimal()):
            return None
        found = cls(int(partition or 0), int(number))
        return found if str(found) == text else None


class Row(NamedTuple):
    """One row: `timestamp` in milliseconds since 1970, `mark` the `replay` header that a record has already."""

    number: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    mark: str | None = None
    partition: int = 0
    headers: Sequence[tuple[str, bytes]] = ()

    @property
    def place(self) -> Place:
        """The place of this record in its source."""
        return Place(self.partition, self.number)

    @property
    def record(self) -> Record:
        """What a worker would read, but for the place and the time that it gets."""
        return Record(
            self.number,
            self.timestamp or 0,
            cut(self.key),
            cut(self.value),
            self.partition,
            kept(self.headers),
        )


class Source(Protocol):
    """Where rows come from.  `digest` tells this source from all others; it is part of every replayed record."""

    digest: str
    partitions: int

    def __len__(self) -> int: ...
    def rows(self) -> Iterator[Row]: ...


@dataclass
class Survey:
    """What a source holds: `bad` rows are no events; times are in milliseconds since 1970."""

    events: int = 0
    bad: int = 0
    untimed: int = 0
    first: int | None = None
    last: int | None = None

    def take(self, row: Row, decode: Decoder) -> None:
        """Count one row."""
        try:
            decode(row.record)
        except BadRecord:
            self.bad += 1
        else:
            self.events += 1
        if row.timestamp is None:
            self.untimed += 1
        else:
            self.first = row.timestamp if self.first is None else min(self.first, row.timestamp)
            self.last = row.timestamp if self.last is None else max(self.last, row.timestamp)


def survey(source: Source, decode: Decoder) -> Survey:
    """Read a source once and count; `decode` says what an event is."""
    found = Survey()
    for row in source.rows():
        found.take(row, decode)
    return found


class FileSource:
    """A file of JSON Lines, CSV (both also as .gz) or Parquet; it is read once to see that it can be.

    JSON Lines are passed on byte for byte.  The columns of CSV and Parquet are `items` (a list; in CSV as JSON, or one
    item) or `item`, and `user`, `id` and `ts` where there are any.  A row of CSV is one line.  Raises `LogRefused`.
    """

    partitions = 1

    def __init__(self, file: StoredFile, decode: Decoder = OWN_FORMAT, digest: str = "") -> None:
        """`digest`: what the file is called in the headers of replayed rows (file_names.py)."""
        self._file, self.digest = file, digest
        try:
            self._kind, self._packed = kind_of(file.name)
        except ValueError as unknown:
            raise LogRefused(str(unknown)) from None
        self.survey = survey(self, decode)

    def __len__(self) -> int:
        return self.survey.events + self.survey.bad

    def rows(self) -> Iterator[Row]:
        """The rows in the order of the file, numbered from 0."""
        with self._readable():
            for number, value in enumerate(self._values()):
                yield Row(number, _time_of(value), None, value)

    def _values(self) -> Iterator[bytes]:
        if self._kind == "jsonl":
            with self._opened() as lines:
                yield from (line.rstrip(b"\r\n") for line in lines)
        elif self._kind == "csv":
            with self._opened() as lines:
                yield from self._csv_events(lines)
        else:
            with self._file.open_for_arrow() as file, pq.ParquetFile(file) as table:
                self._require_items(table.schema_arrow.names)
                names = [
                    name for name in ("items", "item", "user", "id", "ts") if name in table.schema_arrow.names
                ]
                for batch in table.iter_batches(_ROWS_AT_ONCE, columns=names):
                    yield from (_event(row, is_text=False) for row in each_row(batch))

    def _csv_events(self, lines: IO[bytes]) -> Iterator[bytes]:
        """Each line by itself: an open quote in one would swallow the rows that come after it."""
        separator = "\t" if self._file.name.lower().endswith((".tsv", ".tsv.gz")) else ","
        names = _fields(next(lines, b"").removeprefix(BOM_UTF8), separator)
        self._require_items(names or ())
        for line in lines:
            fields = _fields(line, separator)
            row = UNREADABLE if fields is None else dict(zip(names or (), fields, strict=False))
            yield _event(row, is_text=True)

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with self._file.open() as file:
            yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if self._packed else file

    def _require_items(self, names: Any) -> None:
        if not {"items", "item"} & set(names):
            raise LogRefused(f"the file {self._file.name!r} has no column items, nor item: name one so")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            reason = getattr(error, "strerror", None) or f"it is damaged: {type(error).__name__}"
            raise LogRefused(f"the file {self._file.name!r} cannot be read ({reason})") from None


def _fields(line: bytes, separator: str) -> list[str] | None:
    """The fields of a line of CSV; None for one that is none."""
    text = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
    try:
        return next(csv.reader([text], delimiter=separator, strict=True), [])
    except csv.Error:
        return None


def _event(row: Any, is_text: bool) -> bytes:
    """A row of a table as the bytes of an event; b"" for one that cannot be written so."""
    if row is UNREADABLE:
        return b""
    items = row.get("items") if row.get("items") is not None else row.get("item")
    event: dict[str, Any] = {}
    try:
        if is_text and isinstance(items, str):
            items = orjson.loads(items) if items.startswith("[") else items
        event["items"] = items if isinstance(items, list) else [items] if items not in (None, "") else []
        for name in ("user", "id", "ts"):
            value = row.get(name)
            if value not in (None, ""):
                event[name] = value.isoformat() if isinstance(value, date) else value
        return orjson.dumps(event)
    except (orjson.JSONDecodeError, TypeError, UnicodeError):
        return b""


def _time_of(value: bytes) -> int | None:
    try:
        return milliseconds(parse_time(orjson.loads(value)["ts"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class TopicSource:
    """The records of a topic from `start` to before `end`: times, None for all, or offsets of its only partition.

    Raises `LogRefused` where there is no such topic, or where an offset could be one of any of several partitions.
    """

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        start: int | datetime | None = None,
        end: int | datetime | None = None,
        by_times: bool = False,
    ) -> None:
        """`by_times`: whether the records of several partitions come by their times, which are then public."""
        self._kafka, self.topic, self._by_times = kafka, topic, by_times
        self.digest = blake2b(f"topic {topic}".encode(), digest_size=16).hexdigest()
        held = log.offsets_of_all(kafka, topic)
        self.partitions = len(held)
        if not held:
            raise LogRefused(f"the topic {topic!r} does not exist")
        if len(held) > 1 and (isinstance(start, int) or isinstance(end, int)):
            raise LogRefused(
                f"the topic {topic!r} has {len(held)} partitions, and an offset says nothing about the others: give "
                "times, such as 2026-01-31T12:00:00Z"
            )
        self._ranges = [
            (
                max(each.first, self._offset(start, each.first, each.end, number)),
                min(each.end, self._offset(end, each.end, each.end, number)),
            )
            for number, each in enumerate(held)
        ]

    def __len__(self) -> int:
        return sum(max(0, end - start) for start, end in self._ranges)

    def rows(self) -> Iterator[Row]:
        """The records of the range, each numbered by its offset.

        Those of a partition come in its order.  Partitions take turns, or, by times, the next is always the earliest of
        those that are next in theirs.
        """
        parts = [self.between(*ends, number) for number, ends in enumerate(self._ranges)]
        if self._by_times:
            return heapq.merge(*parts, key=lambda row: (row.timestamp, row.partition))
        return (row for turn in zip_longest(*parts) for row in turn if row is not None)

    def between(self, start: int, end: int, partition: int = 0) -> Iterator[Row]:
        """Records of a partition; raises KafkaError where they do not come."""
        for _, batch in log.read_batches(self._kafka, self.topic, start, end, partition):
            for record in batch:
                marks = [value.decode(errors="replace") for name, value in record.headers if name == HEADER]
                headers = tuple(each for each in record.headers if each[0] != HEADER)
                yield Row(
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    marks[0] if marks else None,
                    partition,
                    headers,
                )

    def _offset(self, asked: int | datetime | None, none: int, last: int, partition: int) -> int:
        if not isinstance(asked, datetime):
            return none if asked is None else asked
        found = log.offset_at(self._kafka, self.topic, asked, partition)
        return last if found is None else found
