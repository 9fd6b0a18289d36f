"""Rows of files, their pace, and what a target may hold, without a broker."""

import gzip
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.epochs.file_names import file_name
from stream_dp.events.event import decode_event
from stream_dp.events.stored_files import LocalFile
from stream_dp.kafka.log import LogRefused
from stream_dp.replay.replay import Held, Numbers, by_their_times, check_held, evenly, missing
from stream_dp.replay.source import FileSource, Row

SOME: list[dict[str, Any]] = [
    {"items": ["tea", "milk"], "user": "ann", "ts": "2026-01-31T12:00:00+00:00"},
    {"items": ["梨"], "ts": "2026-01-31T12:00:01.500000+00:00"},
    {"items": ["tea"]},
]
NOON = 1_769_860_800_000


def jsonl(folder: Path, lines: list[bytes], name: str = "some.jsonl") -> Path:
    file = folder / name
    with gzip.open(file, "wb") if name.endswith(".gz") else file.open("wb") as out:
        out.write(b"\n".join(lines) + b"\n")
    return file


@pytest.fixture(params=["jsonl", "jsonl.gz", "csv", "csv.gz", "tsv", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The three events in each format."""
    path = tmp_path / f"some.{request.param}"
    if "jsonl" in request.param:
        return jsonl(tmp_path, [json.dumps(each).encode() for each in SOME], path.name)
    if "sv" in request.param:
        separator = "\t" if request.param == "tsv" else ","
        rows = [
            ("ts", "user", "items"),
            ("2026-01-31T12:00:00+00:00", "ann", '"[""tea"", ""milk""]"'),
            ("2026-01-31T12:00:01.500000+00:00", "", "梨"),
            ("", "", "tea"),
        ]
        return jsonl(tmp_path, [separator.join(row).encode() for row in rows], path.name)
    times = [datetime(2026, 1, 31, 12, tzinfo=UTC), datetime(2026, 1, 31, 12, 0, 1, 500_000, UTC), None]
    columns = {
        "items": [each["items"] for each in SOME],
        "user": ["ann", None, None],
        "ts": times,
        "more": [1, 2, 3],
    }
    pq.write_table(pa.table(columns), path)
    return path


KEY = bytes(range(32))


def source_of(file: Path) -> FileSource:
    return FileSource(LocalFile(file), digest=file_name(LocalFile(file), KEY))


def test_every_format_gives_the_same_events(file: Path) -> None:
    source = source_of(file)
    rows = list(source.rows())
    assert [json.loads(row.value or b"") for row in rows] == SOME
    assert [(row.number, row.timestamp) for row in rows] == [(0, NOON), (1, NOON + 1500), (2, None)]
    found = source.survey
    assert (len(source), found.events, found.bad, found.untimed) == (3, 3, 0, 1)
    assert (found.first, found.last) == (NOON, NOON + 1500)


def test_bad_rows_are_counted_and_passed_on_as_they_are(tmp_path: Path) -> None:
    """Dropping one would shift the rounds of all later events, which would tell that it was there."""
    lines = [b'{"items": ["a"]}', b"{", b"", b'{"items": []}', b"\xff", b'{"items": ["b"], "ts": 7}']
    source = source_of(jsonl(tmp_path, lines))
    assert [row.value for row in source.rows()] == lines
    assert (source.survey.events, source.survey.bad) == (1, 5)
    rows = [
        b"item,user",
        b"tea,ann",
        b",bob",
        b'"[1",x',
        b"\xff,y",
        b"",
        b'"open,z',
        b"x" * 200_000,
        b"milk,cid",
    ]
    table = source_of(jsonl(tmp_path, rows, "t.csv"))
    found = [json.loads(row.value or b"{}").get("items") for row in table.rows()]
    assert found == [["tea"], [], None, None, [], None, None, ["milk"]]
    assert (table.survey.events, table.survey.bad) == (2, 6)
    times = pa.array([0, 253_402_300_800_000, 0], pa.timestamp("ms"))
    pq.write_table(pa.table({"items": [["tea"]] * 3, "ts": times}), tmp_path / "t.parquet")
    stored = source_of(tmp_path / "t.parquet")
    assert [bool(row.value) for row in stored.rows()] == [True, False, True]


def test_a_file_is_told_from_others_by_its_content(tmp_path: Path) -> None:
    one, same, other = (
        source_of(jsonl(tmp_path, [b'{"items": ["%b"]}' % item], name)).digest
        for name, item in (("1.jsonl", b"a"), ("2.jsonl", b"a"), ("3.jsonl", b"b"))
    )
    assert one == same != other
    plain = {hashlib.new(name, b'{"items": ["a"]}\n').hexdigest() for name in ("sha256", "blake2b")}
    assert one not in plain
    assert one != file_name(LocalFile(tmp_path / "1.jsonl"), bytes(32)), (
        "who lacks the key can confirm no guess"
    )


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"", "unknown kind"),
        ("a.parquet.gz", b"", "unknown kind"),
        ("a.csv", b"fruit\npear\n", "no column items"),
        ("a.jsonl.gz", gzip.compress(b'{"items": ["a"]}\n' * 99, mtime=0)[:-9], "it is damaged"),
        ("a.parquet", b"PAR1 not", "it is damaged"),
        ("b/a.jsonl", None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_to_its_end_is_refused_beforehand(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(LogRefused, match=says):
        FileSource(LocalFile(tmp_path / name))


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def due(times: Sequence[int | None], pace: Any, rate: float) -> list[float]:
    clock = Clock()
    rows = [Row(number, time, None, b"x") for number, time in enumerate(times)]
    found = [(row, clock.now - 100) for row in pace(rows, rate, lambda: clock.now, clock.wait)]
    assert [row for row, _ in found] == rows
    return [round(at, 9) for _, at in found]


def test_the_pace_of_rows_does_not_depend_on_what_they_hold() -> None:
    for times in ([NOON] * 4, [None, NOON + 3_600_000, NOON, None]):
        assert due(times, evenly, 2) == [0, 0.5, 1, 1.5]


def test_the_pace_is_that_of_the_times_divided_by_the_speed() -> None:
    times = [NOON, NOON + 60_000, NOON + 90_000]
    assert due(times, by_their_times, 1) == [0, 60, 90]
    assert due(times, by_their_times, 60) == [0, 1, 1.5]
    assert due(times, by_their_times, 0.5) == [0, 120, 180]


def test_rows_without_a_time_or_from_the_past_come_at_once() -> None:
    times = [None, NOON, None, NOON + 5_000, NOON - 9_000, NOON + 6_000]
    assert due(times, by_their_times, 1) == [0, 0, 0, 5, 5, 6]


@given(st.lists(st.integers(0, 30)))
def test_numbers_are_a_set(numbers: list[int]) -> None:
    found, expected = Numbers(), set[int]()
    for number in numbers:
        assert found.add(number) == (number not in expected)
        expected.add(number)
    assert len(found) == len(expected)
    assert {number for number in range(32) if number in found} == expected


def test_a_replay_goes_on_with_what_the_target_does_not_hold(tmp_path: Path) -> None:
    source = source_of(jsonl(tmp_path, [b'{"items": ["%d"]}' % number for number in range(5)]))
    held = Held()
    assert [row.number for row in missing(source, held)] == [0, 1, 2, 3, 4]
    for row in list(source.rows())[:3]:
        held.take(row._replace(mark=f"{source.digest}:{row.number}"), source.digest)
    check_held(held, source, "again.events", is_counted=True)
    assert [row.number for row in missing(source, held)] == [3, 4]


def test_a_target_that_a_stream_counts_holds_nothing_else(tmp_path: Path) -> None:
    source = source_of(jsonl(tmp_path, [b'{"items": ["a"]}']))
    [row] = source.rows()
    for mark in (None, "other:0", f"{source.digest}:x", source.digest):
        held = Held()
        held.take(row._replace(mark=mark), source.digest)
        with pytest.raises(LogRefused, match="1 records that are not of this replay"):
            check_held(held, source, "again.events", is_counted=True)
        check_held(held, source, "scratch", is_counted=False)
    held = Held()
    for _ in range(2):
        held.take(row._replace(mark=f"{source.digest}:0"), source.digest)
    with pytest.raises(LogRefused, match="1 rows twice"):
        check_held(held, source, "scratch", is_counted=False)


def test_replayed_rows_decode_as_events(file: Path) -> None:
    assert [decode_event(row.value).items for row in source_of(file).rows()] == [
        each["items"] for each in SOME
    ]
