"""Changes of a table as Debezium writes them: which of them brings a row, and what it is.

A change is an object with `op`, `before` and `after`; JsonConverter may wrap it, with its schema, as `payload`.
"""

from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.paths import NO_ROW, Fields, Value

_BRINGS_A_ROW = ("c", "r")
"""Created, or read by a snapshot."""

_BRINGS_NONE = ("u", "d", "t", "m")
"""Updated, deleted, all rows deleted, or a message that is no change of a row."""


def change_fields(row: Fields) -> Fields:
    """What is read of a change, if `row` is what is read of the row that it brings."""
    fields = Fields()
    for change in (fields, fields.field("payload")):
        change.field("op").whole = True
        change.named["after"] = row
    return fields


def inserted_row(change: Value) -> Value:
    """The row that a change has inserted; `NO_ROW` for any other change.  Raises `BadRecord` for what is none."""
    if type(change) is dict and "op" not in change and "payload" in change:
        change = change["payload"]
    if change is None:
        return NO_ROW
    operation = change.get("op") if type(change) is dict else None
    if operation in _BRINGS_NONE:
        return NO_ROW
    if operation not in _BRINGS_A_ROW:
        raise BadRecord("not a change of a row as Debezium writes it")
    row = change.get("after")
    if row is None:
        raise BadRecord("a change that inserts a row does not hold the row")
    return row
