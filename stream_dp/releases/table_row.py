"""The rows of a table: one flat JSON object a shown label, whose key is the label in UTF-8."""

from functools import cache
from itertools import chain, repeat
from typing import Any

import msgspec

from stream_dp.releases.totals import totals_carried
from stream_dp.releases.whole_release import WholeRelease

_LARGEST_ROW = 900_000  # key and value, to stay below Kafka's default limit of a message
_LARGEST_COUNT = 2**63 - 1


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The released count of one label: `low` to `high` is its 95% interval, `sd` the deviation of the round's noise.

    `round`, `ts` and `epoch` are those of the release that it comes from.  Where it carries epochs on, `total` is the
    count over all of them from the beginning of epoch `since` on, with its own `total_sd`.  `units`, `over_cap` and
    `units_sd` are those of the release, if it has them, and say how much the count leaves out.
    """

    label: str
    count: int
    sd: float
    low: float
    high: float
    round: int
    ts: str
    epoch: int
    total: int | None = None
    total_sd: float | None = None
    since: int | None = None
    units: int | None = None
    over_cap: int | None = None
    units_sd: float | None = None


_CONNECT_TYPES = {
    "label": "string",
    "count": "int64",
    "sd": "double",
    "low": "double",
    "high": "double",
    "round": "int64",
    "ts": "string",
    "epoch": "int64",
}
_CONNECT_NAMES = {"ts": "io.debezium.time.ZonedTimestamp"}
"""What a text is for Debezium's sink, which makes a `timestamptz` of it in PostgreSQL; to others it is a text."""

_TOTALS = {"total": "int64", "total_sd": "double", "since": "int64"}
_CELLS = {"units": "int64", "over_cap": "int64", "units_sd": "double"}


@cache
def _connect_opening(with_totals: bool, with_cells: bool) -> bytes:
    """The schema of `Row` as Kafka Connect's JsonConverter reads it with schemas.enable=true."""
    types = _CONNECT_TYPES | (_TOTALS if with_totals else {}) | (_CELLS if with_cells else {})
    fields = [
        {"field": name, "type": kind, "optional": name not in _CONNECT_TYPES}
        | ({"name": _CONNECT_NAMES[name], "version": 1} if name in _CONNECT_NAMES else {})
        for name, kind in types.items()
    ]
    schema = {"type": "struct", "name": "stream_dp.Row", "optional": True, "fields": fields}
    return b'{"schema":' + msgspec.json.encode(schema) + b',"payload":'


_CONNECT_REMOVAL = _connect_opening(with_totals=False, with_cells=False) + b"null}"
_LONGEST_DATABASE_KEY = (
    2_600  # in bytes; PostgreSQL's index takes a little more, in a row without other columns
)


class _WithSchema(msgspec.Struct, frozen=True):
    payload: Row


class NoRows(Exception):
    """A release that cannot be written as rows; the message says why."""


def rows_of(release: WholeRelease, table_format: str) -> dict[bytes, bytes]:
    """The table that shows this release: the value of each row by its key.

    `table_format`: json or connect.  With "connect", labels that are no key of a database are left out: their
    rows would stop the sink.  Raises `NoRows` for what no worker writes.
    """
    connect = table_format == "connect"
    schema = _connect_opening(totals_carried(release) is not None, release.units is not None)
    opening, closing = (schema, b"}") if connect else (b"", b"")
    try:
        rows = {
            key: b"".join((opening, msgspec.json.encode(row), closing))
            for key, row in ((row.label.encode(), row) for row in _rows(release))
            if not connect or _is_database_key(key)
        }
    except (ValueError, OverflowError, UnicodeError) as error:
        raise NoRows(str(error)) from None
    if any(abs(count) > _LARGEST_COUNT for count in chain(release.counts, release.totals or ())):
        raise NoRows(f"a count is beyond {_LARGEST_COUNT}")
    if any(len(key) + len(value) > _LARGEST_ROW for key, value in rows.items()):
        raise NoRows(f"a label is longer than {_LARGEST_ROW // 2} bytes")
    return rows


def _is_database_key(key: bytes) -> bool:
    """Whether PostgreSQL takes the label as text and as a primary key."""
    return len(key) <= _LONGEST_DATABASE_KEY and 0 not in key


def removal(table_format: str) -> tuple[bytes | None, ...]:
    """The values that are written, one after the other, under the key of a label that is not shown any more.

    The last one removes the record from the topic.  A sink of Kafka Connect may pass over it, because it has no
    schema (Debezium's does), so "connect" says it in a record with a schema first.
    """
    return (_CONNECT_REMOVAL, None) if table_format == "connect" else (None,)


def is_foreign(key: bytes, value: bytes) -> bool:
    """Whether `stream-dp table` writes no such record."""
    return value != _CONNECT_REMOVAL and decode_row(key, value) is None


def _rows(release: WholeRelease) -> list[Row]:
    rows = []
    totals = totals_carried(release) or repeat(None, len(release.labels))
    sds = release.label_sds
    columns = zip(release.labels, release.counts, sds, *release.intervals(), totals, strict=True)
    for label, count, sd, low, high, total in columns:
        rows.append(
            Row(
                label=label,
                count=count,
                sd=float(sd),
                low=float(low),
                high=float(high),
                round=release.round,
                ts=release.ts,
                epoch=release.epoch,
                total=None if total is None else total.count,
                total_sd=None if total is None else total.sd,
                since=None if total is None else total.since,
                units=release.units,
                over_cap=release.over_cap,
                units_sd=release.units_sd,
            )
        )
    return rows


def decode_row(key: bytes, value: bytes) -> Row | None:
    """The row in a record of a table, in either format; None for anything else."""
    row = decode_value(value)
    return row if row is not None and row.label.encode() == key else None


def decode_value(value: bytes) -> Row | None:
    """The row in a record, in either format; None for anything else."""
    kind: Any = _WithSchema if value.startswith(b'{"schema"') else Row
    try:
        found = msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    row: Row = found.payload if isinstance(found, _WithSchema) else found
    return row
