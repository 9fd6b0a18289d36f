"""JSON as values: the fields that are read and, where the rest of the record is not as expected, all of it."""

from collections.abc import Callable
from typing import Any, TypedDict

import msgspec

from stream_dp.events.event import BadRecord, json_text, not_json
from stream_dp.events.mapping.paths import Fields, Value

_MOST_DIGITS = 4_300
"""Python reads no longer integers, and a field that is skipped may hold one: what could, is read as a whole."""

_WHOLE = msgspec.json.Decoder()
_WITH_ANY_DOUBLE = msgspec.json.Decoder(float_hook=float)


def json_reader(fields: Fields) -> Callable[[bytes], Value]:
    """A function from the bytes of a value to what it holds in `fields`, perhaps more.  It raises `BadRecord`.

    Both ways through it accept the same bytes, and agree in `fields`.
    """
    decode = msgspec.json.Decoder(_type_of(fields)).decode

    def read(value: bytes) -> Value:
        text = json_text(value)
        if len(value) < _MOST_DIGITS:
            try:
                return decode(text)
            except msgspec.ValidationError:  # an array where an object was expected, say
                pass
            except (msgspec.DecodeError, UnicodeError) as error:
                raise not_json(error) from None
        return whole(text)

    return read


def whole(text: str) -> Value:
    """All that a JSON text holds; a number beyond the doubles is infinite.  Raises `BadRecord`."""
    try:
        try:
            return _WHOLE.decode(text)
        except msgspec.ValidationError:
            return _WITH_ANY_DOUBLE.decode(text)
    except msgspec.ValidationError:
        raise BadRecord(f"an integer has more than {_MOST_DIGITS} digits") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise not_json(error) from None


def _type_of(fields: Fields) -> Any:
    """The type that msgspec is to expect: what it does not name is skipped."""
    if fields.whole or bool(fields.named) == (fields.elements is not None):
        return Any
    if fields.elements is not None:
        element: Any = _type_of(fields.elements)
        return list[element] | None
    named = {name: _type_of(inner) for name, inner in fields.named.items()}
    record: Any = TypedDict("Record", named, total=False)  # type: ignore[misc]
    return record | None
