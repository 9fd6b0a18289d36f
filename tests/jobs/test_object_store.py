"""Objects of a store are read as files are: the same rows, and nothing that is cut off is taken for the end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.epochs.file_names import file_name
from stream_dp.errors import StoreUnreachable
from stream_dp.events import stored_files
from stream_dp.events.stored_files import StoredObject, stored_file
from stream_dp.jobs import csv_rows
from stream_dp.jobs.engine import ThisProcess
from stream_dp.jobs.file_rows import read_file
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import BadRequest, JobRequest, Source, request_from
from stream_dp.jobs.rows import RowCollector
from stream_dp.jobs.source_file import find_file, locate
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.replay.source import FileSource
from tests.jobs.test_rows import FORMATS, some_pairs, write_csv, write_parquet
from tests.object_store import ObjectStore, object_store

KEY = bytes(range(32))


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as patch, object_store(patch) as found:
        yield found


def result(file: str) -> tuple[Any, ...]:
    """What a job over a file releases with noise from `KEY`."""
    fields = {"v": 1, "id": "x", "job": "histogram", "mechanism": "gaussian", "items_per_user": 4}
    request = request_from(fields | {"epsilon": 2.0, "delta": 1e-4, "source": {"file": file, "name": "x"}})
    assert isinstance(request, JobRequest)
    rows, seen = ThisProcess().rows(find_file(request.source, "user"), "user", "", lambda done, total: None)
    found = calibrate(request).run(rows, OneShotNoise(KEY))
    assert found.counts is not None
    return rows.names(found.items), found.counts.tolist(), seen


@pytest.mark.parametrize("name", FORMATS)
def test_the_result_is_that_of_the_same_file_on_this_machine(
    name: str, store: ObjectStore, tmp_path: Path
) -> None:
    here = tmp_path / name
    FORMATS[name](here, some_pairs())
    there = store.put(f"same/{name}", here.read_bytes())
    assert result(there) == result(str(here))
    assert file_name(stored_file(there), KEY) == file_name(stored_file(here), KEY)


def test_a_preview_reads_an_object(store: ObjectStore) -> None:
    name = store.put("log.csv", b"user,item\nann,tea\n")
    assert [row.value for row in FileSource(stored_file(name)).rows()] == [b'{"items":["tea"],"user":"ann"}']


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("s3://lake/none.csv", "there is no object 's3://lake/none.csv'"),
        ("s3://no-such-bucket/x.csv", "there is no object 's3://no-such-bucket/x.csv'"),
        ("s3://lake", "names no object: write s3://bucket/key"),
        ("s3://lake/a/../x.csv", "names no object"),
        ("s3://key:secret@elsewhere/x.csv", "names no object"),
    ],
)
def test_what_is_not_there_is_told_before_anything_is_charged(
    name: str, told: str, store: ObjectStore
) -> None:
    with pytest.raises(BadRequest, match=told):
        locate(Source(file=name))


def test_keys_that_may_not_read_are_told_before_anything_is_charged(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = store.put("secret.csv", b"user,item\n")
    monkeypatch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0)
    with pytest.raises(BadRequest, match="be read: give AWS_ACCESS_KEY_ID"):
        locate(Source(file=name))


def test_requests_read_only_below_the_folder_of_a_worker(store: ObjectStore, tmp_path: Path) -> None:
    inside = store.put("exports/x.csv", b"user,item\n")
    outside = store.put("exports-2/x.csv", b"user,item\n")
    assert locate(Source(file="x.csv"), "s3://lake/exports").name == inside
    assert locate(Source(file=inside), "s3://lake/exports/").name == inside
    for name in (outside, "../exports-2/x.csv", "/x.csv"):
        with pytest.raises(BadRequest, match=r"outside the folder|names no object"):
            locate(Source(file=name), "s3://lake/exports")
    with pytest.raises(BadRequest, match="there is no file"):
        locate(Source(file=inside), tmp_path)


def test_an_object_that_is_replaced_has_another_state(store: ObjectStore) -> None:
    file = stored_file(store.put("changing.csv", b"user,item\nann,tea\n"))
    before = file.state
    assert file.state == before
    store.put("changing.csv", b"user,item\nann,jam\n")
    assert file.state != before


class _Opened:
    """An open object that tells how much is asked of it at once, and may fail after a while, as a network does."""

    def __init__(self, found: Any, asked: list[int], most: float) -> None:
        self._found, self._asked, self._left = found, asked, most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    def __enter__(self) -> Any:
        return self._found.__enter__()

    def __exit__(self, *given: Any) -> None:
        self._found.__exit__(*given)

    def readinto(self, buffer: memoryview) -> int:
        self._asked.append(len(buffer))
        self._left -= len(buffer)
        if self._left < 0:
            raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation")
        return self._found.readinto(buffer)


def opened_so(monkeypatch: pytest.MonkeyPatch, most: float = float("inf")) -> list[int]:
    """Let objects be opened so; gives what is asked for at once."""
    asked: list[int] = []
    opened = StoredObject._opened
    monkeypatch.setattr(StoredObject, "_opened", lambda self: _Opened(opened(self), asked, most))
    return asked


@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_that_is_cut_off_is_not_taken_for_the_end(
    name: str, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same noise on the rows up to there would be a second release."""
    FORMATS[name](tmp_path / name, some_pairs(15_000))
    content = (tmp_path / name).read_bytes()
    file = find_file(Source(file=store.put(f"cut/{name}", content)), "user")
    monkeypatch.setattr(stored_files, "_BYTES_AT_ONCE", 1 << 12)
    opened_so(monkeypatch, len(content) * 0.8)
    with pytest.raises(StoreUnreachable, match="cannot be reached"):
        read_file(file, "user", RowCollector(), lambda done, total: None)


def test_a_store_that_is_away_is_told_and_not_taken_for_an_empty_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with object_store(monkeypatch) as store:
        file = find_file(Source(file=store.put("x.csv", b"user,item\nann,tea\n")), "user")
    with pytest.raises(StoreUnreachable, match="see that it runs"):
        read_file(file, "user", RowCollector(), lambda done, total: None)


def test_no_object_is_read_whole(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = some_pairs(60_000)
    for name, write in (("x.csv", write_csv), ("x.parquet", write_parquet)):
        write(tmp_path / name, pairs)
        content = (tmp_path / name).read_bytes()
        file = find_file(Source(file=store.put(name, content)), "user")
        with monkeypatch.context() as patch:
            patch.setattr(stored_files, "_BYTES_AT_ONCE", 1 << 12)
            patch.setattr(csv_rows, "_BLOCK_BYTES", 1 << 14)
            asked = opened_so(patch)
            read_file(file, "user", RowCollector(), lambda done, total: None)
        assert np.max(asked) < len(content) / 4, name
