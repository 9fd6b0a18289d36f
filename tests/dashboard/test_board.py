"""What the board remembers: the newest release, new labels, the rate, results; and what it forgets."""

from collections.abc import Callable

import msgspec
import pytest

from stream_dp.dashboard.board import MOST_RESULTS, RATE_SECONDS, Board
from stream_dp.dashboard.results import Result
from stream_dp.releases.release import Release
from tests.example_releases import release


def show(board: Board, shown: Release, now: float = 0.0, live: bool = True) -> None:
    board.take(shown, published=1_000.0, delay=0.0, behind=0, now=now, live=live)


def result(name: str, title: str = "Top 3") -> Result:
    return Result(
        name,
        1,
        title,
        "shop.events",
        ["a"],
        [5],
        [2],
        [8],
        1,
        [],
        {"epsilon": 0.5},
        "One user.",
        "2026-01-31T12:00:00.000Z",
    )


def test_labels_that_were_there_before_are_not_called_new() -> None:
    board = Board()
    show(board, release(10, {"a": 300}), live=False)
    board.take_past(release(8, {"b": 300}))
    show(board, release(11, {"a": 310, "b": 200, "c": 190}))
    show(board, release(12, {"d": 200}))
    show(board, release(13, {"a": 310, "c": 190}))
    assert board.view(0).new == [("d", 12), ("c", 11)]


def test_a_new_epoch_begins_with_nothing() -> None:
    board = Board()
    show(board, release(10, {"a": 300}))
    show(board, msgspec.structs.replace(release(1, {"a": 300}), epoch=2, nonce="11" * 16))
    assert board.view(0).new == [("a", 1)]
    assert board.series(["a"]).rounds == [1]
    board.take_past(release(8, {"a": 300}))
    assert board.series(["a"]).rounds == [1]


def test_the_rate_is_that_of_the_last_seconds_and_ends_with_the_releases() -> None:
    board = Board()
    assert board.view(0).rate is None
    for number in range(1, 1001):
        show(board, release(number, {}), now=number / 50)
    assert board.view(20.0).rate == pytest.approx(50, rel=0.02)
    assert board.view(20.0 + RATE_SECONDS + 1).rate == 0


def test_where_releases_are_rare_the_rate_is_that_between_them() -> None:
    board = Board()
    for number in range(5):
        show(board, release(100 + 100 * number, {}), now=20.0 * number)
    for later in (0, 5, 11, 19.9):
        assert board.view(80 + later).rate == pytest.approx(5)
    assert board.view(80 + 30).rate == pytest.approx(10 / 3)
    assert board.view(80 + 41).rate == 0


def test_a_result_comes_once_and_the_newest_are_kept() -> None:
    board = Board()
    for number in range(MOST_RESULTS + 5):
        board.take_result(result(f"job {number}"))
    board.take_result(result("job 10", "again"))
    found = board.view(0).results
    assert len(found) == MOST_RESULTS
    assert [each.id for each in found][:3] == ["job 10", "job 24", "job 23"]
    assert found[0].title == "again"


def test_every_change_is_noticed() -> None:
    board = Board()
    versions = [board.version]
    changes: tuple[Callable[[], object], ...] = (
        lambda: board.set_state("unreachable"),
        lambda: show(board, release(2, {})),
        lambda: board.take_result(result("a")),
        lambda: board.take_past(release(1, {})),
    )
    for change in changes:
        change()
        versions.append(board.version)
    assert sorted(set(versions)) == versions
    board.confirm()
    assert board.version == versions[-1]
