"""Rows beyond memory give what rows in memory give, with the same noise, and leave nothing behind."""

import errno
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stream_dp.errors import WorkerEnds
from stream_dp.jobs import rows as rows_module
from stream_dp.jobs import stored_rows
from stream_dp.jobs.declared import MECHANISMS
from stream_dp.jobs.file_rows import read_file
from stream_dp.jobs.mechanisms import calibrate, takes
from stream_dp.jobs.request import JobName, JobRequest, Source, request_from
from stream_dp.jobs.rows import RowCollector, Rows
from stream_dp.jobs.source_file import find_file
from stream_dp.jobs.stored_rows import StoredRows
from stream_dp.privacy.one_shot_noise import OneShotNoise

USERS = 300
EXAMPLES = {"examples": ["q0", "q1", "q2"]}
BINS = ["i3", "nothing", "i1"]
MORE: dict[str, dict[str, Any]] = {
    "label-votes": EXAMPLES,
    **{name: {"bins": BINS} for name in ("argmax", "known", "known-gaussian")},
    **{f"{noise}-known": {"bins": BINS} for noise in ("gumbel", "joint", "laplace", "gaussian")},
    "sparse-vector": {"bins": BINS, "threshold": 20, "most": 2},
    "pay-what-you-get": {"budget": "b", "marks": 9, "queries": 2},
    "greedy": {"tokens": 2},
    "greedy-transfer": {"tokens": 2, "frequencies": {"i7": 3}},
}


def read(file: Path, unit: Any) -> tuple[Rows, RowCollector]:
    collector = RowCollector()
    read_file(find_file(Source(file=str(file)), unit), unit, collector, lambda done, total: None)
    return collector.rows(), collector


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_ROWS_AT_ONCE", 500)
    monkeypatch.setattr(rows_module, "_ROWS_IN_MEMORY", 900)
    monkeypatch.setattr("stream_dp.jobs.file_rows._ROWS_AT_ONCE", 200)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of users who hold up to 30 labels, some with nothing where the user or the label should be."""
    rng = np.random.default_rng(1)
    users = [None if n % 97 == 0 else f"u{n}" for n in rng.integers(0, USERS, 4_000).tolist()]
    items = ["" if n % 89 == 88 else f"i{n}" for n in (rng.pareto(0.7, 4_000) * 3).astype(int).tolist()]
    path = tmp_path_factory.mktemp("rows") / "x.parquet"
    pq.write_table(pa.table({"user": users, "item": items}), path, row_group_size=330)
    return path


@pytest.mark.parametrize("unit", ["user", "event"])
def test_they_are_the_same_rows(file: Path, unit: str, small_memory: None) -> None:
    stored, collector = read(file, unit)
    assert stored.stored is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.undo()
        patch.setattr(rows_module, "_ROWS_IN_MEMORY", 1 << 30)
        plain, other = read(file, unit)
    assert plain.stored is None
    assert stored.labels.equals(plain.labels)
    assert len(stored) == len(plain) > 3_000
    assert (collector.malformed, collector.without_user) == (other.malformed, other.without_user)
    assert collector.malformed > 0
    assert (collector.without_user > 0) == (unit == "user")
    assert stored.counts().tolist() == plain.counts().tolist()
    for name in ("users", "starts", "items", "repeats"):
        assert getattr(stored.baskets(), name).tolist() == getattr(plain.baskets(), name).tolist()
    bins = ["i3", "nothing", "i1"]
    assert stored.restricted(bins).counts().tolist() == plain.restricted(bins).counts().tolist()
    owners = [set(part.users.tolist()) for part in stored.parts()]
    assert sum(map(len, owners)) == len(set.union(*owners)), "a user is in two parts"


@pytest.mark.parametrize(
    ("job", "mechanism"), [(job, name) for job, found in MECHANISMS.items() for name in found]
)
def test_every_mechanism_releases_the_same(
    job: JobName, mechanism: str, file: Path, small_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, _ = read(file, "user")
    monkeypatch.setattr(rows_module, "_ROWS_IN_MEMORY", 1 << 30)
    plain, _ = read(file, "user")
    asked: dict[str, Any] = {"id": "x", "job": job, "mechanism": mechanism, "epsilon": 8.0}
    if job in ("top-k", "label-votes") and takes(job, mechanism, "k"):
        asked["k"] = 3
    if takes(job, mechanism, "delta"):
        asked["delta"] = 1e-3
    request = request_from(asked | MORE.get(job, {}) | MORE.get(mechanism, {}))
    assert isinstance(request, JobRequest)
    run = calibrate(request).run
    one, other = run(stored, OneShotNoise(bytes(32))), run(plain, OneShotNoise(bytes(32)))
    assert one.items.tolist() == other.items.tolist()
    assert (one.bottom, one.rank) == (other.bottom, other.rank)
    assert one.rank or len(one.items) or one.bottom
    if one.counts is not None and other.counts is not None:
        assert one.counts.tolist() == other.counts.tolist()


def test_files_have_no_name_that_could_stay(
    tmp_path: Path, file: Path, small_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows, _ = read(file, "user")
    assert rows.stored is not None
    assert list(tmp_path.iterdir()) == []


class FullDisk(io.BytesIO):
    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_ends_the_job_and_is_no_end_of_the_file(
    file: Path, small_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the rows must not be taken for all of them."""
    monkeypatch.setattr("tempfile.TemporaryFile", FullDisk)
    with pytest.raises(WorkerEnds, match="let TMPDIR name a private folder"):
        read(file, "user")


def test_rows_of_many_users_are_spread_over_the_parts() -> None:
    stored = StoredRows()
    stored.put(np.arange(1_000, dtype=np.int64) << stored_rows.USER_SHIFT)
    stored.put(np.empty(0, np.int64))
    sizes = [len(stored.part(number)) for number in stored.parts]
    assert (sum(sizes), len(stored)) == (1_000, 1_000)
    assert max(sizes) < 30


def test_more_units_than_can_be_told_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_MOST_UNITS", 4)
    collector = RowCollector()
    collector.new_units(4)
    with pytest.raises(WorkerEnds, match="at most 4 events"):
        collector.new_units(1)
