"""Avro as values, read by fastavro: by the schema that wrote them and, where there is one, as another schema says."""

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import fastavro
import msgspec

from stream_dp.errors import Refused
from stream_dp.events.event import BadRecord, json_text
from stream_dp.events.mapping.paths import Value
from stream_dp.events.mapping.schema import Schema, UnusableSchema

_Parsed = Any

_DEEPEST = 100
_MOST_VALUES = 10_000
"""Most values that a schema may stand for with each of its types written out: those that take no bytes are made of
nothing, and doubled with each type that holds the one before it twice."""


def avro_reader(writer: Schema, reader: Schema | None = None) -> Callable[[bytes, int], Value]:
    """A function from a value, and where it begins, to what it holds; it raises `BadRecord`.

    Raises `UnusableSchema`.
    """
    if not _is_compiled():
        raise Refused("Avro is read by the compiled part of fastavro alone: install fastavro from its wheel")
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


def _is_compiled() -> bool:
    """The plain one takes some broken values that this one refuses, and the other way round, where it skips fields."""
    return fastavro.schemaless_reader.__module__ == "fastavro._read"


def _parsed(schema: Schema) -> _Parsed:
    """The schema as fastavro takes it, without logical types: a date is the integer that it is written as.

    One that refers to itself is refused, because fastavro would follow a record of it as deep as its bytes say.  So is
    an array of what takes no bytes, of which a few bytes could announce billions, and what is too large or too deep
    when it is written out.
    """
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(_plain(_decoded(text)), named)
        parsed = fastavro.parse_schema(_plain(_decoded(schema.text)), named)
        _extent(parsed, named, (), {})
    except UnusableSchema:
        raise
    except BadRecord as bad:
        raise UnusableSchema(f"it is no Avro schema: {bad}") from None
    except Exception as error:  # fastavro raises whatever a broken schema brings it to
        raise UnusableSchema(f"it is no Avro schema ({type(error).__name__})") from None
    return parsed


def _decoded(text: str) -> Any:
    return msgspec.json.decode(json_text(text.encode()))


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _plain(each) for name, each in schema.items() if name != "logicalType"}
    return schema


class _Extent(NamedTuple):
    """Of a type, written out: the least bytes of a value, of how many values it is made, and how deep they lie."""

    least_bytes: int
    values: int
    depth: int


def _extent(
    schema: _Parsed, named: dict[str, Any], around: tuple[str, ...], known: dict[str, _Extent]
) -> _Extent:
    """Raises `UnusableSchema`.  `around`: the types that it stands in; `known`: those that were looked at."""
    if isinstance(schema, str):
        if schema in around:
            raise UnusableSchema(f"the Avro type {schema} refers to itself")
        if schema in named:
            return known.get(schema) or _extent(named[schema], named, around, known)
        return _Extent(int(schema != "null"), 1, 1)
    if isinstance(schema, list):
        return _joined(1, [_extent(each, named, around, known) for each in schema])
    kind = schema["type"]
    if kind in ("record", "error"):
        inside = (*around, schema["name"])
        fields = [_extent(each["type"], named, inside, known) for each in schema["fields"]]
        found = known[schema["name"]] = _joined(sum(each.least_bytes for each in fields), fields)
        return found
    if kind in ("array", "map"):
        element = _extent(schema["items" if kind == "array" else "values"], named, around, known)
        if kind == "array" and not element.least_bytes:
            raise UnusableSchema("it has an array of what takes no bytes")
        return _joined(1, [element])
    if kind == "fixed":
        return _Extent(int(schema["size"]), 1, 1)
    return _Extent(1, 1, 1) if kind == "enum" else _extent(kind, named, around, known)


def _joined(least_bytes: int, parts: Sequence[_Extent]) -> _Extent:
    values, depth = (
        1 + sum(each.values for each in parts),
        1 + max((each.depth for each in parts), default=0),
    )
    if values > _MOST_VALUES:
        raise UnusableSchema(f"written out it has more than {_MOST_VALUES} values")
    if depth > _DEEPEST:
        raise UnusableSchema(f"its types are nested more than {_DEEPEST} deep")
    return _Extent(least_bytes, values, depth)
