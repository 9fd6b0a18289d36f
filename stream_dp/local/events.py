"""Events as programs have them, as the records that a stream would hold."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from stream_dp.errors import needs_extra

Event = str | Iterable[str] | Mapping[str, Any]
"""An item, the items of one event, or a whole event: `{"items": ["tea", "milk"], "user": "u7"}`."""


def record_value(event: Event, user: str | None = None) -> bytes:
    """The value of the record that holds an event.  What is none is found out where records are decoded."""
    if isinstance(event, str):
        event = [event]
    whole = dict(event) if isinstance(event, Mapping) else {"items": list(event)}
    whole |= {} if user is None else {"user": user}
    return orjson.dumps(whole, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def each_event(events: Iterable[Event]) -> Iterator[Event]:
    """The events of an iterable: of a table of Arrow, pandas or Polars its rows, by column."""
    if hasattr(events, "__arrow_c_stream__") and hasattr(events, "columns"):
        with needs_extra("a table of events", "local"):
            import pyarrow as pa

        for batch in pa.RecordBatchReader.from_stream(events):
            yield from batch.to_pylist()
    elif hasattr(events, "to_pylist"):
        yield from events.to_pylist()
    else:
        yield from events


def _plain(value: Any) -> Any:
    """What JSON has no name for: as a list where it is one, and else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
