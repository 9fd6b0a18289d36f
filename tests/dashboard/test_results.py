"""Results of jobs are shown by the fields that are known to be public, whatever else their record holds."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dp.dashboard.board import Board
from stream_dp.dashboard.results import MOST_LABELS, Result, read_result
from stream_dp.events.event import LONGEST_LABEL

EXAMPLE = json.loads((Path(__file__).parents[2] / "docs/schemas/result.json").read_text())["examples"]


def read(**fields: object) -> Result | None:
    return read_result(b"job-1", json.dumps({"status": "done", "labels": ["a", "b"]} | fields).encode())


def test_the_public_fields_are_read_and_nothing_else() -> None:
    done, refused = EXAMPLE
    found = read(**done | {"labels_seen": 912, "cost": done["cost"] | {"at_delta": 1e-5, "labels_seen": 912}})
    assert found is not None
    assert (found.id, found.title, found.labels, found.counts) == (
        "q-17",
        "top-k · gumbel",
        ["tea", "milk"],
        None,
    )
    assert found.cost == {"epsilon": 1.0, "delta": 1e-5, "rho": 0.0625}
    assert found.notes == []
    assert "912" not in str(found)
    assert read_result(b"q-18", json.dumps(refused).encode()) is None


def test_a_result_without_labels_says_what_it_is() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"labels": []}, "No label was released."),
        ({"labels": [], "rank": 12}, "The largest gap comes after rank 12."),
        ({"bottom": True}, "There are fewer labels than were asked for."),
    ]
    for fields, note in cases:
        found = read(**fields)
        assert found is not None
        assert found.notes == [note]


def test_counts_say_what_they_leave_out_unless_it_is_no_text() -> None:
    for told, notes in (("Counts some.", ["Counts some."]), (912, []), (None, []), ("x" * 10_000, [])):
        found = read(counts=[9, 8], counts_what=told)
        assert found is not None
        assert found.notes == notes


def test_a_long_result_is_cut_and_says_so() -> None:
    found = read(labels=[str(n) for n in range(500)])
    assert found is not None
    assert (len(found.labels), found.released, found.id) == (MOST_LABELS, 500, "job-1")


def test_parts_become_one_result() -> None:
    parts = [
        read(labels=[f"{part} {n}" for n in range(90)], counts=[9] * 90, part=part, parts=3)
        for part in (1, 2, 3)
    ]
    board = Board()
    for part in [*parts[:2], *parts]:  # a worker that died sends the first ones again
        assert part is not None
        board.take_result(part)
    (whole,) = board.results
    assert (len(whole.labels), whole.counts, whole.released) == (MOST_LABELS, [9] * MOST_LABELS, 270)
    assert whole.labels[89:91] == ["1 89", "2 0"]


@pytest.mark.parametrize("counts", [[1], [1, "2"], [1, 2.5], [True, 2], "12", None])
def test_counts_that_do_not_fit_are_not_shown(counts: object) -> None:
    found = read(counts=counts)
    assert found is not None
    assert found.counts is None


def test_a_part_of_another_result_is_not_joined_to_it() -> None:
    """Whoever may write into the topic could otherwise put labels under the guarantee of somebody else's job."""
    first = read(guarantee="epsilon 1", part=1, parts=2)
    assert first is not None
    for other in (
        {"guarantee": "epsilon 2"},
        {"source": "other"},
        {"ts": "2026"},
        {"counts_what": "Counts some."},
        {"cost": {"rho": 1}},
    ):
        board = Board()
        following = read(**{"guarantee": "epsilon 1", "part": 2, "labels": ["c"]} | other)
        assert following is not None
        board.take_result(first)
        board.take_result(following)
        assert [each.labels for each in board.results] == [["c"]]


HUGE = int("9" * 400)


@pytest.mark.parametrize(
    "name", ["low", "rank", "part", "ts", "guarantee", "job", "id", "source", "bottom", "counts"]
)
@pytest.mark.parametrize("value", [HUGE, -HUGE, 1e308, [], {}, [HUGE, HUGE], "x" * 5_000, True, None, [[[]]]])
def test_a_record_of_any_shape_is_a_result_that_can_be_told_or_none(name: str, value: object) -> None:
    found = read(**{name: value, "cost": {"rho": value, "epsilon": value, "at_delta": value}})
    board = Board()
    assert found is not None
    board.take_result(found)
    told = json.loads(msgspec.json.encode(board.results))
    columns = [*(told[0]["counts"] or []), *(told[0]["low"] or [])]
    assert HUGE not in (told[0]["part"], *columns, *told[0]["cost"].values())
    assert len(json.dumps(told)) < 3_000


def test_a_label_that_is_longer_than_any_is_of_no_result() -> None:
    assert read(labels=["x" * (LONGEST_LABEL + 1)]) is None
    assert read(labels=["x" * LONGEST_LABEL]) is not None


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"{", b"\xff", b"[]", b'"a"', b"{}", b"[" * 9999),
        b'{"status": "done", "labels": "a"}',
        b'{"status": "done", "labels": [1]}',
        b'{"status": "scheduled", "labels": ["a"]}',
    ],
)
def test_what_is_no_result_is_left_out(value: bytes | None) -> None:
    assert read_result(b"job-1", value) is None
