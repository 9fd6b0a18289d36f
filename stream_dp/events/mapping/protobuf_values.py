"""Protobuf as values: the fields that are read, by name; maps in the order of their keys."""

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from stream_dp.errors import Refused
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.paths import Fields, Value
from stream_dp.events.mapping.proto_files import top_level_messages
from stream_dp.events.mapping.schema import Schema, UnusableSchema

_Convert = Callable[[Any], Value]
_Get = Callable[[Message], Value]
_MOST_INDEXES = 100
_DEEPEST = 200
_ALL = Fields.all()


def protobuf_reader(
    schema: Schema, fields: Fields, message: str | None, framed: bool
) -> Callable[[bytes, int], Value]:
    """A function from a value, and where it begins, to what it holds in `fields`; it raises `BadRecord`.

    Framed values say which message of the schema they are; of others it is `message`, or the only one.
    Raises `UnusableSchema`.
    """
    if api_implementation.Type() != "upb":
        raise Refused(
            "Protobuf is read by its compiled implementation alone: install protobuf with its extension"
        )
    messages = top_level_messages(schema)
    _make_classes(messages)
    if not framed or message is not None:
        chosen = _reader_of(_named(messages, message), fields)
        return lambda value, begin: chosen(value[_after_indexes(value, begin)[1] if framed else begin :])
    readers: dict[tuple[int, ...], Callable[[bytes], Value]] = {}

    def read(value: bytes, begin: int) -> Value:
        place, start = _after_indexes(value, begin)
        reader = readers.get(place)
        if reader is None:
            reader = readers[place] = _reader_of(_at(messages, place), fields)
        return reader(value[start:])

    return read


def _make_classes(messages: list[Descriptor]) -> None:
    """All in one order: protobuf goes down once for each message that it meets first inside another.

    So where it would go down too far is the same for everybody.  Raises `UnusableSchema`.
    """
    met: set[str] = set()

    def meet(descriptor: Descriptor, depth: int) -> None:
        if depth > _DEEPEST:
            raise UnusableSchema(f"its messages lead from one to the next more than {_DEEPEST} times")
        met.add(descriptor.full_name)
        for field in descriptor.fields:
            if field.message_type is not None and field.message_type.full_name not in met:
                meet(field.message_type, depth + 1)

    for message in _with_nested(messages):
        if message.full_name not in met:
            meet(message, 0)
            GetMessageClass(message)


def _with_nested(messages: list[Descriptor]) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _with_nested(list(message.nested_types))


def _reader_of(descriptor: Descriptor, fields: Fields) -> Callable[[bytes], Value]:
    decode, convert = GetMessageClass(descriptor).FromString, _converter(descriptor, fields, {})

    def read(value: bytes) -> Value:
        try:
            return convert(decode(value))
        except (DecodeError, UnicodeError, RecursionError) as error:
            raise BadRecord(f"not what its Protobuf schema says ({type(error).__name__})") from None

    return read


def _named(messages: list[Descriptor], name: str | None) -> Descriptor:
    if name is None and len(messages) == 1:
        return messages[0]
    found = [each for each in messages if name in (each.name, each.full_name)]
    if len(found) != 1:
        known = ", ".join(each.full_name for each in messages)
        raise UnusableSchema(f"set message to one of its messages: {known}")
    return found[0]


def _after_indexes(value: bytes, begin: int) -> tuple[tuple[int, ...], int]:
    """Which message a framed value is, as its place in the schema, and where it begins."""
    if begin < len(value) and value[begin] == 0:  # the first message, which is nearly all of them
        return (0,), begin + 1
    count, begin = _zigzag(value, begin)
    if not 0 < count <= _MOST_INDEXES:
        raise BadRecord("it does not say which message of its Protobuf schema it is")
    place = []
    for _ in range(count):
        index, begin = _zigzag(value, begin)
        place.append(index)
    return tuple(place), begin


def _zigzag(value: bytes, begin: int) -> tuple[int, int]:
    number = 0
    for place in range(begin, min(begin + 5, len(value))):
        number |= (value[place] & 0x7F) << 7 * (place - begin)
        if value[place] < 0x80:
            return (number >> 1) ^ -(number & 1), place + 1
    raise BadRecord("it does not say which message of its Protobuf schema it is")


def _at(messages: list[Descriptor], place: tuple[int, ...]) -> Descriptor:
    found = None
    for index in place:
        if not 0 <= index < len(messages):
            raise BadRecord("it is a message that its Protobuf schema does not have")
        found = messages[index]
        messages = [each for each in found.nested_types if not each.GetOptions().map_entry]
    assert found is not None
    return found


def _converter(descriptor: Descriptor, fields: Fields, known: dict[str, _Convert]) -> _Convert:
    """What is read of a message, as a dict of those fields that are set.  `known`: those that convert all of one.

    It is made for a message when the first one of its kind is met: how deep a schema goes costs nothing.
    """
    if fields.whole and descriptor.full_name in known:
        return known[descriptor.full_name]
    parts: list[tuple[str, _Get]] | None = None

    def convert(message: Any) -> Value:
        nonlocal parts
        if parts is None:
            parts = [
                (field.name, _getter(field, _ALL if fields.whole else fields.named[field.name], known))
                for field in descriptor.fields
                if fields.whole or field.name in fields.named
            ]
        found = {}
        for name, get in parts:
            value = get(message)
            if value is not None:
                found[name] = value
        return found

    if fields.whole:
        known[descriptor.full_name] = convert
    return convert


def _getter(field: FieldDescriptor, fields: Fields, known: dict[str, _Convert]) -> _Get:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        convert = _value_of(field.message_type.fields_by_name["value"], _ALL, known)
        return lambda message: _map(getattr(message, name), convert)
    if field.is_repeated:
        element = _ALL if fields.whole else fields.elements or Fields()
        convert = _value_of(field, element, known)
        return lambda message: [convert(each) for each in getattr(message, name)] or None
    convert = _value_of(field, fields, known)
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(value) if (value := getattr(message, name)) else None


def _map(found: Any, convert: _Convert) -> Value:
    """In the order of the keys: Protobuf gives them in another one in each process."""
    if not found:
        return None
    return {
        _KEYS.get(key, str(key)) if type(key) is bool else str(key): convert(found[key])
        for key in sorted(found)
    }


_KEYS = {True: "true", False: "false"}


def _value_of(field: FieldDescriptor, fields: Fields, known: dict[str, _Convert]) -> _Convert:
    if field.message_type is not None:
        return _converter(field.message_type, fields, known)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number)
    return _itself


def _itself(value: Value) -> Value:
    return value
