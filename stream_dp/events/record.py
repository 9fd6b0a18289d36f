"""A record of a Kafka topic, in the form that every folder uses.  Imports nothing that is slow to import."""

from collections.abc import Sequence
from typing import Any, NamedTuple

LARGEST_VALUE = 1 << 20
"""Most bytes of an event, after decompression: a little above what Kafka takes by default.  An epoch freezes it."""


Headers = tuple[tuple[str, bytes | None], ...]

_BESIDE_A_HEADER = 64
"""Bytes that each header counts beside its name and value, so that their number is limited too."""


class Record(NamedTuple):
    """A record of the events topic as the broker gave it; `timestamp` is the broker's, in milliseconds.

    Of a key or a value of more than `LARGEST_VALUE` bytes, one byte more than that is kept; see `kept` for headers.
    `offset` is the record's place in its `partition`.  `headers` are in their order; they decide about an event where
    its mapping reads them.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    partition: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()

    @classmethod
    def of(cls, found: Any) -> "Record":
        """From a record of either Kafka client."""
        headers = kept(found.headers) if found.headers else ()
        return cls(found.offset, found.timestamp, cut(found.key), cut(found.value), found.partition, headers)


def cut(part: bytes | None) -> bytes | None:
    """What is kept of a key or a value: enough to see that it is too large, where it is."""
    return part if part is None or len(part) <= LARGEST_VALUE else part[: LARGEST_VALUE + 1]


def kept(headers: Sequence[tuple[str, bytes | None]]) -> Headers:
    """All headers of a record; none where they take more than `LARGEST_VALUE` bytes."""
    size = sum(_BESIDE_A_HEADER + len(name.encode()) + len(value or b"") for name, value in headers)
    return tuple(headers) if size <= LARGEST_VALUE else ()
