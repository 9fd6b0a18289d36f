"""Columns of Arrow tables as rows.

No column is refused for its type: a column whose only value goes away has another one, and so has one of whole numbers
that gets a fraction.  A value that is no text, number or truth value names nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stream_dp.jobs.request import BadRequest
from stream_dp.jobs.rows import NAMES, SEPARATOR, RowCollector, as_binary


def is_list(kind: pa.DataType) -> bool:
    """Whether each row of such a column has a list of values."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def fields(schema: Iterable[pa.Field], above: str = "") -> list[tuple[str, pa.DataType]]:
    """All columns with their types; the fields of a struct are columns too, such as `customer.id`."""
    found = []
    for each in schema:
        found.append((above + each.name, each.type))
        if pa.types.is_struct(each.type):
            found += fields(each.type, f"{above}{each.name}.")
    return found


def find_column(schema: pa.Schema, name: str) -> tuple[str, pa.DataType] | None:
    """The column to read for `name`, which may be a field within structs, and its type; None if there is none.

    A struct of which there is no value has no fields either, so it may be taken to have any.
    """
    kinds = dict(fields(schema))
    parts = name.split(".")
    for path in (".".join(parts[:number]) for number in range(1, len(parts))):
        if kinds.get(path) == pa.null():
            return path, pa.null()
    return (name, kinds[name]) if name in kinds else None


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column by its name, or by the names on the way to it in structs."""
    if name in batch.schema.names:
        return batch.column(name)
    first, *rest = name.split(".")
    found = batch.column(first)
    for field in rest:
        found = found if pa.types.is_null(found.type) else pc.struct_field(found, field)
    return found


def item_columns(item: str | Sequence[str]) -> list[str]:
    """The columns of items, of which there may be several."""
    return [item] if isinstance(item, str) else [*item]


def add_batch(
    batch: pa.RecordBatch,
    user: str | None,
    item: str | Sequence[str],
    collector: RowCollector,
    query: str = "",
) -> None:
    """One item a row, or a list of them; without a column of users every row is its own unit.

    `item`: the column of items, or several, each a family: what `country` holds is named `country:UK`.
    `query`: the column of what votes are about, which makes votes of items.
    """
    units = _column(batch, user) if user else collector.new_units(len(batch))
    for name in item_columns(item):
        items, places = _column(batch, name), None
        if is_list(items.type):
            places = pc.list_parent_indices(items)
            items = pc.list_flatten(items)
        if query:
            items = _joined(_at(_column(batch, query), places), items, SEPARATOR)
        if not isinstance(item, str):
            items = _joined(pa.scalar(name.encode(), NAMES.value_type), items, ":")
        collector.add(_at(units, places), items)


def _at(column: Any, places: pa.Array | None) -> Any:
    """The values of the rows that these items come from, each once for an item."""
    if places is None:
        return column
    if isinstance(column, np.ndarray):
        return column[places.to_numpy()]
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = as_binary(column)  # Arrow cannot take of a view
    return column.take(places)


def _joined(first: pa.Array | pa.Scalar, second: pa.Array, between: str) -> pa.Array:
    """For each row one name of two, such as what a vote is about and what it is for; null where one of them is."""
    plain = [
        names.dictionary_decode() if pa.types.is_dictionary(names.type) else names
        for names in (first, second)
    ]
    columns = [each if isinstance(each, pa.Scalar) else as_binary(each) for each in plain]
    return pc.binary_join_element_wise(*columns, pa.scalar(between.encode(), NAMES.value_type))


def check_columns(schema: pa.Schema, user: str | None, item: str | Sequence[str], query: str = "") -> None:
    """Raise `BadRequest` where these columns are not there, or are the same."""
    named = item_columns(item)
    if not named or len({*named}) < len(named):
        raise BadRequest("item names a column of items, or several, each once")
    for name in filter(None, (*named, user, query)):
        if find_column(schema, name) is None:
            known = ", ".join(name for name, _ in fields(schema))
            raise BadRequest(f"there is no column {name!r}; there are {known}")
    if user in named:
        raise BadRequest(f"the column {user!r} cannot name both users and items")
