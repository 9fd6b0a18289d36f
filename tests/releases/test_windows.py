"""What happened lately: the counts between two releases, whichever of them are kept, and in whatever epoch."""

import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console

from benchmarks.intervals import release_of
from stream_dp.cli.window_view import line, picture
from stream_dp.config.times import iso_timestamp, milliseconds, parse_time
from stream_dp.counters import MECHANISMS
from stream_dp.releases.estimates import differences
from stream_dp.releases.estimates.differences import window_sd
from stream_dp.releases.estimates.showings import Showings
from stream_dp.releases.new_labels import NewLabel
from stream_dp.releases.release import TestRecord as Found
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.window_readers import Windows
from stream_dp.releases.windows import Span, Window, window_between, with_moves
from tests.releases.estimates.labels import EPSILON, even_paths, mechanism
from tests.releases.estimates.test_noise_shapes import HORIZON, ROWS

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", Span(milliseconds=90_000)),
        ("5m", Span(milliseconds=300_000)),
        ("1h", Span(milliseconds=3_600_000)),
        ("7d", Span(milliseconds=7 * 86_400_000)),
        (timedelta(seconds=1.5), Span(milliseconds=1_500)),
        ("1000", Span(rounds=1_000)),
        (1_000, Span(rounds=1_000)),
    ],
)
def test_spans(text: str | int | timedelta, span: Span) -> None:
    assert Span.of(text) == span


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "1w", "1 h", "1.5h", "h", "10" * 9, timedelta(0), 0, True, 2.5, None]
)
def test_what_is_no_span_is_refused(text: Any) -> None:
    with pytest.raises(
        ValueError, match="a window is a time such as 90s, 5m, 1h or 7d, or a number of rounds"
    ):
        Span.of(text)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_noise_of_a_window_is_that_of_the_draws_that_one_end_has_and_the_other_has_not(name: str) -> None:
    """Against the rows of the matrices that the counters apply to their draws, all pairs of rounds below 64."""
    rows, rounding = ROWS[name](), 1 / 12 if name == "blt" else 0.0
    for last in range(1, HORIZON + 1):
        sd = float(np.sqrt(900 * rows[last - 1] @ rows[last - 1] + rounding))
        release = replace(release_of(mechanism(name), last, EPSILON, None), horizon=HORIZON, sd=sd)
        for since in range(1, last):
            change = rows[last - 1] - rows[since - 1]
            expected = np.sqrt(900 * change @ change + 2 * rounding)
            assert window_sd(release, since) == pytest.approx(expected, rel=1e-6)
        assert window_sd(release, last) == 0
        assert window_sd(release, 0) == sd


@pytest.mark.parametrize("name", MECHANISMS)
def test_intervals_of_windows_hold_right_after_the_first_showing_and_later(name: str) -> None:
    found = coverage(name)
    for aware, late in found.values():
        assert aware > 0.9
        assert late > 0.9


def test_an_interval_that_knows_nothing_of_the_showing_does_not_hold() -> None:
    assert coverage("blt", aware=False)[0][0] < 0.85


def coverage(name: str, aware: bool = True) -> dict[int, tuple[float, float]]:
    """The shares of windows of 300 rounds whose interval holds, by the rounds between first showing and beginning.

    Of a reader who saw the showing, and of one who came at the beginning.
    """
    counter = mechanism(name)
    paths = even_paths(counter, 150)
    found = {}
    for after in (0, 200):
        held = []
        for first, true, noisy in zip(paths.first.tolist(), paths.true, paths.noisy, strict=True):
            begin, end = first + after, first + after + 300
            if end > true.shape[0]:
                continue
            ends = [
                release_of(counter, number, EPSILON, int(noisy[number - 1])) for number in (first, begin, end)
            ]
            late = window_between(ends[-1], ends[-2])
            showings = Showings()
            release_of(counter, first - 1, EPSILON, None).follow(showings)
            for each in ends if aware else ends[:0]:
                each.follow(showings)
            known = window_between(ends[-1], ends[-2])
            if not aware:
                reach = 1.96 * known.sd
                known = replace_ends(known, known.counts - reach, known.counts + reach)
            really = true[end - 1] - true[begin - 1]
            held.append([bool(each.low[0] <= really <= each.high[0]) for each in (known, late)])
        found[after] = tuple(np.mean(held, axis=0))
    return found


def replace_ends(window: Window, low: Any, high: Any) -> Window:
    return Window(**{**vars(window), "low": low, "high": high})


def stream(
    rounds: range, counts: dict[str, tuple[int, int]], epoch: int = 1, seconds: int = 10
) -> list[WholeRelease]:
    """Releases of these rounds, one every so many seconds; of each label its first round and its growth a round."""
    counter, wholes = mechanism("binary"), WholeReleases()
    found = []
    for number in rounds:
        shown = {label: 500 + grows * number for label, (first, grows) in counts.items() if number >= first}
        shown = dict(sorted(shown.items(), key=lambda found: -found[1]))
        made = replace(
            release_of(counter, number, EPSILON, None),
            epoch=epoch,
            nonce=f"{epoch:032x}",
            previous=number - rounds.step if number > rounds.step else 0,
            labels=list(shown),
            counts=list(shown.values()),
            ts=iso_timestamp(milliseconds(START) + 1000 * seconds * ((epoch - 1) * 100 + number)),
        )
        whole = wholes.add(made)
        assert whole is not None
        found.append(whole)
    return found


class Readers:
    """What a topic with these releases gives to all who read it."""

    def __init__(self, releases: list[WholeRelease]) -> None:
        self.releases = releases
        self.open = 0

    def again(self, start: str | int | datetime, epoch: int | None) -> Any:
        if isinstance(start, datetime):
            there = [each for each in self.releases if parse_time(each.ts) <= start][-1:]
            begin = self.releases.index(there[0]) if there else 0
        else:
            assert isinstance(start, int)
            begin = next(
                i for i, each in enumerate(self.releases) if (each.epoch, each.round) >= (epoch, start)
            )
        self.open += 1
        return _Reader(self, iter([each for each in self.releases[begin:] if epoch in (None, each.epoch)]))


class _Reader:
    def __init__(self, readers: Readers, left: Iterator[WholeRelease]) -> None:
        self._readers, self._left = readers, left

    def __next__(self) -> WholeRelease:
        return next(self._left)

    def close(self) -> None:
        self._readers.open -= 1


def windows(releases: list[WholeRelease], span: str | int, begin: int = 0) -> list[Window]:
    readers = Readers(releases)
    with Windows(readers.again, Span.of(span)) as found:
        there = [found.window(release) for release in releases[begin:]]
    assert readers.open == 0
    return there


@pytest.mark.parametrize("span", [10, "100s"])
@pytest.mark.parametrize("begin", [0, 4, 25])
def test_a_window_is_the_difference_of_two_releases(span: str | int, begin: int) -> None:
    releases = stream(range(1, 41), {"tea": (1, 3), "milk": (1, 7), "new": (30, 1)})
    for window in windows(releases, span, begin):
        number = window.release.round
        if number <= 10:
            assert window.since is None
            assert window.histogram == window.release.histogram
            assert window.sd == window.release.sd
            continue
        assert window.since is releases[number - 11]
        new = {"new": 10 if number >= 40 else 501 + number - (window.since.tau or 0)} if number >= 30 else {}
        assert window.histogram == {"milk": 70, "tea": 30} | new
        assert window.labels[0] == ("new" if 30 <= number < 40 else "milk"), "all are ranked by what is known"
        assert [each.label for each in window.new] == (["new"] if 30 <= number < 40 else [])
        assert window.complete
        assert all(window.low <= window.counts)
        assert all(window.counts <= window.high)


@pytest.mark.parametrize("begin", [0, 5])
def test_where_rounds_are_left_out_a_window_begins_with_the_last_that_was_released_by_then(
    begin: int,
) -> None:
    releases = stream(range(4, 81, 4), {"tea": (1, 3)})
    for window in windows(releases, 10, begin):
        expected = (window.release.round - 10) // 4 * 4
        assert (window.since.round if window.since else 0) == max(0, expected)


@pytest.mark.parametrize("span", [10, "100s"])
def test_a_window_does_not_reach_into_the_epoch_before(span: str | int) -> None:
    """By rounds too, whose readers are given the releases of one epoch only."""
    releases = stream(range(1, 101), {"tea": (1, 3)}) + stream(range(1, 21), {"tea": (1, 5)}, epoch=2)
    for window in windows(releases, span, 95):
        if window.release.epoch == 2 and window.release.round <= 10:
            assert window.since is None
            assert not window.complete
        else:
            assert window.since is not None
            assert window.since.epoch == window.release.epoch
            assert window.complete


def carried_on() -> list[WholeRelease]:
    """Two epochs of which the second carries the first on: tea in both, milk shown from the second on."""
    first = stream(range(1, 101), {"tea": (1, 3)})
    second = stream(range(1, 21), {"tea": (1, 5), "milk": (1, 9)}, epoch=2)
    end = first[-1].histogram["tea"]
    sd = first[-1].sd
    total_sds = [{"1": float(np.hypot(sd, each.sd)), "2": each.sd} for each in second]
    return first + [
        replace(
            each,
            since=[1 if label == "tea" else 2 for label in each.labels],
            totals=[count + end * (label == "tea") for label, count in each.histogram.items()],
            total_sds=sds,
        )
        for each, sds in zip(second, total_sds, strict=True)
    ]


def test_a_window_reaches_into_the_epoch_before_where_totals_go_on() -> None:
    releases = carried_on()
    for window in windows(releases, "100s", 95):
        number = window.release.round
        if window.release.epoch == 1 or number > 10:
            assert window.since is not None
            assert window.since.epoch == window.release.epoch
            continue
        assert window.complete
        assert window.since is releases[90 + number - 1]
        # Until the end of epoch 1 three a round; of epoch 2, whose counts begin with 500 here, five.
        assert window.histogram == {"tea": 3 * (10 - number) + 500 + 5 * number, "milk": 500 + 9 * number}
        assert window.new == [NewLabel("milk", 0, None)]
        assert (window.low < window.counts).all()
        assert window.high[window.labels.index("milk")] == np.inf
        assert (window.high > window.counts).all()
        assert not window.rising


def test_by_rounds_a_window_begins_with_the_epoch_even_where_totals_go_on() -> None:
    for window in windows(carried_on(), 10, 100)[:10]:
        assert window.since is None
        assert not window.complete


def test_the_noise_of_a_window_over_two_epochs_is_no_less_than_it_is_said_to_be() -> None:
    """Against the rows of the matrix of blt: the end of one epoch, a release before it, and one of the next epoch."""
    matrix = ROWS["blt"]() * 30
    end, now = matrix[HORIZON - 1], matrix[9]
    for since in range(1, HORIZON):
        then = matrix[since - 1]
        older = replace(release_of(mechanism("blt"), since, EPSILON, None), sd=float(np.linalg.norm(then)))
        really = np.sqrt(np.sum((end - then) ** 2) + np.sum(now**2))
        total = np.sqrt(np.sum(end**2) + np.sum(now**2))
        told = differences.sd_across(older, older.sd, float(total))
        assert told >= really
        assert told <= np.sqrt(3) * np.hypot(np.linalg.norm(end), np.linalg.norm(now))


def test_the_interval_over_two_epochs_allows_for_noise_that_had_lifted_the_label() -> None:
    [window] = windows(carried_on(), "100s", 100)[:1]
    reach = 1.96 * window.sd
    assert window.low[0] == pytest.approx(window.counts[0] - reach, rel=1e-3)
    assert window.high[0] > window.counts[0] + reach + 0.1 * window.sd


def test_where_the_past_is_no_longer_kept_a_window_begins_with_the_oldest_release() -> None:
    releases = stream(range(1, 41), {"tea": (1, 3)})[15:]
    found = windows(releases, 10, 2)
    assert [window.since.round for window in found if window.since][:10] == [16] * 9 + [17]
    assert [window.complete for window in found][:10] == [False] * 8 + [True] * 2


def found_at_tests() -> list[WholeRelease]:
    """Tests in rounds 10 and 20, and 2 events of each label a round; the second one finds "late", with 47."""
    base = stream(range(1, 31), {})
    tests = {"1": Found(10, 15, 4.0), "2": Found(20, 40, 5.0)}
    found = []
    for each in base:
        shown = {"late": 47 + 2 * (each.round - 20), "early": 2 * each.round}
        labels = list(shown)[each.round < 20 : 2 if each.round >= 10 else 0]
        told = [2 if label == "late" else 1 for label in labels]
        fields = {"labels": labels, "counts": [shown[label] for label in labels], "found": told}
        by_test = {
            "sds": {f"{test}": 6.0 for test in {*told}},
            "tests": {f"{test}": tests[f"{test}"] for test in told},
        }
        noise = {"mechanism": "blt", "horizon": 4095, "shown": "kept", "draw_sd": 2.0, "test_draw_sd": 3.0}
        found.append(replace(each, tau=None, at_least=1, next_test=None, **fields, **by_test, **noise))
    return found


def test_of_a_label_that_a_test_found_a_window_has_what_came_after_the_test() -> None:
    """Never the noise of the test, and never fewer than there were; whoever cannot read the test knows less."""
    releases = found_at_tests()
    for window in windows(releases, 8, 18):
        number = window.release.round
        place = window.labels.index("late") if number >= 20 else None
        assert sorted(window.labels) == sorted(window.release.labels), "none is left out"
        if place is None or number >= 28:
            assert window.new == []
            continue
        assert window.new == [NewLabel("late", 20, releases[19].ts)]
        assert window.counts[place] == 2 * (number - 20)
        assert window.low[place] <= 2 * (number - 20) < 2 * 8 < window.high[place]
        assert window.low[place] > 2 * (number - 20) - 1.96 * 2.0 * 4
        apart = window_between(window.release, window.since)
        low, high = window.release.intervals()
        assert ((low < window.release.counts) & (high > window.release.counts)).all()
        assert apart.new == [NewLabel("late", number, window.release.ts)]
        assert (
            (apart.counts[place], apart.low[place]) == (0, 0) if place == 1 else apart.histogram["late"] == 0
        )


def test_people_see_where_a_window_begins_its_largest_counts_and_that_others_are_new() -> None:
    releases = stream(range(1, 41), {"tea": (1, 3), "milk": (1, 7), "\x1b[2Jnew": (30, 1)})
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(picture(window_between(releases[-1], releases[20]), 80, 2))
    text = console.export_text()
    assert "rounds 22 to 40, since 2026-01-31T12:03:30Z" in text
    assert "milk" in text
    assert "133" in text
    assert "1 more" in text
    assert re.search("\ufffd\\[2Jnew +≥[0-9]+ +since 12:03:30", text)
    assert "1 labels that were not shown at its beginning: counted at least so often since" in " ".join(
        text.split()
    )
    assert max(map(len, text.splitlines())) <= 80
    assert line(window_between(releases[-1], releases[20])).startswith(
        "rounds 22 to 40, since 2026-01-31T12:03:30Z: \ufffd[2Jnew at least "
    )
    whole = line(window_between(releases[-1], None))
    assert whole.startswith("rounds 1 to 40, since the epoch began: milk 780")
    assert "\x1b" not in whole


def test_nothing_is_in_a_window_that_begins_with_its_own_release() -> None:
    *_, older, newest = stream(range(1, 41), {"tea": (1, 3)})
    empty = window_between(newest, newest)
    assert (empty.labels, empty.counts.tolist(), empty.new, empty.since) == ([], [], [], newest)
    assert with_moves(empty, older).moves is None, "nobody can tell what fell"


def test_two_releases_of_different_epochs_have_no_window() -> None:
    [first], [second] = stream(range(1, 2), {}), stream(range(1, 2), {}, epoch=2)
    with pytest.raises(ValueError, match="two releases of one epoch"):
        window_between(second, first)
