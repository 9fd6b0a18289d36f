"""What a stream released over time, as one table: `stream_dp.history`."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta

import numpy as np
import pyarrow
import pyarrow.compute as pc
from numpy.typing import NDArray

from stream_dp.config.connections import Kafka
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.releases.subscribe import subscribe
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.window_lookup import find_window
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
        "found": pyarrow.int32(),
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
    window: str | int | timedelta | None = None,
    confidence: float = 0.95,
) -> pyarrow.Table:
    """How the counts of `stream` grew, a row for each label and each moment, oldest first.

    `every`: one release of each stretch of this time ("1m", "1h", a timedelta) or of so many rounds, its last one.
    `since` and `until` are moments (without a zone, UTC): from the release that was the newest at `since` to the one
    that was the newest at `until`; without them, all that the topic holds now.  `labels` leaves out all others.
    `window`, such as "1h" or a number of rounds: counts of so long before each moment, instead of all since the start.

    Columns: `time` (of the release), `epoch`, `round`, `label`, `count`, `low` and `high`, the ends of the interval of
    that confidence (95% of windows), and `found`: which test found the label, 0 if it was known before, null where
    labels are not looked for at tests.  A label that is missing at a moment was not shown then; its count is not zero
    but unknown.

        table = stream_dp.history("localhost:9092", "shop", every="1h")
        table.to_pandas().pivot(index="time", columns="label", values="count").plot()

    Raises `LogRefused` for a topic that is not there, ValueError or KafkaError.
    """
    span, back = Span.of(every), None if window is None else Span.of(window)
    with subscribe(kafka, stream, since or "earliest", until=until or "latest") as releases:
        chosen = _last_of_each(releases, span)
        if back is None:
            rows = [_rows(each, each.labels, each.counts, each.intervals(confidence)) for each in chosen]
        else:
            with closing(ReleasesTopic(kafka, f"{stream}.releases")) as topic:
                found = [find_window(topic, each, back, false_discoveries=None) for each in chosen]
            rows = [_rows(each.release, each.labels, each.counts, (each.low, each.high)) for each in found]
    table = pyarrow.Table.from_batches(rows, _SCHEMA)
    if labels is None:
        return table
    return table.filter(pc.is_in(table["label"], pyarrow.array([*labels], pyarrow.string())))


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


def _rows(
    release: WholeRelease,
    labels: Sequence[str],
    counts: Sequence[int] | NDArray[np.int64],
    ends: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> pyarrow.RecordBatch:
    tests = dict(zip(release.labels, release.found, strict=True)) if release.found else {}
    columns = [
        np.full(len(labels), milliseconds(parse_time(release.ts))),
        np.full(len(labels), release.epoch),
        np.full(len(labels), release.round),
        labels,
        counts,
        *ends,
        [tests.get(label) for label in labels],
    ]
    arrays = [pyarrow.array(each, field.type) for each, field in zip(columns, _SCHEMA, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
