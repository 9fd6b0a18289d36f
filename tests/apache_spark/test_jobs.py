"""Spark's results are those of one process, byte for byte, however the rows are divided."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stream_dp.jobs import file_rows
from stream_dp.jobs.engine import Engine, ThisProcess
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import BadRequest, JobRequest, Source, Unit, request_from
from stream_dp.jobs.source_file import find_file
from stream_dp.privacy.one_shot_noise import OneShotNoise
from tests.object_store import ObjectStore, object_store

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'stream_dp[spark]'")

from stream_dp.jobs.spark import Spark

Pairs = list[tuple[str, str]]
KEY = bytes(range(32))
PROMISE = {"epsilon": 2.0, "delta": 1e-4}


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patch, object_store(patch) as found:
        yield found


@pytest.fixture(scope="module")
def spark(store: ObjectStore) -> Iterator[Spark]:
    """Spark, whose processes find the store in the environment that they start with."""
    found = Spark()
    yield found
    found.session.stop()


def some_pairs(seed: int = 1, count: int = 6_000) -> Pairs:
    rng = random.Random(seed)
    return [(f"u{rng.randint(1, 400)}", f"item {int(rng.paretovariate(0.7)) % 500}") for _ in range(count)]


def write(file: Path, pairs: Pairs) -> Path:
    if file.suffix == ".parquet":
        users, items = zip(*pairs, strict=True)
        pq.write_table(pa.table({"user": users, "item": items}), file, row_group_size=700)
    elif file.suffix == ".csv":
        file.write_text("".join(f"{user},{item}\n" for user, item in [("user", "item"), *pairs]))
    else:
        file.write_text(
            "".join(json.dumps({"user": user, "items": [item, "x"]}) + "\n" for user, item in pairs)
        )
    return file


def result(engine: Engine, file: Path | str, unit: Unit = "user", **asked: Any) -> tuple[Any, ...]:
    """What a job over a file releases with noise from `KEY`."""
    request = request_from({"v": 1, "id": "x", **_asked(asked), "source": {"file": str(file), "name": "x"}})
    assert isinstance(request, JobRequest)
    calibrated = calibrate(request)
    rows, seen = engine.rows(find_file(request.source, unit), unit, "", lambda done, total: None)
    found = calibrated.run(rows, OneShotNoise(KEY))
    labels = [calibrated.bins[item] for item in found.items] if calibrated.bins else rows.names(found.items)
    counts = None if found.counts is None else found.counts.tolist()
    return labels, counts, found.rank, found.bottom, seen


def _asked(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (PROMISE | fields).items() if value is not None}


BINS = ["item 3", "item 1", "nothing", "item 2"]
JOBS: list[dict[str, Any]] = [
    {"job": "histogram", "mechanism": "gaussian", "items_per_user": 4},
    {"job": "histogram", "mechanism": "known", "items_per_user": 2, "bins": BINS, "delta": None},
    {"job": "top-k", "mechanism": "gumbel", "k": 10},
    {"job": "histogram", "mechanism": "fitted"},
    {"job": "histogram", "mechanism": "two-stage", "items_per_user": 4},
    {"job": "top-k", "mechanism": "fitted-gaussian", "k": 10},
    {"job": "set-union", "mechanism": "sips", "items_per_user": 4},
    {"job": "set-union", "mechanism": "weighted", "items_per_user": 4},
]


@pytest.mark.parametrize("asked", JOBS, ids=lambda asked: f"{asked['job']} {asked['mechanism']}")
def test_the_result_is_that_of_one_process(asked: dict[str, Any], spark: Spark, tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", some_pairs())
    expected = result(ThisProcess(), file, **asked)
    assert expected[0]
    assert result(spark, file, **asked) == expected


def test_an_object_of_a_store_gives_what_the_file_gives(
    spark: Spark, store: ObjectStore, tmp_path: Path
) -> None:
    file = write(tmp_path / "x.parquet", some_pairs())
    expected = result(ThisProcess(), file, **JOBS[0])
    assert expected[0]
    assert result(spark, store.put("x.parquet", file.read_bytes()), **JOBS[0]) == expected


def test_units_without_a_name_are_sampled_by_where_they_stand(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_rows, "_PIECE_BYTES", 20_000)
    file = write(tmp_path / "x.jsonl", some_pairs())
    asked = {"job": "histogram", "mechanism": "laplace", "items_per_user": 1}
    expected = result(ThisProcess(), file, "event", **asked)
    assert expected[0]
    assert result(spark, file, "event", **asked) == expected


def test_a_file_that_changes_between_two_readings_releases_nothing(spark: Spark, tmp_path: Path) -> None:
    file = write(tmp_path / "x.csv", some_pairs(count=500))
    source = Source(file=str(file), name="x")
    rows, _ = spark.rows(find_file(source, "user"), "user", "", lambda done, total: None)
    assert rows.item_count > 1
    write(file, some_pairs(seed=2, count=900))
    with pytest.raises(BadRequest, match="was written while it was read"):
        rows.counts()
