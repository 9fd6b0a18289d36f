"""An hour of a shop that does not exist, as releases to look at: the same in every run, up to their times."""

from math import sin
from random import Random

import msgspec

from stream_dp.config.times import iso_timestamp
from stream_dp.events.record import Record
from stream_dp.releases.release import Release
from tests.example_releases import release

DRINKS = (
    *("green tea", "oat milk", "espresso", "flat white", "croissant", "bagel", "cold brew", "matcha"),
    *("lemonade", "sourdough", "scone", "chai", "decaf", "filter coffee", "granola", "yoghurt"),
    *("brownie", "muffin", "cortado", "hot chocolate"),
)
RELEASES, SECONDS_APART, ROUNDS_APART = 360, 10, 100
_RISES_FROM, _RISES_BY = 300, 90  # matcha becomes the fashion
_TAU, _SD = 112, 16


def an_hour(stream: str, end: int) -> list[Record]:
    """Releases of 20 labels until `end`, in milliseconds since 1970."""
    noise = Random(1)
    return [_record(_release(stream, step, noise), end, step) for step in range(1, RELEASES + 1)]


def _release(stream: str, step: int, noise: Random) -> Release:
    counts = {}
    for rank, drink in enumerate(DRINKS):
        grown = 200 / (rank + 1.5) * step * (1 + 0.25 * sin(step / 60 + rank)) + noise.gauss(0, _SD)
        if drink == "matcha":
            grown += _RISES_BY * max(0, step - _RISES_FROM)
        if grown >= _TAU:
            counts[drink] = int(grown)
    ranked = dict(sorted(counts.items(), key=lambda each: -each[1]))
    return release(step * ROUNDS_APART, ranked, stream)


def _record(made: Release, end: int, step: int) -> Record:
    time = end - 1000 * SECONDS_APART * (RELEASES - step)
    dated = msgspec.structs.replace(
        made, ts=iso_timestamp(time), previous=made.round - ROUNDS_APART, shown="kept"
    )
    return Record(0, time, b"key", msgspec.json.encode(dated))
