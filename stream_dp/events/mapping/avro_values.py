"""Avro as values, read by fastavro: by the schema that wrote them and, where there is one, as another schema says."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import msgspec
from fastavro.schema import SchemaParseException

from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.paths import Value
from stream_dp.events.mapping.schema import Schema, UnusableSchema

_Parsed = Any
_EMPTY = frozenset(("null",))


def avro_reader(writer: Schema, reader: Schema | None = None) -> Callable[[bytes, int], Value]:
    """A function from a value, and where it begins, to what it holds; it raises `BadRecord`.

    Raises `UnusableSchema`.
    """
    written, read_as = _parsed(writer), None if reader is None else _parsed(reader)

    def read(value: bytes, begin: int) -> Value:
        source = BytesIO(value)
        source.seek(begin)
        try:
            found = fastavro.schemaless_reader(source, written, read_as)
        except Exception as error:  # fastavro raises what its compiled code comes upon
            raise BadRecord(f"not what its Avro schema says ({type(error).__name__})") from None
        if source.read(1):
            raise BadRecord("more bytes than its Avro schema says")
        return found

    return read


def _parsed(schema: Schema) -> _Parsed:
    """The schema as fastavro takes it, without logical types: a date is the integer that it is written as.

    One that refers to itself is refused, because fastavro would follow a record of it as deep as its bytes say.  So is
    an array of what takes no bytes, of which a few bytes could announce billions.
    """
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(_plain(msgspec.json.decode(text)), named)
        parsed = fastavro.parse_schema(_plain(msgspec.json.decode(schema.text)), named)
        _least_bytes(parsed, named, ())
    except UnusableSchema:
        raise
    except (
        msgspec.DecodeError,
        SchemaParseException,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ) as error:
        raise UnusableSchema(f"it is no Avro schema ({type(error).__name__})") from None
    return parsed


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _plain(each) for name, each in schema.items() if name != "logicalType"}
    return schema


def _least_bytes(schema: _Parsed, named: dict[str, Any], around: tuple[str, ...]) -> int:
    """The least that a value of this schema takes.  Raises `UnusableSchema`; `around`: the types that it stands in."""
    if isinstance(schema, str):
        if schema not in named:
            return 0 if schema in _EMPTY else 1
        if schema in around:
            raise UnusableSchema(f"the Avro type {schema} refers to itself")
        return _least_bytes(named[schema], named, around)
    if isinstance(schema, list):
        for each in schema:
            _least_bytes(each, named, around)
        return 1
    kind = schema["type"]
    if kind in ("record", "error"):
        inside = (*around, schema["name"])
        return sum(_least_bytes(each["type"], named, inside) for each in schema["fields"])
    if kind == "array":
        if not _least_bytes(schema["items"], named, around):
            raise UnusableSchema("it has an array of what takes no bytes")
        return 1
    if kind == "map":
        _least_bytes(schema["values"], named, around)
        return 1
    if kind == "fixed":
        return int(schema["size"])
    return 1 if kind == "enum" else _least_bytes(kind, named, around)
