"""The rows of a table: one flat JSON object a shown label, whose key is the label in UTF-8."""

from typing import Any

import msgspec

from stream_dp.releases.topic import WholeRelease

_LARGEST_ROW = 900_000  # key and value, to stay below Kafka's default limit of a message
_LARGEST_COUNT = 2**63 - 1


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The released count of one label: `low` to `high` is its 95% interval, `sd` the deviation of the round's noise.

    `round`, `ts` and `epoch` are those of the release that it comes from.
    """

    label: str
    count: int
    sd: float
    low: float
    high: float
    round: int
    ts: str
    epoch: int


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
_CONNECT_SCHEMA = {
    "type": "struct",
    "name": "stream_dp.Row",
    "optional": False,
    "fields": [{"field": name, "type": kind, "optional": False} for name, kind in _CONNECT_TYPES.items()],
}
"""`Row` as Kafka Connect's JsonConverter reads it with schemas.enable=true."""

_CONNECT_OPENING = b'{"schema":' + msgspec.json.encode(_CONNECT_SCHEMA) + b',"payload":'


class _WithSchema(msgspec.Struct, frozen=True):
    payload: Row


class NoRows(Exception):
    """A release that cannot be written as rows; the message says why."""


def rows_of(release: WholeRelease, table_format: str) -> dict[bytes, bytes]:
    """The table that shows this release: the value of each row by its key.

    `table_format` is that of the settings.  Raises `NoRows` for what no worker writes.
    """
    opening, closing = (_CONNECT_OPENING, b"}") if table_format == "connect" else (b"", b"")
    try:
        rows = {
            row.label.encode(): b"".join((opening, msgspec.json.encode(row), closing))
            for row in _rows(release)
        }
    except (ValueError, OverflowError, UnicodeError) as error:
        raise NoRows(str(error)) from None
    if any(abs(count) > _LARGEST_COUNT for count in release.counts):
        raise NoRows(f"a count is beyond {_LARGEST_COUNT}")
    if any(len(key) + len(value) > _LARGEST_ROW for key, value in rows.items()):
        raise NoRows(f"a label is longer than {_LARGEST_ROW // 2} bytes")
    return rows


def _rows(release: WholeRelease) -> list[Row]:
    rows = []
    for label, count, low, high in zip(release.labels, release.counts, *release.intervals(), strict=True):
        rows.append(
            Row(
                label=label,
                count=count,
                sd=float(release.sd),
                low=float(low),
                high=float(high),
                round=release.round,
                ts=release.ts,
                epoch=release.epoch,
            )
        )
    return rows


def decode_row(key: bytes, value: bytes) -> Row | None:
    """The row in a record of a table, in either format; None for anything else."""
    kind: Any = _WithSchema if value.startswith(b'{"schema"') else Row
    try:
        found = msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    row: Row = found.payload if isinstance(found, _WithSchema) else found
    return row if row.label.encode() == key else None
