"""Are the rows of a table those of the release, and the corrections as few as they may be?"""

import json
from threading import Event

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.releases.table_row import NoRows, decode_row, is_foreign, removal, rows_of
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.workers.table import TableWriter, _follow, corrections
from tests.docs.schemas import schema

HOSTILE = [
    "",
    "\x00\x1f\x7f",
    'quote " and \\ backslash',
    "x" * 5_000,
    "🍵" * 1_024,
    "\u2028",
    "\x01" * 1_024,
]
NO_KEYS = ["\x00\x1f\x7f", "x" * 5_000, "🍵" * 1_024]
"""Those that no database takes as a key: with a NUL, or longer than 2,600 bytes."""


def release(number: int, counts: dict[str, int], epoch: int = 1) -> WholeRelease:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return WholeRelease(
        v=1, stream="s", epoch=epoch, nonce=f"{epoch:032x}", round=number, horizon=100, ts="2026-01-31T12:00:00.000Z",
        unit="event", mechanism="binary", epsilon=1.0, delta=1e-6, rho=0.1, items_per_event=4, shown="kept",
        previous=number - 1, tag="00" * 16, sd=3.0, tau=5, part=1, parts=1,
        labels=[label for label, _ in ordered], counts=[count for _, count in ordered],
    )  # fmt: skip


def parsed(rows: dict[bytes, bytes]) -> dict[str, dict[str, object]]:
    return {key.decode(): json.loads(value) for key, value in rows.items()}


def test_rows_say_what_the_release_says() -> None:
    shown = release(7, {"tea": 230, "milk": 8, "sold out": -3}, epoch=2)
    rows = parsed(rows_of(shown, "json"))
    assert {label: row["count"] for label, row in rows.items()} == shown.histogram
    for label, row in rows.items():
        schema("row").validate(row)
        assert (row["label"], row["round"], row["epoch"], row["ts"]) == (label, 7, 2, shown.ts)
        assert (row["low"], row["high"]) == shown.interval(label)
        assert row["sd"] == shown.sd


def test_with_a_schema_kafka_connect_knows_every_field() -> None:
    shown = release(7, {"tea": 230})
    [told] = parsed(rows_of(shown, "connect")).values()
    assert told == {"schema": told["schema"], "payload": parsed(rows_of(shown, "json"))["tea"]}
    fields = told["schema"]["fields"]  # type: ignore[index]
    kinds = {"string": str, "int64": int, "double": float}
    assert {each["field"]: kinds[each["type"]] for each in fields} == {
        name: type(content)
        for name, content in told["payload"].items()  # type: ignore[attr-defined]
    }
    assert [each["optional"] for each in fields] == [False] * len(fields)
    [named] = [each for each in fields if "name" in each]
    assert (named["field"], named["name"]) == ("ts", "io.debezium.time.ZonedTimestamp")


@pytest.mark.parametrize("table_format", ["json", "connect"])
def test_rows_have_totals_where_the_epoch_carries_others_on(table_format: str) -> None:
    alone = release(7, {"tea": 230, "milk": 8})
    told = msgspec.structs.replace(
        alone, epoch=3, since=[1, 3], totals=[1_230, 8], total_sds={"1": 25.0, "3": alone.sd}
    )
    rows = {key: decode_row(key, value) for key, value in rows_of(told, table_format).items()}
    found = {row.label: (row.total, row.total_sd, row.since) for row in rows.values() if row is not None}
    assert found == {"tea": (1_230, 25.0, 1), "milk": (8, alone.sd, 3)}
    assert not any(is_foreign(key, value) for key, value in rows_of(told, table_format).items())
    for label, row in parsed(rows_of(told, "json")).items():
        schema("row").validate(row)
        assert row["count"] == told.histogram[label]
    fields = next(iter(parsed(rows_of(told, "connect")).values()))["schema"]["fields"]  # type: ignore[index]
    assert [each["field"] for each in fields if each["optional"]] == ["total", "total_sd", "since"]
    for without in (alone, msgspec.structs.replace(told, total_sds={})):  # the other one is forged
        assert all(b"total" not in value for value in rows_of(without, table_format).values())


@pytest.mark.parametrize(
    ("table_format", "labels"),
    [("json", HOSTILE), ("connect", [label for label in HOSTILE if label not in NO_KEYS])],
)
def test_whatever_a_label_is_its_row_is_found_by_it(table_format: str, labels: list[str]) -> None:
    shown = release(1, dict.fromkeys(HOSTILE, 9))
    rows = rows_of(shown, table_format)
    assert len(rows) == len(labels)
    for label in labels:
        row = decode_row(label.encode(), rows[label.encode()])
        assert row is not None
        assert (row.label, row.count) == (label, 9)


@pytest.mark.parametrize("table_format", ["json", "connect"])
def test_what_removes_a_row_is_not_foreign_and_ends_without_a_value(table_format: str) -> None:
    *said, last = removal(table_format)
    assert last is None
    for value in said:
        assert value is not None
        assert json.loads(value)["payload"] is None
        assert not is_foreign(b"tea", value)
        assert decode_row(b"tea", value) is None
    assert is_foreign(b"tea", b"null")


def damaged(**fields: object) -> WholeRelease:
    values = {name: getattr(release(1, {"a": 9, "b": 8}), name) for name in WholeRelease.__struct_fields__}
    return WholeRelease(**values | fields)


@pytest.mark.parametrize(
    "shown",
    [damaged(counts=[9]), damaged(counts=[9, 10**30]), damaged(labels=["a", "b" * 600_000])],
    ids=["columns of different lengths", "a count that is no integer elsewhere", "a label of 600 kB"],
)
def test_a_release_that_no_worker_writes_has_no_rows(shown: WholeRelease) -> None:
    with pytest.raises(NoRows):
        rows_of(shown, "json")


@pytest.mark.parametrize(
    "value",
    [b"", b"null", b"7", b"{}", b"\xff", b"[" * 100_000, b'{"schema":{},"payload":{}}', b'{"schema":1'],
)
def test_anything_else_is_no_row(value: bytes) -> None:
    assert decode_row(b"tea", value) is None


def test_a_row_under_another_key_is_no_row() -> None:
    [value] = rows_of(release(1, {"tea": 9}), "json").values()
    assert decode_row(b"tea", value) is not None
    assert decode_row(b"milk", value) is None


tables = st.dictionaries(st.binary(max_size=1), st.binary(max_size=1), max_size=6)


@given(tables, tables)
def test_corrections_lead_from_any_table_to_any_other_and_touch_nothing_else(
    held: dict[bytes, bytes], wanted: dict[bytes, bytes]
) -> None:
    found = corrections(held, wanted)
    after = {key: value for key, value in (held | found).items() if value is not None}
    assert after == wanted
    assert all(held.get(key) != value for key, value in found.items())
    assert corrections(wanted, wanted) == {}


def test_a_table_is_written_at_most_as_often_as_the_settings_say() -> None:
    waits: list[float] = []

    class Clock(Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            if len(waits) == 3:
                self.set()
            return self.is_set()

    class Writer(TableWriter):
        written = 0

        def __init__(self) -> None:
            pass

        def write(self) -> int:
            Writer.written += 1
            return 0

    _follow(Writer(), 10_000.0, Clock())
    assert Writer.written == 3
    assert all(9_000 < wait <= 10_000 for wait in waits), "the time that writing took counts too"
