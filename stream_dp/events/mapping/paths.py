"""Expressions as closures: JMESPath's language without what could cost more than the size of a record.

jmespath parses; what it understands is compiled once.  A field, a projection or a comparison then costs a call or two,
and an expression as a whole costs time in proportion to the record: it names no variables, so each projection only
sees the element that it is at, and no function is left whose result can outgrow its input.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from jmespath import exceptions
from jmespath.parser import Parser

from stream_dp.config.secret import SettingsError
from stream_dp.events.mapping.functions import called

Value = Any
"""What a record holds: dict, list, str, int, float, bool or None."""

NO_ROW = object()
"""What a record holds that is in order and brings no row, such as the deletion of one."""

Path = Callable[[Value], Value]

_Node = dict[str, Any]
_ORDER = {"lt": operator.lt, "gt": operator.gt, "lte": operator.le, "gte": operator.ge}


def parsed(expression: str) -> _Node:
    """The syntax tree of an expression.  Raises `SettingsError`."""
    try:
        node: _Node = Parser().parse(expression).parsed
    except exceptions.JMESPathError as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise SettingsError(f"[events] cannot use the expression {expression!r}: {reason}") from None
    return node


def compiled(node: _Node) -> Path:
    """A syntax tree as a function of a record.  Raises `SettingsError` for what is left out of the language."""
    return _COMPILERS.get(node["type"], _left_out)(node)


def _left_out(node: _Node) -> Path:
    raise SettingsError(
        f"[events] cannot use {node['type']} in an expression: docs/mapping.md says what it can use"
    )


def _field(node: _Node) -> Path:
    name = node["value"]

    def field(value: Value) -> Value:
        return value.get(name) if type(value) is dict else None

    return field


def _chain(node: _Node) -> Path:
    """One after the other: `a.b`, `a[0]`, `a | b`."""
    steps = [compiled(child) for child in node["children"]]
    if len(steps) == 2:
        first, second = steps
        return lambda value: second(first(value))

    def chain(value: Value) -> Value:
        for step in steps:
            value = step(value)
        return value

    return chain


def _index(node: _Node) -> Path:
    place = node["value"]

    def index(value: Value) -> Value:
        return value[place] if type(value) is list and -len(value) <= place < len(value) else None

    return index


def _slice(node: _Node) -> Path:
    part = slice(*node["children"])
    if part.step == 0:
        raise SettingsError("[events] cannot use a slice with the step 0")
    return lambda value: value[part] if type(value) is list else None


def _projection(node: _Node) -> Path:
    base, inner = (compiled(child) for child in node["children"])
    if node["children"][1]["type"] == "field":
        return _projected_field(base, node["children"][1]["value"])

    def projection(value: Value) -> Value:
        found = base(value)
        if type(found) is not list:
            return None
        return [each for element in found if (each := inner(element)) is not None]

    return projection


def _projected_field(base: Path, name: str) -> Path:
    """`a[*].name`, the commonest of all, without a call per element."""

    def projection(value: Value) -> Value:
        found = base(value)
        if type(found) is not list:
            return None
        return [
            each for element in found if type(element) is dict and (each := element.get(name)) is not None
        ]

    return projection


def _value_projection(node: _Node) -> Path:
    base, inner = (compiled(child) for child in node["children"])

    def projection(value: Value) -> Value:
        found = base(value)
        if type(found) is not dict:
            return None
        return [each for element in found.values() if (each := inner(element)) is not None]

    return projection


def _filter(node: _Node) -> Path:
    base, inner, condition = (compiled(child) for child in node["children"])

    def filtered(value: Value) -> Value:
        found = base(value)
        if type(found) is not list:
            return None
        kept = (element for element in found if is_true(condition(element)))
        return [each for element in kept if (each := inner(element)) is not None]

    return filtered


def _flatten(node: _Node) -> Path:
    base = compiled(node["children"][0])

    def flattened(value: Value) -> Value:
        found = base(value)
        if type(found) is not list:
            return None
        flat: list[Value] = []
        for element in found:
            if type(element) is list:
                flat += element
            else:
                flat.append(element)
        return flat

    return flattened


def _comparison(node: _Node) -> Path:
    left, right = (compiled(child) for child in node["children"])
    kind = node["value"]
    if kind in ("eq", "ne"):
        wanted = kind == "eq"
        return lambda value: equal(left(value), right(value)) is wanted
    compare = _ORDER[kind]

    def comparison(value: Value) -> Value:
        one, other = left(value), right(value)
        comparable = (_is_number(one) and _is_number(other)) or (type(one) is str and type(other) is str)
        return compare(one, other) if comparable else None

    return comparison


def _or(node: _Node) -> Path:
    left, right = (compiled(child) for child in node["children"])

    def either(value: Value) -> Value:
        found = left(value)
        return found if is_true(found) else right(value)

    return either


def _and(node: _Node) -> Path:
    left, right = (compiled(child) for child in node["children"])

    def both(value: Value) -> Value:
        found = left(value)
        return right(value) if is_true(found) else found

    return both


def _not(node: _Node) -> Path:
    inner = compiled(node["children"][0])
    return lambda value: not is_true(inner(value))


def _literal(node: _Node) -> Path:
    found = node["value"]
    return lambda value: found


def _identity(node: _Node) -> Path:
    return lambda value: value


def _list(node: _Node) -> Path:
    parts = [compiled(child) for child in node["children"]]
    return lambda value: None if value is None else [part(value) for part in parts]


def _dict(node: _Node) -> Path:
    parts = {child["value"]: compiled(child["children"][0]) for child in node["children"]}
    return lambda value: None if value is None else {name: part(value) for name, part in parts.items()}


def _function(node: _Node) -> Path:
    call = called(node["value"], node["children"])
    arguments = [compiled(child) for child in node["children"]]
    return lambda value: call([argument(value) for argument in arguments])


_COMPILERS: dict[str, Callable[[_Node], Path]] = {
    "field": _field,
    "subexpression": _chain,
    "index_expression": _chain,
    "pipe": _chain,
    "index": _index,
    "slice": _slice,
    "projection": _projection,
    "value_projection": _value_projection,
    "filter_projection": _filter,
    "flatten": _flatten,
    "comparator": _comparison,
    "or_expression": _or,
    "and_expression": _and,
    "not_expression": _not,
    "literal": _literal,
    "identity": _identity,
    "current": _identity,
    "multi_select_list": _list,
    "multi_select_dict": _dict,
    "function_expression": _function,
}


def is_true(value: Value) -> bool:
    """What JMESPath takes for true: all but null, false, and what is empty.

    >>> is_true(0), is_true(""), is_true([])
    (True, False, False)
    """
    return bool(value) or (type(value) is not bool and isinstance(value, int | float))


def equal(one: Value, other: Value) -> bool:
    """Whether two values are equal; no number equals true or false.

    >>> equal(1, 1.0), equal(1, True)
    (True, False)
    """
    if type(one) is bool or type(other) is bool:
        return one is other
    return bool(one == other)


def _is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def fields_read(nodes: Sequence[_Node]) -> "Fields":
    """What any of these expressions may read of a record: what is not among it cannot change what they give."""
    read = Fields()
    for node in nodes:
        _note(node, [read])
    return read


class Fields:
    """Fields that are read of a value: by name where it is an object, or of each element where it is a list.

    `whole`: all of it.
    """

    def __init__(self) -> None:
        self.whole = False
        self.named: dict[str, Fields] = {}
        self.elements: Fields | None = None

    @classmethod
    def all(cls) -> "Fields":
        """All of a value."""
        found = cls()
        found.whole = True
        return found

    def field(self, name: str) -> "Fields":
        return self.named.setdefault(name, Fields())

    def element(self) -> "Fields":
        self.elements = self.elements or Fields()
        return self.elements


def _note(node: _Node, at: list[Fields]) -> None:
    """Note what `node` reads of the values that `at` stands for, its result included."""
    for reached in _reached(node, at):
        reached.whole = True


def _reached(node: _Node, at: list[Fields]) -> list[Fields]:
    """Which values of the record the result of `node` is made of, where it is at `at`; what else it reads is noted."""
    kind, children = node["type"], node.get("children", [])
    if kind == "field":
        return [each.field(node["value"]) for each in at]
    if kind in ("identity", "current"):
        return at
    if kind in ("subexpression", "index_expression"):
        for child in children:
            at = _reached(child, at)
        return at
    if kind == "pipe":  # its second part reads what the first one gives, of which all is noted
        _note(children[0], at)
        return []
    if kind in ("projection", "filter_projection"):
        elements = [each.element() for each in _reached(children[0], at)]
        for condition in children[2:]:
            _note(condition, elements)
        return _reached(children[1], elements)
    for child in children if kind not in ("slice", "literal") else ():
        _note(child if kind != "multi_select_dict" else child["children"][0], at)
    if kind in ("index", "slice", "value_projection"):
        for each in at:
            each.whole = True
    return []
