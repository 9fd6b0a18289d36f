"""One-shot jobs in one's own program: the mechanisms of the command line, on tables of every kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

import stream_dp
from stream_dp.jobs.defaults import default_mechanism
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.privacy.one_shot_noise import OneShotNoise

COLUMNS: dict[str, Any] = {
    "item": ["tea", "milk", "bread"] * 3000,
    "user": [f"u{number // 3}" for number in range(9000)],
}
TABLES = {
    "columns": COLUMNS,
    "arrow": pa.table(COLUMNS),
    "pandas": pandas.DataFrame(COLUMNS),
    "polars": polars.DataFrame(COLUMNS),
}
NAMES = {"tea", "milk", "bread"}


@pytest.fixture(autouse=True)
def the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneShotNoise, "fresh", classmethod(lambda cls: OneShotNoise(bytes(32))))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_each_kind_of_table_gives_the_same(table: Any) -> None:
    assert set(stream_dp.top_k(table, 3).labels) == NAMES
    assert set(stream_dp.set_union(table).labels) == NAMES
    counted = stream_dp.histogram(table)
    assert counted == stream_dp.histogram(COLUMNS)
    assert counted.counts is not None
    assert counted.sd is not None
    assert set(counted.labels) == NAMES
    assert all(abs(count - 3000) < 8 * counted.sd for count in counted.counts)
    assert counted.to_arrow().select(["label", "count"]).to_pydict() == {
        "label": counted.labels,
        "count": counted.counts,
    }
    assert counted.to_pandas()["label"].tolist() == counted.labels
    assert counted.to_polars()["count"].to_list() == counted.counts


def test_lists_of_labels_and_fields_of_structs_are_read() -> None:
    lists = {"items": [["tea", "milk", "bread"]] * 3000, "who": [{"id": f"u{n}"} for n in range(3000)]}
    found = stream_dp.histogram(lists, item="items", user="who.id")
    assert found == stream_dp.histogram(COLUMNS)


@pytest.mark.parametrize("kind", ["columns", "arrow", "pandas", "polars"])
@pytest.mark.parametrize("user", ["user", None])
def test_several_columns_of_items_are_families(kind: str, user: str | None) -> None:
    """What one column holds never counts for another, a row without a value brings none, and numbers are names too."""
    columns = {
        "country": ["UK", "FR", None] * 3000,
        "size": [1, 2, 3] * 3000,
        "tags": [["UK"], [], ["new", "UK"]] * 3000,
        "user": [f"u{number}" for number in range(9000)],
    }
    make: Any = {"arrow": pa.table, "pandas": pandas.DataFrame, "polars": polars.DataFrame}.get(kind, dict)
    names = ["country", "size", "tags"]
    found = stream_dp.histogram(make(columns), item=names, user=user, epsilon=4, items_per_user=5)
    true = {"tags:UK": 6000} | dict.fromkeys(
        ["country:UK", "country:FR", "size:1", "size:2", "size:3", "tags:new"], 3000
    )
    assert set(found.labels) == set(true)
    assert found.counts is not None
    assert found.sd is not None
    for label, count in zip(found.labels, found.counts, strict=True):
        assert abs(count - true[label]) < 8 * found.sd
    assert stream_dp.histogram(make(columns), item=("country",), user=user).labels[0].startswith("country:")
    for wrong, told in (
        ([], "item names a column of items"),
        (["size", "size"], "each once"),
        (["size", "shape"], "there is no column 'shape'"),
        (["user", "size"], "cannot name both users and items"),
    ):
        with pytest.raises(stream_dp.BadRequest, match=told):
            stream_dp.histogram(make(columns), item=wrong)


def test_of_public_bins_the_noise_decides_the_mechanism() -> None:
    """Of a few bins a user Laplace noise is the least, of many Gaussian; a few labels are drawn at once."""
    few, many = ["tea", "milk"], [f"label {number}" for number in range(200)]
    for k, more, least in (
        (2, {"bins": few}, "gumbel-known"),
        (2, {"bins": many, "items_per_user": 1}, "laplace-known"),
        (2, {"bins": many, "items_per_user": 40}, "gaussian-known"),
        (1, {"bins": many}, "gumbel-known"),
        (3, {"bins": many}, "joint-known"),
        (10, {"bins": many}, "joint-known"),
        (11, {"bins": many}, "gumbel-known"),
        (11, {"bins": many, "epsilon": 1.1}, "joint-known"),
        (3, {"bins": many, "mechanism": "fitted-gaussian"}, "gumbel-known"),
        (150, {"bins": many}, "gaussian-known"),
    ):
        assert stream_dp.top_k(COLUMNS, k, **more).parameters["fitted"] == least
    assert stream_dp.histogram(COLUMNS, bins=few).parameters["fitted"] == "known"
    found = stream_dp.histogram(COLUMNS, bins=many)
    assert (found.parameters["fitted"], len(found.counts or ())) == ("known-gaussian", 200)
    assert stream_dp.top_k(COLUMNS, 2, bins=few, epsilon=5).labels == ["tea", "milk"]


def test_without_users_each_row_counts() -> None:
    with_users = {"item": ["tea"] * 500, "user": ["one"] * 500}
    assert stream_dp.histogram(with_users).labels == []
    alone = stream_dp.histogram(with_users, user=None)
    assert alone.labels == ["tea"]
    assert "one event" in alone.guarantee
    assert "one user" in stream_dp.histogram(with_users).guarantee


@pytest.mark.parametrize("job", ["top-k", "set-union", "histogram"])
def test_every_mechanism_can_be_asked_for(job: Any) -> None:
    ask: Any = {"top-k": stream_dp.top_k, "set-union": stream_dp.set_union, "histogram": stream_dp.histogram}[
        job
    ]
    needed: dict[str, Any] = {
        "known": {"bins": ["tea", "milk"]},
        "known-gaussian": {"bins": ["tea", "milk"]},
        **{
            f"{noise}-known": {"bins": ["tea", "milk", "bread"]}
            for noise in ("gumbel", "joint", "laplace", "gaussian")
        },
        "sparse-vector": {"bins": ["tea", "milk"], "threshold": 100, "most": 1},
        "greedy-transfer": {"frequencies": {"tea": 10}},
    }
    first = {"k": 3} if job == "top-k" else {}
    for mechanism in MECHANISMS[job]:
        if mechanism == "pay-what-you-get":
            continue
        found = ask(COLUMNS, **first, mechanism=mechanism, epsilon=4.0, **needed.get(mechanism, {}))
        assert set(found.labels) <= NAMES
        assert found.labels or found.rank is not None or mechanism.startswith(("stable", "ptr")), mechanism
        assert found.mechanism == mechanism
        assert found.parameters["epsilon"] == 4.0


def test_defaults_are_those_of_the_command_line() -> None:
    """Without a bound a job fits it to an estimate, and says what it chose; with one, thresholds decide."""
    found = stream_dp.top_k(COLUMNS, 3)
    assert found.mechanism == default_mechanism("top-k", {"k": 3}) == "fitted"
    assert found.parameters["fitted"] in ("gumbel", "gaussian", "laplace", "two-stage")
    assert default_mechanism("top-k", {"k": 3}, beside_a_stream=True) == "fitted-gaussian"
    assert stream_dp.top_k(COLUMNS, 3, items_per_user=1).parameters["fitted"] == "laplace"
    assert stream_dp.histogram(COLUMNS, items_per_user=40).parameters["fitted"] == "gaussian"
    assert stream_dp.set_union(COLUMNS).mechanism == "fitted"
    assert stream_dp.set_union(COLUMNS, items_per_user=5).mechanism == "two-rounds"
    assert default_mechanism("set-union", {}, beside_a_stream=True) == "two-rounds"


def test_what_users_hold_decides_what_is_fitted() -> None:
    """A choice that ignored the estimate would be the same for both."""
    of = {}
    for held in (1, 40):
        users = np.repeat(np.arange(4_000), held)
        items = (users + np.tile(np.arange(held), 4_000)) % 60
        found = stream_dp.histogram({"user": users.astype(str), "item": items.astype(str)}, epsilon=2)
        of[held] = found.parameters["fitted"], found.parameters["items_per_user"]
        assert found.parameters["part_counted"] >= 0.4
    assert of[1] == ("laplace", 1)
    assert of[40][0] in ("gaussian", "two-stage")
    assert of[40][1] >= 20


def test_an_answer_says_what_its_counts_leave_out() -> None:
    """Of 20,000 users 9,000 hold four items, and the others two."""
    users = np.repeat(np.arange(20_000), 4)
    kept = (np.tile(np.arange(4), 20_000) < 2) | (users < 9_000)
    columns = {"user": users[kept].astype(str), "item": np.tile(np.array([*"abcd"]), 20_000)[kept]}
    found = stream_dp.histogram(columns, items_per_user=2, epsilon=2)
    assert found.over_cap is not None
    assert found.over_cap.low < 0.45 < found.over_cap.high < found.over_cap.low + 0.02
    assert found.counts_what is not None
    assert found.counts_what.startswith(
        "Every user counts with at most 2 items, a choice of them if there are more, as 45% (4"
    )
    table = found.to_arrow()
    assert table.column_names == ["label", "count", "low", "high"]
    assert all(row["low"] < row["count"] < row["high"] for row in table.to_pylist())
    assert stream_dp.top_k(columns, 3, mechanism="gumbel").counts_what is None
    plain = stream_dp.histogram(columns, items_per_user=2, mechanism="gaussian")
    assert plain.over_cap is None
    assert plain.counts_what is not None


def test_each_call_draws_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    drawn = [stream_dp.histogram(COLUMNS, epsilon=0.1).counts for _ in range(5)]
    assert len({tuple(counts or ()) for counts in drawn}) == 5  # at epsilon 1 two of them agree now and then


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"item": "sku"}, "there is no column 'sku'; there are item, user"),
        ({"user": "item"}, "cannot name both users and items"),
        ({"mechanism": "magic"}, "mechanism of histogram"),
        ({"epsilon": 0}, "epsilon must be a number above 0"),
        ({"delta": 1}, "delta must lie between"),
        ({"items_per_usr": 3}, "items_per_user"),
        ({"mechanism": "known"}, "needs bins"),
        ({"delta": 0.0}, "delta"),  # and not the usual one in its place
    ],
)
def test_mistakes_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(stream_dp.BadRequest, match=message):
        stream_dp.histogram(COLUMNS, **options)


@pytest.mark.parametrize(
    "data",
    [
        [["u1", "tea"]],
        ["tea"] * 3,
        {"user": ["u1"], "item": []},
        {"user": [[], 7], "item": "tea"},
        5,
        None,
        "tea",
    ],
)
def test_what_is_no_table_is_told(data: Any) -> None:
    with pytest.raises(stream_dp.BadRequest, match="data must be a table"):
        stream_dp.histogram(data)


def test_a_shared_budget_needs_a_ledger() -> None:
    with pytest.raises(stream_dp.BadRequest, match="ledger"):
        stream_dp.top_k(COLUMNS, 3, mechanism="pay-what-you-get", budget="anna", marks=20, queries=2)


def test_a_ledger_adds_up_and_refuses_once_it_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "shop.ledger"

    def opened(**other: Any) -> stream_dp.Ledger:
        settings: dict[str, Any] = {"epsilon": 2, "delta": 1e-6, "unit": "user", "file": file}
        return stream_dp.Ledger(**(settings | other))

    ledger = opened()
    assert file.stat().st_mode & 0o777 == 0o600
    assert ledger.left == pytest.approx(2)
    stream_dp.top_k(COLUMNS, 2, ledger=ledger)
    assert [ledger.spent, ledger.left] == pytest.approx([1, 1])
    with pytest.raises(stream_dp.BadRequest, match="no column"):
        stream_dp.histogram(COLUMNS, item="sku", ledger=ledger)
    again = opened()  # what another program finds
    assert again.left == pytest.approx(1)
    with pytest.raises(stream_dp.Refused, match="count"):
        stream_dp.histogram(COLUMNS, user=None, ledger=again)
    stream_dp.histogram(COLUMNS, ledger=again)
    with pytest.raises(stream_dp.Refused, match="budget"):
        stream_dp.set_union(COLUMNS, epsilon=0.1, ledger=ledger)
    with pytest.raises(stream_dp.Refused, match="epsilon 2"):
        opened(epsilon=3)
    with pytest.raises(stream_dp.Refused, match="count"):
        opened(unit="event")
    alone = stream_dp.Ledger(1, unit="event")
    stream_dp.histogram(COLUMNS, user=None, ledger=alone)
    assert alone.left == pytest.approx(0, abs=1e-6)
