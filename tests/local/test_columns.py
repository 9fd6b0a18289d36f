"""What one row of a table holds decides nothing about the other rows, and no message quotes it."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest

import stream_dp

ONE_ROW: list[Any] = [
    None,
    7,
    2.5,
    True,
    b"x",
    "HIV positive",
    ["HIV positive", 7],
    {"id": "x"},
    Decimal(1),
    object(),
    2**70,
]


@pytest.mark.parametrize("make", [dict, pandas.DataFrame], ids=["columns", "pandas"])
@pytest.mark.parametrize("column", ["item", "user", "about.sku", "note"])
def test_one_row_decides_nothing_about_the_others(make: Any, column: str) -> None:
    """Nothing is refused, and what is quoted by no message is counted as the rest of the table is."""
    columns: dict[str, Any] = {"user": [f"u{number}" for number in range(3000)], "item": ["tea"] * 3000}
    columns |= {"about": [{"sku": "tea"}] * 3000, "note": ["n"] * 3000}
    name, _, field = column.partition(".")
    item, rest = "about.sku" if field else "item", columns[name][:-1]
    for value in ONE_ROW:
        columns[name] = [*rest, {field: value} if field and value is not None else value]
        assert stream_dp.histogram(make(columns), item=item).labels == ["tea"], value


AFTER_PYTHON = pa.array([0, 253_402_300_800_000_000], pa.timestamp("us"))
MIXED = {"items": ["tea", {"HIV": "positive"}]}


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"items": ["tea", "tea"], "at": AFTER_PYTHON}),
        AFTER_PYTHON,
        pandas.DataFrame(MIXED),
        polars.DataFrame(MIXED, strict=False, schema={"items": polars.Object}),
    ],
    ids=["time", "column", "pandas", "polars"],
)
def test_a_row_that_cannot_be_read_is_an_empty_event(tmp_path: Path, table: Any) -> None:
    with pytest.warns(UserWarning, match="counts as one without items"):
        assert len(list(stream_dp.run(table, epsilon=1, key_file=tmp_path / "a.key"))) == 2
