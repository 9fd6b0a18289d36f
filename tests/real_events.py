"""Real events: the retail invoices where they lie beside the checkout, else the flights that come with the demo."""

import gzip
from collections.abc import Iterator
from itertools import islice

from stream_dp.dev.flights import flight_events
from stream_dp.events.event import decode_event
from tests.shared import RETAIL

INVOICES = 20_728
"""How many there are."""

REAL_EVENTS = "retail invoices" if RETAIL.exists() else "flights"
"""What the real events of this run are."""


def real_records(limit: int | None = None) -> Iterator[bytes]:
    """The values of the first `limit` records of an events topic, in time order."""
    if RETAIL.exists():
        with gzip.open(RETAIL, "rb") as lines:
            yield from islice((line.rstrip() for line in lines), limit)
    else:
        yield from islice(flight_events(), limit)


def real_events(limit: int) -> list[list[str]]:
    """The items of the first `limit` real events."""
    return [decode_event(record).items for record in real_records(limit)]
