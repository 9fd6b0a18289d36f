"""Whatever people get from the library is a table in a notebook, and in pandas and Polars."""

import pytest

import stream_dp
from stream_dp.frames import Framed


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[stream_dp.WholeRelease]:
    """A tea whose name is markup, and milk: one in half of the rounds, the other in all."""
    key = tmp_path_factory.mktemp("frames") / "key"
    events = [["<b>tea", "milk"] if number % 2 else ["milk"] for number in range(400)]
    return list(stream_dp.run(events, epsilon=8, horizon=400, key_file=key))


def value(kind: str, releases: list[stream_dp.WholeRelease]) -> Framed:
    if kind == "release":
        return releases[-1]
    if kind == "window":
        return releases[-1].window(releases[199])
    if kind == "calibration":
        return stream_dp.calibrate(epsilon=1, mechanism="blt", horizon=1_000)
    users = {"item": ["<b>tea"] * 300, "user": list(range(300))}
    return stream_dp.histogram(users, epsilon=4)


@pytest.mark.parametrize(
    ("kind", "columns", "says"),
    [
        (
            "release",
            ["label", "count", "low", "high", "best_rank", "worst_rank"],
            "Counts the first 4 items of each event",
        ),
        ("window", ["label", "count", "low", "high", "new"], "rounds 201 to 400"),
        ("calibration", ["round", "sd", "threshold"], "blt: Taking any one event"),
        ("answer", ["label", "count", "low", "high"], "Taking any one user"),
    ],
)
def test_is_a_table_everywhere(
    kind: str, columns: list[str], says: str, releases: list[stream_dp.WholeRelease]
) -> None:
    found = value(kind, releases)
    assert found.to_pandas().columns.tolist() == found.to_polars().columns == columns
    shown = found._repr_html_()
    assert says in shown
    assert "<b>" not in shown
    rows = found.to_arrow().num_rows
    assert shown.count("<tr>") == 1 + min(rows, 20)
    assert rows > 0


def test_a_calibration_ends_with_its_horizon() -> None:
    rounds = stream_dp.calibrate(epsilon=1, mechanism="blt", horizon=1_000).to_arrow()["round"].to_pylist()
    assert rounds == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000]


def test_more_rows_than_a_notebook_shows_are_counted() -> None:
    many = {"item": [f"item {number % 50}" for number in range(50_000)], "user": list(range(50_000))}
    assert "and 30 more" in stream_dp.histogram(many, epsilon=4)._repr_html_()
