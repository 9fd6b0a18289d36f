"""What a stream released over time, as one table: `stream_dp.history`."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

import numpy as np
import pyarrow

from stream_dp.config.connections import Kafka
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.releases.subscribe import subscribe
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.windows import Span

_SCHEMA = pyarrow.schema(
    {
        "time": pyarrow.timestamp("ms", "UTC"),
        "epoch": pyarrow.int32(),
        "round": pyarrow.int64(),
        "label": pyarrow.string(),
        "count": pyarrow.int64(),
        "low": pyarrow.float64(),
        "high": pyarrow.float64(),
    }
)


def history(
    kafka: Kafka,
    stream: str,
    *,
    every: str | int | timedelta = "1m",
    since: datetime | None = None,
    until: datetime | None = None,
    labels: Collection[str] | None = None,
    confidence: float = 0.95,
) -> pyarrow.Table:
    """How the counts of `stream` grew, a row for each label and each moment, oldest first.

    `every`: one release of each stretch of this time ("1m", "1h", a timedelta) or of so many rounds, its last one.
    `since` and `until` are moments (without a zone, UTC): from the release that was the newest at `since` to the one
    that was the newest at `until`; without them, all that the topic holds now.  `labels` leaves out all others.

    Columns: `time` (of the release), `epoch`, `round`, `label`, `count`, and `low` and `high`, the ends of the interval
    of that confidence.  A label that is missing at a moment was not shown then; its count is not zero but unknown.

        table = stream_dp.history("localhost:9092", "shop", every="1h")
        table.to_pandas().pivot(index="time", columns="label", values="count").plot()

    Raises `LogRefused` for a topic that is not there, ValueError or KafkaError.
    """
    span = Span.of(every)
    wanted = None if labels is None else frozenset(labels)
    with subscribe(kafka, stream, since or "earliest", until=until or "latest") as releases:
        batches = [_rows(release, wanted, confidence) for release in _last_of_each(releases, span)]
    return pyarrow.Table.from_batches(batches, _SCHEMA)


def _last_of_each(releases: Iterator[WholeRelease], span: Span) -> Iterator[WholeRelease]:
    """The last release of each stretch of this length in each epoch."""
    held: tuple[tuple[int, int], WholeRelease] | None = None
    for release in releases:
        stretch = release.epoch, span.clock(release) // (span.rounds or span.milliseconds)
        if held is not None and held[0] != stretch:
            yield held[1]
        held = stretch, release
    if held is not None:
        yield held[1]


def _rows(release: WholeRelease, wanted: frozenset[str] | None, confidence: float) -> pyarrow.RecordBatch:
    low, high = release.intervals(confidence)
    kept = np.array([wanted is None or label in wanted for label in release.labels], bool)
    number = int(kept.sum())
    columns = [
        np.full(number, milliseconds(parse_time(release.ts))),
        np.full(number, release.epoch),
        np.full(number, release.round),
        [label for label, keep in zip(release.labels, kept, strict=True) if keep],
        np.array(release.counts, np.int64)[kept],
        low[kept],
        high[kept],
    ]
    arrays = [pyarrow.array(each, field.type) for each, field in zip(columns, _SCHEMA, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
