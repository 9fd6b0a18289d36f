"""What a record is as an event, by the mapping of its epoch: a function of that one record."""

from collections.abc import Callable
from functools import lru_cache

from stream_dp.config.secret import SettingsError
from stream_dp.events.event import LONGEST_LABEL, BadRecord, Event, decode_event, sized
from stream_dp.events.mapping.json_values import json_reader
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.mapping.paths import Path, Value, compiled, fields_read, is_true, parsed
from stream_dp.events.mapping.text import text_of, texts_of
from stream_dp.events.record import Record

Decoder = Callable[[Record], Event]
"""The event in a record; raises `BadRecord`."""

_Source = Callable[[Record, Value], Value]
_FILTERED = Event([], "")
"""An event that holds nothing; in the user unit nobody's, which is no mistake of the record."""


def decoder_of(mapping: Mapping | None) -> Decoder:
    """The decoder of an epoch with this mapping.  Raises `SettingsError` for one that cannot be."""
    if mapping is None or not mapping.maps:
        return _own_format
    return _mapped(mapping, _reader(mapping))


def _own_format(record: Record) -> Event:
    return decode_event(record.value)


def _reader(mapping: Mapping) -> Callable[[bytes], Value]:
    paths = [parsed(each) for each in mapping.expressions if not each.startswith("$")]
    if mapping.format == "json":
        return json_reader(fields_read(paths))
    raise SettingsError(f'[events] cannot read format = "{mapping.format}" yet')


def _mapped(mapping: Mapping, read: Callable[[bytes], Value]) -> Decoder:
    labels = _labels(mapping)
    where = None if mapping.where is None else _source(mapping.where)
    user = None if mapping.user is None else _source(mapping.user)

    def decode(record: Record) -> Event:
        found = read(sized(record.value))
        if where is not None and not is_true(where(record, found)):
            return _FILTERED
        items = labels(record, found)
        if not items:
            raise BadRecord("the mapping finds no item in it")
        return Event(items, None if user is None else _user(user(record, found)))

    return decode


def _user(found: Value) -> str | None:
    try:
        return text_of(found)
    except BadRecord as bad:
        raise BadRecord(str(bad).replace("an item", "the user", 1)) from None


def _labels(mapping: Mapping) -> Callable[[Record, Value], list[str]]:
    if mapping.families is None:
        items = _source(mapping.items or "")
        return lambda record, found: texts_of(items(record, found))
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
