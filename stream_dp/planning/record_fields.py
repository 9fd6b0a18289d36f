"""Which fields of a topic's records look like items, and which like the user of an event.

What they are called decides alone: a proposal is for people to correct.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stream_dp.planning.record_shapes import Shape

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ITEMS = (
    *("item", "sku", "product", "article", "label", "tag", "category", "topic", "word", "term", "title"),
    *(
        "destination",
        "dest",
        "route",
        "carrier",
        "page",
        "url",
        "city",
        "country",
        "brand",
        "name",
        "type",
        "kind",
    ),
)
_USERS = (
    "user",
    "customer",
    "account",
    "member",
    "client",
    "buyer",
    "visitor",
    "subscriber",
    "passenger",
    "device",
)
_PERSONAL = {"email", "mail", "phone", "street", "address", "comment", "note", "message", "password", "ip"}


class Field(NamedTuple):
    """A text or a number in a record: the names that lead there, and whether a record may have several of it."""

    path: str
    words: tuple[tuple[str, ...], ...]
    kind: str
    listed: bool


def fields_of(shape: Shape) -> list[Field]:
    """All texts and numbers of a shape, in its order; lists of lists are left out."""
    return list(_walk(shape, "", (), False))


def items_among(fields: Sequence[Field]) -> list[str]:
    """The paths that look like items, the likeliest first: what a record has several of goes before the rest."""
    return _ranked([(_item_score(each), each) for each in fields])


def users_among(fields: Sequence[Field]) -> list[str]:
    """The paths that look like the user of an event, the likeliest first."""
    return _ranked([(_user_score(each), each) for each in fields])


def _ranked(scored: list[tuple[int, Field]]) -> list[str]:
    return [field.path for score, field in sorted(scored, key=lambda each: -each[0]) if score]


def _walk(shape: Shape, path: str, words: tuple[tuple[str, ...], ...], listed: bool) -> Iterator[Field]:
    if isinstance(shape, dict):
        for name, inner in shape.items():
            part = name if _PLAIN_NAME.match(name) else json.dumps(name)
            found = tuple(word.lower().removesuffix("s") for word in _WORDS.findall(name))
            yield from _walk(inner, f"{path}.{part}" if path else part, (*words, found), listed)
    elif isinstance(shape, list):
        if not listed:
            yield from _walk(shape[0], f"{path}[*]" if isinstance(shape[0], dict) else path, words, True)
    elif shape is not None and words:
        yield Field(path, words, shape, listed)


def _item_score(field: Field) -> int:
    """0 for what is no item: a number without a product's name, a user, an address."""
    around = {word for words in field.words for word in words}
    named = [len(_ITEMS) - _ITEMS.index(word) for word in field.words[-1] if word in _ITEMS]
    known = [*named, *([1] if field.words[-1] == ("id",) and around & set(_ITEMS) else [])]
    if not known or around & _PERSONAL or _user_score(field):
        return 0
    return max(known) + (100 if field.listed else 0)


def _user_score(field: Field) -> int:
    """0 for what is no user: what a record has several of, and all that neither is an id nor is called a user."""
    last = field.words[-1]
    known = [len(_USERS) - _USERS.index(word) for words in field.words for word in words if word in _USERS]
    if field.listed or not known or not (last[-1:] in (("id",), ("key",)) or set(last[-1:]) & set(_USERS)):
        return 0
    return max(known)
