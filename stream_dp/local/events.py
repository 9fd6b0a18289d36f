"""Turns events as programs have them into the records that a stream would hold."""

from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import orjson

from stream_dp.errors import needs_extra
from stream_dp.events.arrow_rows import each_row
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.text import text_of

Item = str | int | float | bool
"""A label.  Numbers and truth values are written as docs/mapping.md says."""

Event = Item | Iterable[Item] | Mapping[str, Any]
"""An item, the items of one event, or a whole event: `{"items": ["tea", "milk"], "user": "u7"}`."""

_NO_EVENT = b"null"


def record_value(event: Event, user: str | None = None) -> bytes:
    """The value of the record that holds an event.

    It never raises: whether a program stops must not depend on the data.  What JSON cannot hold (a list inside itself,
    half of a surrogate pair) becomes a record that is no event; anything else is judged where records are decoded.
    """
    try:
        whole = dict(event) if isinstance(event, Mapping) else {"items": _items(event)}
        whole |= {} if user is None else {"user": user}
        return orjson.dumps(
            whole, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        )
    except Exception:  # an object of the caller's may raise anything
        return _NO_EVENT


def _items(event: Any) -> list[Any]:
    """The items of an event that is no mapping; those of a set in order, which no two runs would share otherwise."""
    several = isinstance(event, Iterable) and not isinstance(event, str | bytes)
    items = [_label(item) for item in (event if several else [event])]
    return sorted(items) if isinstance(event, Set) else items


def _label(item: Any) -> Any:
    """A number or truth value of Python or numpy as text, and anything else as it is."""
    if isinstance(item, np.generic):
        item = item.item()
    try:
        return text_of(item) if type(item) in (int, float, bool) else item
    except BadRecord:
        return item


def column_names(events: Any) -> list[str] | None:
    """What the columns of a table of Arrow, pandas or Polars are called; None for anything else."""
    if hasattr(events, "__arrow_c_stream__") and hasattr(events, "columns"):
        return [str(name) for name in getattr(events, "column_names", events.columns)]
    return None


def each_event(events: Iterable[Event]) -> Iterator[Any]:
    """The events of an iterable: of a table of Arrow, pandas or Polars its rows, by column.

    A row that cannot be read is `UNREADABLE`, which `record_value` takes for no event.
    """
    if column_names(events) is not None:
        with needs_extra("a table of events", "local"):
            import pyarrow as pa

            from stream_dp.local.columns import rows_by_column

        try:
            table = pa.table(events)
        except Exception:  # of a column whose values are not of one type
            yield from rows_by_column(events)
        else:
            for batch in table.to_batches():
                yield from each_row(batch)
    elif hasattr(events, "to_pylist"):
        yield from each_row(events)
    else:
        yield from events


def _plain(value: Any) -> Any:
    """What JSON has no name for: arrays as lists; bytes, decimals and times as text.  Raises TypeError for the rest."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Decimal | date | time | timedelta):
        return str(value)
    raise TypeError  # the text of other objects may be another one in each process
