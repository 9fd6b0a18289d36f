"""A small stream without any topic: an epoch that shows much after few events, and what a worker makes of a log."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart

KEY = bytes(range(32))
TOPIC = "s.events"


def epoch(number: int = 1, **changed: Any) -> Epoch:
    """An epoch in which much is released after few events; `changed` are settings."""
    settings = Settings(
        stream="s",
        epsilon=30.0,
        delta=1e-2,
        horizon=1023,
        items_per_event=3,
        **{"mechanism": "binary", **changed},
    )
    return replace(Epoch.open(settings, number, 0), nonce=bytes([number]) * 16)


EPOCH = epoch()


def log_of(values: Sequence[bytes | None]) -> list[Record]:
    """Values as records, one a millisecond."""
    return [Record(offset, 1_700_000_000_000 + offset, None, value) for offset, value in enumerate(values)]


def cut(records: Sequence[Record], cuts: Iterable[int]) -> list[Sequence[Record]]:
    """The records in batches that end at `cuts`."""
    bounds = sorted({0, len(records), *(end for end in cuts if 0 <= end <= len(records))})
    return [records[start:end] for start, end in pairwise(bounds)]


def one_worker(records: Sequence[Record], of: Epoch = EPOCH) -> list[ReleasedPart]:
    """What a worker releases."""
    return Pipeline(of, KEY, TOPIC).process(records).releases
