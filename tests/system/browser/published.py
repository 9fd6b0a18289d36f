"""Releases written to a topic for the page to show."""

import time

import msgspec

from stream_dp.config.times import iso_timestamp
from stream_dp.releases.release import Release
from tests.dashboard.running import records
from tests.system.streams import Stream


def write(stream: Stream, *releases: Release) -> None:
    """Release now what may be dated otherwise."""
    ts = iso_timestamp(time.time_ns() // 1_000_000)
    fresh = [msgspec.structs.replace(each, ts=ts, stream=stream.settings.stream) for each in releases]
    stream.write(stream.settings.releases, records(fresh))


def many(count: int) -> dict[str, int]:
    """Counts of so many labels, falling from 9,000 on."""
    return {f"label {rank}": 9_000 - rank for rank in range(count)}
