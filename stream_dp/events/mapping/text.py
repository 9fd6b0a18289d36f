"""What of a record becomes an item: the one way in which values are written as text."""

from math import isfinite
from typing import Any

from stream_dp.events.event import LONGEST_LABEL, BadRecord

_WHOLE = 10**16
"""Below it, a double that is whole is written without a fraction, as an integer would be."""


def text_of(value: Any) -> str | None:
    """A value as text; None for null and for empty text, which are left out.  Raises `BadRecord`.

    >>> [text_of(each) for each in ("tea", 7, 7.0, 0.1, True, "", None)]
    ['tea', '7', '7', '0.1', 'true', None, None]
    """
    kind = type(value)
    if kind is str:
        text = value
    elif value is None:
        return None
    elif kind is bool:
        return "true" if value else "false"
    elif kind is int:
        text = _digits(value)
    elif kind is float:
        text = _double(value)
    elif kind is bytes:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise BadRecord("an item is bytes that are not UTF-8") from None
    else:
        raise BadRecord(f"an item is {_KINDS.get(kind, 'no text')}: the path leads too high up")
    if len(text) > LONGEST_LABEL:
        raise BadRecord(f"an item has more than {LONGEST_LABEL} characters")
    return text or None


def texts_of(value: Any) -> list[str]:
    """What a path leads to, as items: one, or those of a list in their order.  Raises `BadRecord`."""
    if type(value) is not list:
        text = text_of(value)
        return [] if text is None else [text]
    texts: list[str] = []
    for each in value:
        if type(each) is str and 0 < len(each) <= LONGEST_LABEL:  # nearly all of them
            texts.append(each)
        elif (text := text_of(each)) is not None:
            texts.append(text)
    return texts


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes none of more than 4,300 digits
        raise BadRecord(f"an item has more than {LONGEST_LABEL} characters") from None


def _double(value: float) -> str:
    if not isfinite(value):
        raise BadRecord("an item is a number that is not finite")
    return str(int(value)) if abs(value) < _WHOLE and value == int(value) else repr(value)


_KINDS: dict[type, str] = {dict: "an object", list: "an array"}
