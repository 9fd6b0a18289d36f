"""Columns of Arrow tables as rows.

No column is refused for its type: a column whose only value goes away has another one, and so has one of whole numbers
that gets a fraction.  A value that is no text, number or truth value names nothing.
"""

from collections.abc import Iterable

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


def add_batch(
    batch: pa.RecordBatch, user: str | None, item: str, collector: RowCollector, query: str = ""
) -> None:
    """One item a row, or a list of them; without a column of users every row is its own unit.

    `query`: the column of what votes are about, which makes votes of items.
    """
    items = _column(batch, item)
    owners: np.ndarray | None = None
    if is_list(items.type):
        owners = pc.list_parent_indices(items).to_numpy()
        items = pc.list_flatten(items)
    if query:
        about = _column(batch, query)
        items = _votes(about if owners is None else about.take(pa.array(owners)), items)
    if not user:
        numbers = collector.new_units(len(batch))
        collector.add(numbers if owners is None else numbers[owners], items)
        return
    users = _column(batch, user)
    collector.add(users if owners is None else users.take(pa.array(owners)), items)


def _votes(queries: pa.Array, labels: pa.Array) -> pa.Array:
    """For each row one name of what the vote is about and what it is for; null where one of them is."""
    plain = [
        names.dictionary_decode() if pa.types.is_dictionary(names.type) else names
        for names in (queries, labels)
    ]
    return pc.binary_join_element_wise(
        *map(as_binary, plain), pa.scalar(SEPARATOR.encode(), NAMES.value_type)
    )


def check_columns(schema: pa.Schema, user: str | None, item: str, query: str = "") -> None:
    """Raise `BadRequest` where these columns are not there, or are the same."""
    for name in filter(None, (item, user, query)):
        if find_column(schema, name) is None:
            known = ", ".join(name for name, _ in fields(schema))
            raise BadRequest(f"there is no column {name!r}; there are {known}")
    if item == user:
        raise BadRequest(f"the column {item!r} cannot name both users and items")
