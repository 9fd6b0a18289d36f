"""Arithmetic written as text, so that what people read of a model is what is computed."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_OPERATIONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Gt: operator.gt,
}


def value_of(formula: str, values: Mapping[str, float]) -> float:
    """What a formula of numbers, names, + - * / > and min(a, b) gives.  Raises ValueError for anything else.

    >>> value_of("2 * N + (S > 1) * min(N, 3)", {"N": 10, "S": 2})
    23.0
    """
    return float(_value(ast.parse(formula, mode="eval").body, values))


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            return float(_OPERATIONS[type(operation)](_value(left, values), _value(right, values)))
        case ast.Compare(left=left, ops=[operation], comparators=[right]) if type(operation) in _OPERATIONS:
            return float(_OPERATIONS[type(operation)](_value(left, values), _value(right, values)))
        case ast.Call(func=ast.Name(id="min"), args=[one, other], keywords=[]):
            return min(_value(one, values), _value(other, values))
    raise ValueError(f"this formula is not understood at {ast.unparse(node)!r}")
