"""What is read from files and records equals what plain Python counts, and nothing in them is an error."""

import codecs
import csv
import gzip
import io
import json
import random
import tempfile
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.events.event import LONGEST_LABEL
from stream_dp.jobs.file_rows import read_file
from stream_dp.jobs.request import BadRequest, Source
from stream_dp.jobs.rows import RowCollector, Rows
from stream_dp.jobs.source_file import find_file

Pair = tuple[str, str]


def some_pairs(count: int = 5_000) -> list[Pair]:
    rng = random.Random(1)
    return [
        (f"u{rng.randint(1, 300)}", rng.choice(["tea", "milk", "målk", f"x{rng.randint(1, 99)}"]))
        for _ in range(count)
    ]


def holders(pairs: list[Pair]) -> dict[str, int]:
    return {
        item: len({user for user, other in pairs if other == item}) for item in {item for _, item in pairs}
    }


def write_csv(file: Path, pairs: list[Pair]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([("user", "item"), *pairs])
    content = text.getvalue().encode()
    file.write_bytes(gzip.compress(content, 1) if file.suffix == ".gz" else content)


def write_parquet(file: Path, pairs: list[Pair]) -> None:
    users, items = zip(*pairs, strict=True)
    pq.write_table(pa.table({"item": pa.array(items), "user": pa.array(users)}), file, row_group_size=700)


def write_lists(file: Path, pairs: list[Pair]) -> None:
    users, items = zip(*pairs, strict=True)
    pq.write_table(
        pa.table({"items": pa.array([[each, each] for each in items]), "user": pa.array(users)}), file
    )


def write_lines(file: Path, pairs: list[Pair]) -> None:
    with gzip.open(file, "wt") if file.suffix == ".gz" else file.open("w") as out:
        for user, item in pairs:
            out.write(json.dumps({"user": user, "items": [item]}) + "\n")


FORMATS: dict[str, Callable[[Path, list[Pair]], None]] = {
    "x.csv": write_csv,
    "x.csv.gz": write_csv,
    "x.parquet": write_parquet,
    "lists.parquet": write_lists,
    "x.jsonl": write_lines,
    "x.jsonl.gz": write_lines,
}


def rows_of(file: Path, unit: str = "user", **columns: str) -> tuple[Rows, RowCollector]:
    collector = RowCollector()
    source = Source(file=str(file), name="x", **columns)
    read_file(find_file(source, unit), unit, collector, lambda done, total: None)  # type: ignore[arg-type]
    return collector.rows(), collector


def counts(rows: Rows) -> dict[str, int]:
    found = rows.counts()
    return dict(zip(rows.names(np.flatnonzero(found)), found[found > 0].tolist(), strict=True))


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_distinct_users_of_every_item(name: str, tmp_path: Path) -> None:
    pairs = some_pairs()
    FORMATS[name](tmp_path / name, pairs)
    rows, collector = rows_of(tmp_path / name)
    assert counts(rows) == holders(pairs)
    assert rows.labels.to_pylist() == sorted(label.encode() for label in holders(pairs))
    assert rows.labels.type == pa.large_binary()  # 32-bit positions would end a job at 2 GiB of labels
    assert (collector.malformed, collector.without_user) == (0, 0)


@pytest.mark.parametrize("name", FORMATS)
def test_in_the_unit_event_every_record_is_a_user_of_its_own(name: str, tmp_path: Path) -> None:
    pairs = some_pairs(500)
    FORMATS[name](tmp_path / name, pairs)
    rows, _ = rows_of(tmp_path / name, "event")
    assert counts(rows) == {item: sum(other == item for _, other in pairs) for item in holders(pairs)}


def test_rows_that_cannot_be_used_are_left_out_and_counted(tmp_path: Path) -> None:
    long = b"x" * (LONGEST_LABEL + 1)
    good = b"user,item,more\nu1,tea,1\nu2,tea,2\n"
    bad = b"u3\nu3,,4\nu3,\xff\xfe,5\nu3," + long + b",6\n,tea,7\n"
    (tmp_path / "x.csv").write_bytes(good + bad + b"u4,milk,8\n")
    rows, collector = rows_of(tmp_path / "x.csv")
    assert counts(rows) == {"tea": 2, "milk": 1}
    assert (collector.malformed, collector.without_user) == (4, 1)


def test_a_damaged_file_is_read_up_to_the_damage(tmp_path: Path) -> None:
    write_lines(tmp_path / "x.jsonl.gz", some_pairs())
    whole = (tmp_path / "x.jsonl.gz").read_bytes()
    (tmp_path / "x.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    rows, _ = rows_of(tmp_path / "x.jsonl.gz")
    assert 100 < len(rows.items) < 5_000
    write_csv(tmp_path / "x.csv.gz", some_pairs())
    (tmp_path / "x.csv.gz").write_bytes((tmp_path / "x.csv.gz").read_bytes()[:-20])
    rows_of(tmp_path / "x.csv.gz")


@given(st.lists(st.binary(max_size=40) | st.just(b'{"items": ["a"], "user": "u"}'), max_size=20))
def test_no_record_is_an_error(values: list[bytes]) -> None:
    for unit in ("user", "event"):
        collector = RowCollector()
        collector.add_events([*values, None, b'{"items": ["\\ud800"], "user": "\\udfff"}'], unit)
        rows = collector.rows()
        assert counts(rows).get("a", 0) == min(
            values.count(b'{"items": ["a"], "user": "u"}'), 1 if unit == "user" else 99
        )


ROUGH = st.lists(
    st.sampled_from([b'"', b",", b"\r", b"\xff", b"u", b"tea", b"\x00", b"\xc3\xa5"]) | st.binary(max_size=3),
    max_size=8,
).map(b"".join)


@given(st.lists(ROUGH.map(lambda line: line.replace(b"\n", b"")), max_size=6), st.booleans())
def test_no_line_of_a_csv_file_is_an_error_or_touches_another(lines: list[bytes], quoted: bool) -> None:
    """Good lines around any others are read as if they were alone."""
    good = b'"good %d","fine, yes"' if quoted else b"good %d,fine"
    content = b"user,item\n" + b"".join(
        good % place + b"\n" + line + b"\n" for place, line in enumerate(lines)
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x.csv").write_bytes(content + good % len(lines))
        found = counts(rows_of(Path(folder) / "x.csv")[0])
    assert found["fine, yes" if quoted else "fine"] == len(lines) + 1


def test_quoted_labels_may_hold_commas_and_quotes(tmp_path: Path) -> None:
    pairs = [("u1", 'a "large", blue one'), ("u2", 'a "large", blue one'), ("u, 3", '"'), ("u4", "")]
    write_csv(tmp_path / "x.csv", pairs)
    rows, collector = rows_of(tmp_path / "x.csv")
    assert (counts(rows), collector.malformed) == ({'a "large", blue one': 2, '"': 1}, 1)


def test_a_label_that_spans_lines_is_left_out_with_its_lines_only(tmp_path: Path) -> None:
    write_csv(tmp_path / "x.csv", [("u1", "tea"), ("u2", "two\nlines"), ("u3", "tea")])
    rows, collector = rows_of(tmp_path / "x.csv")
    assert (counts(rows), collector.malformed) == ({"tea": 2}, 2)


def test_a_line_is_one_unit_also_where_it_holds_carriage_returns(tmp_path: Path) -> None:
    """A parser that ends rows at a lone CR would let one line be 400 units of one event each."""
    evil = b"u1,tea" + b"\ru1,tea" * 400
    lines = [b"user,item", b"u2,milk\r", evil, b'u3,"a\rb"', b"u4,milk\r\r", b"u5,tea"]
    (tmp_path / "x.csv").write_bytes(b"\n".join(lines) + b"\n")
    rows, collector = rows_of(tmp_path / "x.csv", "event")
    assert counts(rows) == {"milk": 1, "tea": 1}
    assert collector.malformed == 3


@given(st.lists(ROUGH.map(lambda line: line.replace(b"\n", b"")), max_size=6))
def test_there_are_never_more_units_than_lines(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x.csv").write_bytes(b"user,item\n" + b"\n".join(lines))
        rows, _ = rows_of(Path(folder) / "x.csv", "event")
    assert len(rows.items) <= len(lines)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_csv_of_other_programs(separator: str, encoding: str, tmp_path: Path) -> None:
    pairs = [*some_pairs(300), ("ü", f'a {separator} "large" one'), ("ß", "tea 長")]
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\r\n").writerows([("user", "item"), *pairs])
    mark = codecs.BOM_UTF16_LE if encoding == "utf-16-le" else b""
    content = mark + text.getvalue().encode(encoding)
    (tmp_path / "x.csv").write_bytes(content)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(content))
    (tmp_path / "x.tsv").write_bytes(content)
    for name in ("x.csv", "x.csv.gz", "x.tsv"):
        rows, collector = rows_of(tmp_path / name)
        assert counts(rows) == holders(pairs)
        assert collector.malformed == 0


def test_what_is_no_text_in_utf_16_is_left_out(tmp_path: Path) -> None:
    good = "user,item\nu1,tea\nu2,".encode("utf-16-le")
    lone = b"\x00\xd8" + "\nu3,tea\n".encode("utf-16-le")
    (tmp_path / "x.csv").write_bytes(codecs.BOM_UTF16_LE + good + lone)
    rows, collector = rows_of(tmp_path / "x.csv")
    assert (counts(rows), collector.malformed) == ({"tea": 2}, 1)
    (tmp_path / "y.csv").write_bytes(codecs.BOM_UTF16_LE + good + lone + b"x")
    assert counts(rows_of(tmp_path / "y.csv")[0]) == {"tea": 2}


def test_parquet_of_other_programs(tmp_path: Path) -> None:
    """Views of strings, lists of fixed size, and fields of structs."""
    table = pa.table(
        {
            "user": pa.array(["a", "b"]).cast(pa.string_view()),
            "item": pa.array(["tea", "tea"]).cast(pa.string_view()),
            "pair": pa.array([["tea", "milk"], ["tea", "jam"]], pa.list_(pa.string(), 2)),
            "views": pa.array([["tea"], ["tea", "jam"]], pa.list_(pa.string_view())),
            "customer": pa.array([{"id": 1, "at": {"city": "x"}}, {"id": 1, "at": None}]),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    assert counts(rows_of(tmp_path / "x.parquet")[0]) == {"tea": 2}
    assert counts(rows_of(tmp_path / "x.parquet", item="pair")[0]) == {"tea": 2, "milk": 1, "jam": 1}
    assert counts(rows_of(tmp_path / "x.parquet", item="views")[0]) == {"tea": 2, "jam": 1}
    assert counts(rows_of(tmp_path / "x.parquet", user="customer.id")[0]) == {"tea": 1}
    rows, collector = rows_of(tmp_path / "x.parquet", item="customer.at.city")
    assert (counts(rows), collector.malformed) == ({"x": 1}, 1)
    rows, collector = rows_of(tmp_path / "x.parquet", user="customer")
    assert (counts(rows), collector.without_user) == ({}, 2)


def test_json_lines_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    for name, packed in (("x.jsonl", bytes), ("x.jsonl.gz", gzip.compress)):
        (tmp_path / name).write_bytes(packed(codecs.BOM_UTF8 + b'{"user": "a", "items": ["tea"]}\n'))
        rows, collector = rows_of(tmp_path / name)
        assert (counts(rows), collector.malformed) == ({"tea": 1}, 0)


def test_users_of_json_lines_may_be_numbers(tmp_path: Path) -> None:
    lines = [
        '{"user": 7, "items": ["tea"]}',
        '{"user": "7", "items": ["tea", "jam"]}',
        '{"user": 8, "items": ["tea"]}',
    ]
    bad = [
        '{"user": 7.5, "items": ["tea"]}',
        '{"user": true, "items": ["tea"]}',
        '{"user": 9, "items": [""]}',
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(lines + bad))
    rows, collector = rows_of(tmp_path / "x.jsonl")
    assert (counts(rows), collector.malformed) == ({"tea": 2, "jam": 1}, 3)


def test_a_user_who_goes_away_leaves_the_order_of_others_and_of_labels(tmp_path: Path) -> None:
    """Numbers may shift; what comes before what may not."""
    pairs = some_pairs(800)
    write_csv(tmp_path / "x.csv", pairs)
    write_csv(tmp_path / "y.csv", [pair for pair in pairs if pair[0] != "u7"])
    with_user, without = rows_of(tmp_path / "x.csv")[0], rows_of(tmp_path / "y.csv")[0]

    def order(rows: Rows, pairs: list[Pair]) -> list[str]:
        return list(dict.fromkeys(pairs[place][0] for place in np.argsort(rows.users, kind="stable")))

    left = [pair for pair in pairs if pair[0] != "u7"]
    assert [user for user in order(with_user, pairs) if user != "u7"] == order(without, left)
    assert [label for label in with_user.labels.to_pylist() if label in without.labels.to_pylist()] == (
        without.labels.to_pylist()
    )


@pytest.mark.parametrize(
    ("name", "content", "columns", "told"),
    [
        ("x.csv", b"customer,item\n", {}, "no single column 'user'"),
        ("x.csv", b"", {}, "no single column 'items'"),
        ("x.csv", b"user,user,item\n", {}, "no single column 'user'"),
        ("x.csv", b"user,item\ra,tea\rb,tea\r", {}, "no single column 'items'"),
        ("x.csv", b"user,item\n", {"user": "item"}, "cannot be the column of items and of users at once"),
        ("x.txt", b"", {}, "of an unknown kind"),
        ("x.ndjson", b"", {}, "of an unknown kind"),
        ("x.parquet.gz", b"", {}, "of an unknown kind"),
        ("x.parquet", b"no", {}, "is not in the format Parquet"),
        ("x.jsonl", b"", {"user": "u"}, "leave the columns out"),
        ("none.csv", None, {}, "there is no file"),
    ],
)
def test_files_are_refused_by_name_and_columns(
    name: str, content: bytes | None, columns: dict[str, str], told: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadRequest, match=told):
        find_file(Source(file=str(tmp_path / name), name="x", **columns), "user")


def test_columns_can_be_named_and_users_can_be_numbers(tmp_path: Path) -> None:
    table = pa.table({"customer": pa.array([7, 7, 8]), "product": pa.array(["tea", "tea", "tea"])})
    pq.write_table(table, tmp_path / "x.parquet")
    rows, _ = rows_of(tmp_path / "x.parquet", user="customer", item="product")
    assert counts(rows) == {"tea": 2}


@pytest.mark.parametrize(
    ("lone", "others"),
    [
        ("x", None),
        ("x", "tea"),
        (7, None),
        (1.5, 7),
        (True, None),
        ([7], []),
        ([7], None),
        ({"id": 7}, None),
        (Decimal("1.5"), None),
        (date(2026, 1, 1), None),
    ],
)
@pytest.mark.parametrize("column", ["item", "user", "item.id"])
def test_the_type_that_one_row_gives_a_column_decides_nothing(
    column: str, lone: Any, others: Any, tmp_path: Path
) -> None:
    """With it and without it the file is read, and the other rows count for what they did."""
    name, _, field = column.partition(".")
    found = list[dict[str, int]]()
    for value in (None, lone):
        cells = [value, others, others]
        cells = [{field: cell} if field and cell is not None else cell for cell in cells]
        pq.write_table(
            pa.table({"user": ["a", "b", "c"], "item": ["tea"] * 3} | {name: cells}), tmp_path / "x.parquet"
        )
        found.append(
            counts(rows_of(tmp_path / "x.parquet", **({"item": column} if name == "item" else {}))[0])
        )
    without, with_it = found
    assert all(0 <= with_it.get(label, 0) - count <= 1 for label, count in without.items())
    assert all(count <= 1 for label, count in with_it.items() if label not in without)


def test_json_lines_that_begin_like_utf_16_are_rows_like_others(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(codecs.BOM_UTF16_LE + b'\n{"user": "a", "items": ["tea"]}\n')
    rows, collector = rows_of(tmp_path / "x.jsonl")
    assert (counts(rows), collector.malformed) == ({"tea": 1}, 1)


def test_a_worker_reads_no_file_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user,item\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "y.csv").write_text("user,item\n")
    assert find_file(Source(file="y.csv", name="x"), "user", tmp_path / "in").stored.name.endswith("y.csv")
    for outside in ("../x.csv", str(tmp_path / "x.csv")):
        with pytest.raises(BadRequest, match="outside the folder"):
            find_file(Source(file=outside, name="x"), "user", tmp_path / "in")


def test_only_the_public_bins_are_kept(tmp_path: Path) -> None:
    write_csv(tmp_path / "x.csv", some_pairs())
    restricted = rows_of(tmp_path / "x.csv")[0].restricted(["milk", "nothing", "tea"])
    expected = holders(some_pairs())
    assert restricted.counts().tolist() == [expected["milk"], 0, expected["tea"]]
