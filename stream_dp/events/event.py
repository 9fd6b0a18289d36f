"""One event: the bytes of a record's value, and what makes them valid.  JSON Schema: docs/schemas/event.json."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from stream_dp.errors import StreamDpError
from stream_dp.events.record import LARGEST_VALUE

LONGEST_LABEL = 1024
"""Most characters of one item.  A longer one makes its whole record a dead letter."""

DEEPEST_NESTING = 100
"""Most arrays and objects around any value of an event.  How deep the decoder itself could go depends on its caller."""

_Label = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_LABEL)]


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event: the items it holds, in order.  Fields that this version does not know are left unread."""

    items: Annotated[list[_Label], msgspec.Meta(min_length=1)]
    user: _Label | None = None
    id: str | int | None = None
    ts: str | None = None


class BadRecord(StreamDpError):
    """A record that is no valid event; its message says why, without quoting the record."""


_EVENT_DECODER = msgspec.json.Decoder(Event)
_ALL_BUT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{}'))
_LEVELS = np.zeros(256, np.int8)
_LEVELS[[*b"[{"]], _LEVELS[[*b"]}"]] = 1, -1


def decode_event(value: bytes | None) -> Event:
    """The event in the bytes of a record's value; raises `BadRecord`.  Its cost is linear in the size of the value.

    >>> decode_event(b'{"items": ["tea", "milk"]}').items
    ['tea', 'milk']
    """
    text = json_text(sized(value))
    try:
        return _EVENT_DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise BadRecord(str(error)) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise not_json(error) from None


def decode_events(values: Sequence[bytes | None]) -> list[Event]:
    """The events of many records; raises `BadRecord` where one of them is none.

    >>> [event.items for event in decode_events([b'{"items": ["tea"]}', b'{"items": ["milk"]}'])]
    [['tea'], ['milk']]
    """
    try:
        told = check_json_texts(values)
        return [_EVENT_DECODER.decode(value) for value in told]
    except (msgspec.DecodeError, UnicodeError) as error:
        raise not_json(error) from None


def check_json_texts(values: Sequence[bytes | None]) -> Sequence[bytes]:
    """The values, once each is known to be possible JSON text.  Raises `BadRecord` for one that is not.

    Whether they are UTF-8 is asked of all at once: no character goes over the end of a line.
    """
    told = [sized(value) for value in values if not value or len(value) > DEEPEST_NESTING]
    for value in told:
        _check_nesting(value)
    try:
        b"\n".join(values).decode()  # type: ignore[arg-type]
    except UnicodeDecodeError as error:
        raise not_json(error) from None
    return values  # type: ignore[return-value]


def sized(value: bytes | None) -> bytes:
    """A value that may be looked into.  Raises `BadRecord` for none, and for one that is too large."""
    if not value:
        raise BadRecord("the record has no value")
    if len(value) > LARGEST_VALUE:
        raise BadRecord(f"the value has more than {LARGEST_VALUE} bytes")
    return value


def json_text(value: bytes) -> str:
    """The text of a JSON value that is nested no deeper than it may be.  Raises `BadRecord`."""
    try:
        text = value.decode()  # unread fields must be UTF-8 too
    except UnicodeDecodeError as error:
        raise not_json(error) from None
    _check_nesting(value)
    return text


def _check_nesting(value: bytes) -> None:
    """Raise `BadRecord` where a value is nested deeper than it may be."""
    if len(value) <= DEEPEST_NESTING or value.count(b"[") + value.count(b"{") <= DEEPEST_NESTING:
        return
    if _nesting(value) > DEEPEST_NESTING:
        raise BadRecord(f"arrays and objects are nested more than {DEEPEST_NESTING} deep")


def not_json(error: Exception) -> BadRecord:
    """What to say of a value that is no JSON."""
    return BadRecord(f"not valid UTF-8 JSON ({type(error).__name__})")


def _nesting(value: bytes) -> int:
    """How deep arrays and objects lie in each other.  Every step is one pass, whatever the bytes."""
    unescaped = value.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quote left begins or ends a string
    marks = np.frombuffer(unescaped.translate(None, _ALL_BUT_STRUCTURE), np.uint8)
    in_string = np.logical_xor.accumulate(marks == ord('"'))
    return int(np.cumsum(_LEVELS[marks] * ~in_string, dtype=np.int32).max(initial=0))
