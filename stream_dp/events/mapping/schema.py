"""Schemas by which values are read, and what a registry puts in front of a value that was written by one of them."""

from collections.abc import Callable

import msgspec

from stream_dp.errors import StreamDpError
from stream_dp.events.event import BadRecord

LARGEST_SCHEMA = 256 << 10
"""Most bytes of a schema, as an epoch or the log holds it."""

_MAGIC = 0
HEADER_BYTES = 5


class Schema(msgspec.Struct, frozen=True):
    """The text of a schema; `references` are the names and texts of those that it needs, each after those it needs."""

    text: str
    references: tuple[tuple[str, str], ...] = ()


class UnusableSchema(StreamDpError):
    """A schema that nothing can be read by; the message says why."""


SchemaOf = Callable[[int], Schema | None]
"""The schema that a registry has under a number; None if it has none.  Raises `SchemaNotSettled`."""


class SchemaNotSettled(StreamDpError):
    """Nobody has settled yet what stands under a number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"schema {number} is not on record")
        self.number = number


def schema_number(value: bytes | None) -> int | None:
    """The number of the schema that a framed value names; None for a value without one."""
    if value is None or len(value) < HEADER_BYTES or value[0] != _MAGIC:
        return None
    return int.from_bytes(value[1:HEADER_BYTES])


def framed(value: bytes) -> tuple[int, int]:
    """The number of a framed value's schema, and where the value itself begins.  Raises `BadRecord`."""
    number = schema_number(value)
    if number is None:
        raise BadRecord("no schema number of a registry stands in front of the value")
    return number, HEADER_BYTES
