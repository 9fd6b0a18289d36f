"""A histogram in one's own program releases what a worker would, and its key releases one log only."""

import warnings
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

import stream_dp
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.local.key_file import KeyFile
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases.estimates.differences import window_sd
from stream_dp.releases.whole_release import WholeRelease
from tests.local.shop import AT, EVENTS, LOOSE, released, shown


@pytest.mark.parametrize("mechanism", ["binary", "blt"])
@pytest.mark.parametrize("unit", ["event", "user"])
def test_releases_are_the_bytes_of_a_worker(key: Path, mechanism: str, unit: str) -> None:
    users = unit == "user"
    given = {**LOOSE, "mechanism": mechanism, "unit": unit} | ({"items_per_user": 3} if users else {})
    given = {name: value for name, value in given.items() if not users or name != "items_per_event"}
    with stream_dp.Histogram(given, key_file=key) as histogram:
        mine = [
            histogram.observe(items, user=f"u{place % 7}" if users else None, at=AT)
            for place, items in enumerate(EVENTS)
        ]
    with KeyFile.open(key, histogram._pipeline.epoch) as file:
        worker = Pipeline(file.epoch, file.key, "histogram.events")
    records = [
        Record(
            offset,
            1_769_817_600_000,
            None,
            msgspec.json.encode({"items": items, **({"user": f"u{offset % 7}"} if users else {})}),
        )
        for offset, items in enumerate(EVENTS)
    ]
    theirs = [msgspec.json.decode(part.value, type=WholeRelease) for part in worker.process(records).releases]
    assert mine == theirs
    assert users or any(release.labels for release in theirs)


def test_the_same_events_give_the_same_releases_and_more_go_on(key: Path) -> None:
    first = released(EVENTS, key)
    assert shown(released(iter(EVENTS), key)) == shown(first)
    longer = released([*EVENTS, ["tea"]], key)
    assert shown(longer[:-1]) == shown(first)
    assert longer[-1].round == len(EVENTS) + 1


def test_a_bad_event_counts_as_one_without_items_and_is_warned_of_once(key: Path) -> None:
    events = [["tea"], {"no": "items"}, [""], ["tea"]]
    with pytest.warns(UserWarning, match="event 2 counts as one without items") as caught:
        mine = released([*events, []], key)
    assert len(caught) == 1
    assert [release.round for release in mine] == [1, 2, 3, 4, 5]
    with pytest.warns(UserWarning, match="event 2 counts as one without items"):
        worker = released([["tea"], [], [], ["tea"], []], key.with_name("other"))
    assert len(mine) == len(worker)


class _Broken:
    """An object that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("broken")


@pytest.mark.parametrize(
    "event",
    [
        None,
        float("nan"),
        b"\xff",
        object(),
        "\ud800",
        _Broken(),
        [_Broken()],
        [["tea"], ["milk"]],
        [10**5000],
    ],
    ids=["none", "nan", "bytes", "object", "surrogate", "broken", "broken-item", "nested", "huge"],
)
def test_no_event_stops_a_program(key: Path, event: Any) -> None:
    with pytest.warns(UserWarning, match="event 2 counts as one without items"):
        assert [release.round for release in released([["tea"], event, ["tea"]], key)] == [1, 2, 3]


def test_an_event_inside_itself_stops_no_program(key: Path) -> None:
    event: list[Any] = []
    event.append(event)
    with pytest.warns(UserWarning, match="event 1 counts as one without items"):
        assert len(released([event], key)) == 1


def test_numbers_truth_values_and_bytes_are_items(key: Path) -> None:
    numbers = released([7, [7, 7.5], [True, np.int64(7)], np.array([7, 8]), b"8"] * 20, key)
    texts = released([["7"], ["7", "7.5"], ["true", "7"], ["7", "8"], ["8"]] * 20, key)
    assert shown(numbers) == shown(texts)
    assert set(numbers[-1].histogram) == {"7", "7.5", "8", "true"}


def test_the_items_of_a_set_are_counted_in_one_order(key: Path) -> None:
    """The order of a set is another one in each process, and the items beyond the bound are left out."""
    items = [f"item {n}" for n in range(20)]
    assert shown(released([set(items)] * 20, key)) == shown(released([sorted(items)] * 20, key))


def test_events_end_at_the_horizon(key: Path) -> None:
    with stream_dp.Histogram(LOOSE, horizon=3, key_file=key) as histogram:
        for left in (3, 2, 1):
            assert histogram.rounds_left == left
            histogram.observe("tea")
        with pytest.raises(stream_dp.HorizonReached, match="larger horizon"):
            histogram.observe("tea")
        assert histogram.round == 3
    releases = stream_dp.run(["tea"] * 4, LOOSE, horizon=3, key_file=key)
    assert [next(releases).round for _ in range(3)] == [1, 2, 3]
    with pytest.raises(stream_dp.HorizonReached):
        next(releases)


def test_rounds_of_many_events_release_when_they_are_full(key: Path) -> None:
    with stream_dp.Histogram(LOOSE, rounds="every-10", key_file=key) as histogram:
        found = [histogram.observe(items) for items in EVENTS]
    assert [place for place, release in enumerate(found, 1) if release is not None] == [*range(10, 81, 10)]


async def test_events_that_come_one_after_another(key: Path) -> None:
    async def stream() -> AsyncIterator[list[str]]:
        for items in EVENTS:
            yield items

    found = [release async for release in stream_dp.run(stream(), LOOSE, key_file=key)]
    assert shown(found) == shown(released(EVENTS, key))


@pytest.mark.parametrize(
    "column",
    [
        np.array(["tea", "milk", "tea"]),
        pa.array(["tea", "milk", "tea"]),
        pa.chunked_array([["tea"], ["milk", "tea"]]),
        pandas.Series(["tea", "milk", "tea"]),
        polars.Series(["tea", "milk", "tea"]),
        ("tea" if place != 1 else "milk" for place in range(3)),
    ],
    ids=["numpy", "arrow", "chunks", "pandas", "polars", "generator"],
)
def test_a_column_is_a_stream_of_items(key: Path, column: Any) -> None:
    released(["tea", "milk", "tea"], key)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(released(column, key)) == 3


ROWS: dict[str, Any] = {
    "sku": ["tea", "milk", "tea"],
    "customer": ["u1", "u2", "u1"],
    "price": [1.5, 2.5, None],
}


@pytest.mark.parametrize("make", [pa.table, pandas.DataFrame, polars.DataFrame])
def test_a_table_of_which_nobody_says_what_it_holds_is_refused_and_counts_nothing(
    key: Path, make: Any
) -> None:
    told = (
        "^no column of this table is called items; there are sku, customer, price: say which one holds them"
    )
    with stream_dp.Histogram(key_file=key, **LOOSE) as histogram:
        with pytest.raises(stream_dp.SettingsError, match=told):
            next(histogram.observe_all(make(ROWS)))
        assert histogram.round == 0
        assert len([*histogram.observe_all(make({"items": [["tea"], ["milk"]]}))]) == 2


@pytest.mark.parametrize(
    "table",
    [pa.table(ROWS), pandas.DataFrame(ROWS), polars.DataFrame(ROWS)],
    ids=["arrow", "pandas", "polars"],
)
def test_a_table_is_read_by_row_and_mapped(key: Path, table: Any) -> None:
    mapping = {"items": "sku", "user": "customer"}
    plain = [{"items": [sku], "user": user} for sku, user in zip(ROWS["sku"], ROWS["customer"], strict=True)]
    users = {name: value for name, value in LOOSE.items() if name != "items_per_event"}
    users |= {"unit": "user", "items_per_user": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = list(stream_dp.run(table, users, events=mapping, key_file=key))
        assert len(found) == 3
    with KeyFile.open(key, Epoch.open(Settings(stream="histogram", mechanism="binary"), 1, 0)) as file:
        worker = Pipeline(replace(file.epoch, mapping=None), file.key, "histogram.events")
    worker.process([Record(place, 0, None, msgspec.json.encode(row)) for place, row in enumerate(plain)])
    assert worker.histogram.history[:16] == key.read_bytes()[-16:]


def test_a_release_becomes_a_table(key: Path) -> None:
    release = released(EVENTS, key)[-1]
    table = release.to_arrow()
    assert table.column_names == ["label", "count", "low", "high", "best_rank", "worst_rank"]
    assert dict(zip(table["label"].to_pylist(), table["count"].to_pylist(), strict=True)) == release.histogram
    for row in table.to_pylist():
        assert (row["low"], row["high"]) == pytest.approx(release.interval(row["label"]))
    ranked = release.largest_first().labels
    assert release.to_pandas()["label"].tolist() == ranked
    assert release.to_polars()["label"].to_list() == ranked
    narrow = release.to_arrow(confidence=0.5).to_pylist()
    assert all(mine["high"] < wide["high"] for mine, wide in zip(narrow, table.to_pylist(), strict=True))


def test_a_window_is_what_happened_after_an_earlier_release(key: Path) -> None:
    releases = released(EVENTS, key, discover="every-16")
    older, newest = releases[39], releases[-1]
    window = newest.window(older)
    both = [label for label in newest.labels if label in older.histogram]
    assert window.histogram == {label: newest.histogram[label] - older.histogram[label] for label in both}
    assert window.histogram["tea"] == pytest.approx(40, abs=6 * window.sd)
    assert (window.since, window.release, window.complete) == (older, newest, True)
    assert window.sd == pytest.approx(window_sd(newest, older.round, both))
    assert all(
        low < count < high for low, count, high in zip(window.low, window.counts, window.high, strict=True)
    )
    assert newest.window().histogram == newest.histogram
    assert newest.window().sd == newest.sd
    with pytest.raises(ValueError, match="the older one first"):
        older.window(newest)


def test_there_is_no_window_between_two_streams(key: Path, tmp_path: Path) -> None:
    other = released(EVENTS, tmp_path / "other.key")[0]
    with pytest.raises(ValueError, match="of one epoch"):
        released(EVENTS, key)[-1].window(other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": "ticks"}, "needs the clock of a worker"),
        ({"at_horizon": "roll"}, "ends at its horizon"),
        ({"epsilom": 1}, "did you mean 'epsilon'"),
        ({"epsilon": 0}, "epsilon"),
        ({"mechanism": "magic"}, "mechanism"),
        ({"events": {"format": "avro", "schema": "x.avsc", "items": "a"}}, "json"),
        ({"unit": "user"}, "items_per_user"),
    ],
)
def test_settings_that_cannot_be_are_told(key: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(stream_dp.Refused, match=message):
        stream_dp.Histogram(settings, key_file=key)
    assert not key.exists()


def test_settings_come_from_a_file_too(key: Path, tmp_path: Path) -> None:
    file = tmp_path / "stream.toml"
    file.write_text('stream = "shop"\nepsilon = 30.0\ndelta = 1e-2\nhorizon = 1023\nmechanism = "blt"\n')
    with stream_dp.Histogram(file, key_file=key) as histogram:
        assert histogram.observe("tea").stream == "shop"  # type: ignore[union-attr]
        assert "factor of e^30" in histogram.guarantee.sentence


@pytest.mark.parametrize("discover", ["default", "every-round"])
def test_calibration_tells_the_noise_that_releases_tell(key: Path, discover: str) -> None:
    calibration = stream_dp.calibrate(LOOSE, discover=discover)
    thresholds = 0
    for release in released(EVENTS, key, discover=discover):
        assert release.sd == round(calibration.sd(release.round), 3)
        if release.tau is not None:
            assert release.tau == calibration.threshold(release.round)
            thresholds += 1
    assert thresholds == (len(EVENTS) if discover == "every-round" else 1)
    assert calibration.sd() == calibration.sd(1023)
    with pytest.raises(ValueError, match="round 1024"):
        calibration.sd(1024)
    with pytest.raises(stream_dp.Refused, match="epsilon"):
        stream_dp.calibrate(epsilon=-1)
