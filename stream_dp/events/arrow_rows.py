"""Rows of Arrow tables as Python values, each converted by itself where need be.

Arrow converts whole batches, and one value that Python cannot hold, such as a time after the year 9999, would be an
error for all rows around it.
"""

from collections.abc import Iterator
from typing import Any, Final

UNREADABLE: Final = object()
"""Stands in the place of a row that cannot be converted."""


def each_row(rows: Any) -> Iterator[Any]:
    """The rows of a batch, an array or a table of Arrow in their order; `UNREADABLE` for each that cannot be had."""
    try:
        found = rows.to_pylist()
    except Exception:  # of Arrow or Python, whatever the value is
        if len(rows) == 1:
            yield UNREADABLE
            return
        half = len(rows) // 2
        yield from each_row(rows.slice(0, half))
        yield from each_row(rows.slice(half))
        return
    yield from found
