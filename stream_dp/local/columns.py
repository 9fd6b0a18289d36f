"""Tables whose columns hold values of several types, as programs have them: each value is read by itself.

What Arrow cannot convert is no error, because a refusal would tell that one row holds another type than the rest, and
its message would quote the value.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stream_dp.events.arrow_rows import UNREADABLE, each_row
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.text import text_of
from stream_dp.jobs.column_rows import item_columns
from stream_dp.jobs.request import BadRequest
from stream_dp.jobs.rows import NAMES

_LISTS = (list, tuple, set, frozenset, np.ndarray)


def table_of(data: Any, item: str | Sequence[str], *others: str) -> pa.Table:
    """A table of Arrow, pandas or Polars, or columns by name, as a table of Arrow.

    Where Arrow cannot convert all of it, the named columns hold what their values name, and `item` may hold lists.
    Raises `BadRequest`.
    """
    try:
        return pa.table(data)
    except Exception:
        items = dict.fromkeys(item_columns(item), _names_in_lists)
        return _named_columns(data, items | dict.fromkeys(others, _names))


def _named_columns(data: Any, wanted: Mapping[str, Callable[[list[Any]], pa.Array]]) -> pa.Table:
    try:
        columns = _columns_of(data)
    except Exception:
        columns = {}
    if len({len(values) for values in columns.values()}) != 1:
        raise BadRequest(
            "data must be a table of Arrow, pandas or Polars, or columns by name, of equal length, such as "
            '{"user": ["u1", "u2"], "item": ["tea", "milk"]}'
        )
    found = {name: pa.nulls(len(values)) for name, values in columns.items()}
    for name, names in wanted.items():
        first, _, field = name.partition(".")
        if name in columns:
            found[name] = _converted(columns[name], names)
        elif first in columns:
            found[name] = _converted([_field(value, field) for value in columns[first]], names)
    return pa.table(found)


def rows_by_column(table: Any) -> Iterator[Any]:
    """The rows of a table of pandas or Polars; `UNREADABLE` for each that holds a value that Python cannot."""
    columns = {name: _converted(values, lambda values: values) for name, values in _columns_of(table).items()}
    cells = [
        each_row(values) if isinstance(values, pa.Array | pa.ChunkedArray) else values
        for values in columns.values()
    ]
    for row in zip(*cells, strict=True):
        yield UNREADABLE if UNREADABLE in row else dict(zip(columns, row, strict=True))


def _columns_of(data: Any) -> dict[str, list[Any]]:
    """The values of each column; those that pandas takes for missing are None."""
    if not (isinstance(data, Mapping) or hasattr(data, "columns")):
        raise TypeError
    names = data if isinstance(data, Mapping) else data.columns
    return {name: _values(data[name]) for name in names}


def _values(column: Any) -> list[Any]:
    if isinstance(column, str | bytes):
        raise TypeError
    return [None if _is_missing(value) else value for value in column]


def _is_missing(value: Any) -> bool:
    """Whether it is NaN or what else differs from itself."""
    return isinstance(value, float | np.generic) and bool(value != value)


def _converted(values: list[Any], otherwise: Callable[[list[Any]], Any]) -> Any:
    try:
        return pa.array(values, from_pandas=True)
    except Exception:
        return otherwise(values)


def _names(values: list[Any]) -> pa.Array:
    """What each value names."""
    return pa.array([_name(value) for value in values], NAMES.value_type)


def _names_in_lists(values: list[Any]) -> pa.Array:
    """What each value names, or each value of a list."""
    if not any(isinstance(value, _LISTS) for value in values):
        return _names(values)
    lists = [value if isinstance(value, _LISTS) else [value] for value in values]
    return pa.array([[_name(value) for value in each] for each in lists], pa.large_list(NAMES.value_type))


def _name(value: Any) -> bytes | None:
    """The bytes of a text, a number or a truth value; None for anything else, which names nothing."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        text = text_of(value)
    except BadRecord:
        return None
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _field(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
