"""The fields of a topic's records as paths: what people choose the items and the user from."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stream_dp.events.mapping.paths import Fields, fields_read, parsed
from stream_dp.planning.record_shapes import Shape

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LIST = ""
"""Stands in a way for "each element of the list", which no name does."""


class Field(NamedTuple):
    """A text, a number or a truth value in a record, and whether a record may have several of it."""

    path: str
    kind: str
    listed: bool

    def __str__(self) -> str:
        return f"{self.path} ({self.kind}{', several' * self.listed})"


def fields_of(shape: Shape) -> list[Field]:
    """All values of a shape, in its order.

    >>> [str(field) for field in fields_of({"customer": "number", "lines": [{"tags": ["text"]}]})]
    ['customer (number)', 'lines[].tags[] (text, several)']
    """
    return [Field(_path(way), kind, _LIST in way) for way, kind in _ways(shape, ())]


def row_of(shape: Shape) -> Shape:
    """What a changed row is made of, if records are changes as Debezium writes them; else None."""
    change = shape.get("payload", shape) if isinstance(shape, dict) else None
    if isinstance(change, dict) and {"op", "before", "after"} <= change.keys():
        return change["after"]
    return None


def chosen(text: str, fields: Sequence[Field]) -> str:
    """The path that somebody means who writes a path, or the number of a field in the list.

    >>> chosen("1", [Field("sku", "text", False)])
    'sku'
    """
    number = int(text) if text.isascii() and text.isdigit() else 0
    return fields[number - 1].path if 0 < number <= len(fields) else text


def missing(expression: str, shape: Shape) -> str | None:
    """The first field that an expression reads and a shape does not have; None for none.

    An expression with alternatives, such as `new || old`, needs only one of its fields.
    """
    if expression.startswith("$"):
        return None
    tree = parsed(expression)
    gone = list(_missing(fields_read([tree]), shape, ""))
    read = sum(1 for _ in _leaves(fields_read([tree])))
    enough = len(gone) < read if _has_alternatives(tree) else not gone
    return None if enough else gone[0]


def _ways(shape: Shape, way: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(shape, dict):
        for name, inner in shape.items():
            yield from _ways(inner, (*way, name if _PLAIN_NAME.match(name) else json.dumps(name)))
    elif isinstance(shape, list):
        yield from _ways(shape[0], (*way, _LIST))
    elif shape is not None:
        yield way, shape


def _path(way: tuple[str, ...]) -> str:
    """Lists within lists are flattened; a single one at the end needs no mark."""
    if way.count(_LIST) == 1:
        mark, way = "[*]", way[:-1] if way[-1] == _LIST else way
    else:
        mark = "[]"
    path = ""
    for step in way:
        path += mark if step == _LIST else f".{step}" if path else step
    return path or "@"


def _leaves(fields: Fields) -> Iterator[Fields]:
    inner = [*fields.named.values(), *([fields.elements] if fields.elements is not None else [])]
    for each in inner:
        yield from _leaves(each)
    if not inner:
        yield fields


def _missing(fields: Fields, shape: Shape, path: str) -> Iterator[str]:
    if shape is None:  # nobody knows what is there
        return
    for name, inner in fields.named.items():
        place = f"{path}.{name}" if path else name
        if not isinstance(shape, dict) or name not in shape:
            yield from (place for _ in _leaves(inner))
        else:
            yield from _missing(inner, shape[name], place)
    if fields.elements is not None:
        if isinstance(shape, list):
            yield from _missing(fields.elements, shape[0], f"{path}[*]")
        else:
            yield from (f"{path}[*]" for _ in _leaves(fields.elements))


def _has_alternatives(node: Any) -> bool:
    children = node.get("children", []) if isinstance(node, dict) else []
    return isinstance(node, dict) and (
        node.get("type") == "or_expression" or any(map(_has_alternatives, children))
    )
