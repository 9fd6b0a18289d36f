"""What a replay reads: the rows of a file or of a range of a topic, each with its number, its time and its bytes.

No row is ever left out because of what it holds.  A row that is no event is passed on as it is and closes its round
like an empty one: if it were dropped, the number of all later rounds would tell that it was there.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from stream_dp.config.connections import Kafka
from stream_dp.config.file_kinds import kind_of
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.events.event import BadRecord, decode_event
from stream_dp.kafka import log
from stream_dp.kafka.log import LogRefused

HEADER = "replay"
"""Header of every replayed record: `<digest of its source>:<number of the row>`."""

_ROWS_AT_ONCE = 10_000
_DAMAGE = (OSError, EOFError, zlib.error, csv.Error, UnicodeError, pa.ArrowException)


class ReplayRefused(LogRefused):
    """A replay that cannot be made, or would break a guarantee; the message says what to change."""


class Row(NamedTuple):
    """One row: `timestamp` in milliseconds since 1970, `mark` the `replay` header that a record has already."""

    number: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    mark: str | None = None


class Source(Protocol):
    """Where rows come from.  `digest` tells this source from all others; it is part of every replayed record."""

    digest: str

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

    def take(self, row: Row) -> None:
        """Count one row."""
        try:
            decode_event(row.value)
        except BadRecord:
            self.bad += 1
        else:
            self.events += 1
        if row.timestamp is None:
            self.untimed += 1
        else:
            self.first = row.timestamp if self.first is None else min(self.first, row.timestamp)
            self.last = row.timestamp if self.last is None else max(self.last, row.timestamp)


def survey(source: Source) -> Survey:
    """Read a source once and count."""
    found = Survey()
    for row in source.rows():
        found.take(row)
    return found


class FileSource:
    """A file of JSON Lines, CSV (both also as .gz) or Parquet; it is read once to see that it can be.

    JSON Lines are passed on byte for byte, empty ones left out.  The columns of CSV and Parquet are `items` (a list; in
    CSV as JSON, or one item) or `item`, and `user`, `id` and `ts` where there are any.  Raises `ReplayRefused`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._kind, self._packed = kind_of(path)
        except ValueError as unknown:
            raise ReplayRefused(str(unknown)) from None
        with self._readable(), path.open("rb") as file:
            digest = blake2b(digest_size=16)
            while block := file.read(1 << 20):
                digest.update(block)
        self.digest = digest.hexdigest()
        self.survey = survey(self)

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
                yield from (line for each in lines if (line := each.rstrip(b"\r\n")).strip())
        elif self._kind == "csv":
            with (
                self._opened() as file,
                io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="") as text,
            ):
                rows = csv.DictReader(text)
                self._require_items(rows.fieldnames or ())
                yield from (_event(row, is_text=True) for row in rows)
        else:
            with pq.ParquetFile(self._path) as table:
                self._require_items(table.schema_arrow.names)
                names = [
                    name for name in ("items", "item", "user", "id", "ts") if name in table.schema_arrow.names
                ]
                for batch in table.iter_batches(_ROWS_AT_ONCE, columns=names):
                    yield from (_event(row, is_text=False) for row in batch.to_pylist())

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with gzip.open(self._path, "rb") if self._packed else self._path.open("rb") as file:
            yield cast(IO[bytes], file)

    def _require_items(self, names: Any) -> None:
        if not {"items", "item"} & set(names):
            raise ReplayRefused(f"the file {str(self._path)!r} has no column items, nor item: name one so")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            reason = getattr(error, "strerror", None) or f"it is damaged: {type(error).__name__}"
            raise ReplayRefused(f"the file {str(self._path)!r} cannot be read ({reason})") from None


def _event(row: dict[str, Any], is_text: bool) -> bytes:
    """A row of a table as the bytes of an event; b"" for one that cannot be written so."""
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
    """The records of a topic with one partition, from `start` to before `end`: offsets, times, or None for all."""

    def __init__(
        self, kafka: Kafka, topic: str, start: int | datetime | None = None, end: int | datetime | None = None
    ) -> None:
        self._kafka, self.topic = kafka, topic
        self.digest = blake2b(f"topic {topic}".encode(), digest_size=16).hexdigest()
        with log.read_only_consumer(kafka) as consumer:
            if len(consumer.partitions_for_topic(topic) or ()) != 1:
                raise ReplayRefused(f"the topic {topic!r} does not exist, or has more than one partition")
        held = log.offsets(kafka, topic)
        self.start = max(held.first, self._offset(start, held.first, held.end))
        self.end = min(held.end, self._offset(end, held.end, held.end))

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def rows(self) -> Iterator[Row]:
        """The records of the range, numbered by their offsets."""
        return self.between(self.start, self.end)

    def between(self, start: int, end: int) -> Iterator[Row]:
        """Records of the topic; raises KafkaError where they do not come."""
        for _, batch in log.read_batches(self._kafka, self.topic, start, end):
            for record in batch:
                marks = [value.decode(errors="replace") for name, value in record.headers if name == HEADER]
                yield Row(record.offset, record.timestamp, record.key, record.value, *marks[:1])

    def _offset(self, asked: int | datetime | None, none: int, last: int) -> int:
        if not isinstance(asked, datetime):
            return none if asked is None else asked
        found = log.offset_at(self._kafka, self.topic, asked)
        return last if found is None else found
