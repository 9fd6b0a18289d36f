"""What a record is as an event, by the mapping of its epoch: a function of that one record."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from stream_dp.config.secret import SettingsError
from stream_dp.errors import needs_extra
from stream_dp.events.event import LONGEST_LABEL, BadRecord, Event, decode_event, decode_events, sized
from stream_dp.events.mapping.changes import change_fields, inserted_row
from stream_dp.events.mapping.csv_values import csv_reader
from stream_dp.events.mapping.json_values import json_reader
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.mapping.paths import (
    NO_ROW,
    Fields,
    Path,
    Value,
    compiled,
    fields_read,
    is_true,
    parsed,
)
from stream_dp.events.mapping.schema import Schema, SchemaNotSettled, SchemaOf, UnusableSchema, framed
from stream_dp.events.mapping.text import text_of, texts_of
from stream_dp.events.record import Record
from stream_dp.events.records import Records

_Taken = TypeVar("_Taken")
_Given = TypeVar("_Given")

_Source = Callable[[Record, Value], Value]
_FILTERED = Event([], "")
"""An event that holds nothing; in the user unit nobody's, which is no mistake of the record."""


_Read = Callable[[bytes], Value]
_ReadFrom = Callable[[bytes, int], Value]
"""Reads a value that begins at a place of the bytes."""


@dataclass(frozen=True)
class Decoder:
    """The event in a record, and the events in many; both raise `BadRecord` where there is none in one of them."""

    one: Callable[[Record], Event]
    all: Callable[[Records], list[Event]]

    def __call__(self, record: Record) -> Event:
        """The event in a record."""
        return self.one(record)


def no_schemas(number: int) -> Schema | None:
    """A `SchemaOf` for what needs none."""
    raise SchemaNotSettled(number)


def decoder_of(mapping: Mapping | None, schema_of: SchemaOf = no_schemas) -> Decoder:
    """The decoder of an epoch with this mapping.  Raises `SettingsError` for one that cannot be."""
    if mapping is None or not mapping.maps:
        return Decoder(_own_format, lambda records: decode_events(records.values))
    try:
        return _mapped(mapping, _reader(mapping, schema_of))
    except UnusableSchema as unusable:
        raise SettingsError(f"[events] cannot use its schema: {unusable}") from None


def _own_format(record: Record) -> Event:
    return decode_event(record.value)


def _reader(mapping: Mapping, schema_of: SchemaOf) -> _Read:
    """What turns the bytes of a value into what it holds, at least where the mapping looks."""
    paths = [parsed(each) for each in mapping.expressions if not each.startswith("$")]
    fields = fields_read(paths)
    if mapping.change_data_capture is not None:
        fields = change_fields(fields)
    if mapping.format == "json":
        return json_reader(fields)
    if mapping.format == "json-schema":
        read = json_reader(fields)
        return lambda value: read(value[framed(value)[1] :])
    if mapping.format == "text":
        return _text
    if mapping.format == "csv":
        read_row = csv_reader(mapping.delimiter, mapping.header)
        return lambda value: read_row(_text(value))
    given = Schema(mapping.schema) if mapping.schema else None
    if not mapping.needs_schemas:
        assert given is not None
        fixed = _reader_by(mapping, fields, given)
        return lambda value: fixed(value, framed(value)[1] if mapping.framed else 0)
    if given is not None:
        _avro_reader(given)  # so that what is wrong with it is told at once
    return _by_number(lambda written_by: _reader_by(mapping, fields, written_by, given), schema_of)


def _reader_by(mapping: Mapping, fields: Fields, schema: Schema, read_as: Schema | None = None) -> _ReadFrom:
    if mapping.format == "avro":
        return _avro_reader(schema, read_as)
    with needs_extra('format = "protobuf"', "worker"):
        from stream_dp.events.mapping.protobuf_values import protobuf_reader

    return protobuf_reader(schema, fields, mapping.message, mapping.framed)


def _avro_reader(schema: Schema, read_as: Schema | None = None) -> _ReadFrom:
    with needs_extra('format = "avro"', "worker"):
        from stream_dp.events.mapping.avro_values import avro_reader

    return avro_reader(schema, read_as)


def _by_number(by_writer: Callable[[Schema], _ReadFrom], schema_of: SchemaOf) -> _Read:
    """Reads each value by the schema that it names."""
    readers: dict[int, _ReadFrom | BadRecord] = {}

    def read(value: bytes) -> Value:
        number, begin = framed(value)
        reader = readers.get(number)
        if reader is None:
            reader = readers[number] = _for(number, by_writer, schema_of)
        if isinstance(reader, BadRecord):
            raise BadRecord(str(reader))
        return reader(value, begin)

    return read


def _for(number: int, by_writer: Callable[[Schema], _ReadFrom], schema_of: SchemaOf) -> _ReadFrom | BadRecord:
    schema = schema_of(number)
    if schema is None:
        return BadRecord(f"the registry does not know its schema, {number}")
    try:
        return by_writer(schema)
    except UnusableSchema as unusable:
        return BadRecord(f"its schema, {number}, cannot be used: {unusable}")


def _text(value: bytes) -> Value:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadRecord("not valid UTF-8 text") from None


def _mapped(mapping: Mapping, read: _Read) -> Decoder:
    labels = _labels(mapping)
    where = None if mapping.where is None else _source(mapping.where)
    user = None if mapping.user is None else _source(mapping.user)
    if captures := mapping.change_data_capture is not None:
        read_change = read
        read = lambda value: inserted_row(read_change(value))  # noqa: E731  a def would be another name for it

    def event(record: Record) -> Event:
        if captures and not record.value:  # the tombstone that follows a deleted row
            return _FILTERED
        found = read(sized(record.value))
        if found is NO_ROW:
            return _FILTERED
        if where is not None and not is_true(where(record, found)):
            return _FILTERED
        items = labels(record, found)
        if not items:
            raise BadRecord("the mapping finds no item in it")
        return Event(items, None if user is None else _user(user(record, found)))

    def events(records: Records) -> list[Event]:
        return [*map(event, records)]

    return Decoder(_without_collection(event), _without_collection(events))


def _without_collection(decode: Callable[[_Taken], _Given]) -> Callable[[_Taken], _Given]:
    """The decoder without garbage collection, which would walk a record of many small arrays again and again."""

    def decoded(taken: _Taken) -> _Given:
        collects = gc.isenabled()
        gc.disable()
        try:
            return decode(taken)
        finally:
            if collects:
                gc.enable()

    return decoded


def _user(found: Value) -> str | None:
    try:
        return text_of(found)
    except BadRecord as bad:
        raise BadRecord(str(bad).replace("an item", "the user", 1)) from None


def _labels(mapping: Mapping) -> Callable[[Record, Value], list[str]]:
    if mapping.families is None:
        expression = mapping.items or ""
        if expression.startswith("$"):
            items = _source(expression)
            return lambda record, found: texts_of(items(record, found))
        path = _path(expression)
        return lambda _, found: texts_of(path(found))
    families = [(f"{name}:", _source(each)) for name, each in sorted(mapping.families.items())]

    def labels(record: Record, found: Value) -> list[str]:
        named = [prefix + text for prefix, source in families for text in texts_of(source(record, found))]
        if named and max(map(len, named)) > LONGEST_LABEL:
            raise BadRecord(f"an item has more than {LONGEST_LABEL} characters")
        return named

    return labels


def _source(expression: str) -> _Source:
    """Where the settings say that something stands: a path into the value, or what stands beside it."""
    if expression == "$key":
        return lambda record, _: _beside(record.key)
    if expression == "$timestamp":
        return lambda record, _: record.timestamp
    if expression.startswith("$headers."):
        name = expression.removeprefix("$headers.")
        return lambda record, _: _beside(_header(record, name))
    if expression.startswith("$"):
        raise SettingsError(
            f"[events] cannot use {expression!r}: beside the value there are $key, $timestamp and $headers.NAME"
        )
    path = _path(expression)
    return lambda _, found: path(found)


@lru_cache(maxsize=256)
def _path(expression: str) -> Path:
    return compiled(parsed(expression))


def _header(record: Record, name: str) -> bytes | None:
    """The last header of this name, as Kafka's own clients take it."""
    return next((value for found, value in reversed(record.headers) if found == name), None)


def _beside(part: bytes | None) -> str | None:
    try:
        return None if part is None else part.decode()
    except UnicodeDecodeError:
        raise BadRecord("an item is bytes that are not UTF-8") from None
