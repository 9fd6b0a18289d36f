"""Which releases of the past are kept: few, from everywhere between first and last, and the same for everybody."""

from bisect import bisect_left
from functools import cache
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.dashboard.history import MOST_LABELS, MOST_SAMPLES, History
from stream_dp.engine.release_schedule import NEVER, ReleaseSchedule
from stream_dp.releases.release import Release
from tests.example_releases import release

HORIZON = 65_535


@cache
def exact(number: int) -> Release:
    """A release whose only count is its number; an interval without noise costs little."""
    return msgspec.structs.replace(release(number, {"a": number}), sd=0.0)


def kept(history: History) -> list[int]:
    return history.series([]).rounds


@settings(max_examples=25)
@given(st.integers(1, 5_000))
def test_the_rounds_kept_are_the_multiples_of_the_least_power_of_two_that_suffices(newest: int) -> None:
    history = History()
    for number in range(1, newest + 1):
        history.add(release(number, {}))
    stride = next(2**power for power in range(20) if newest // 2**power <= MOST_SAMPLES)
    assert kept(history) == list(range(stride, newest + 1, stride))
    assert (history.stride, history.last) == (stride, kept(history)[-1])
    assert history.missing(1) == []


@settings(max_examples=25)
@given(st.integers(1, 3_000), st.integers(0, 300), st.randoms(use_true_random=False))
def test_who_begins_late_and_fetches_what_is_missing_keeps_the_same(
    start: int, more: int, random: object
) -> None:
    always, late = History(), History()
    for number in range(1, start + more + 1):
        always.add(exact(number))
    late.add(exact(start))
    for number in late.missing(start):
        late.add(exact(number))
    for number in range(start + 1, start + more + 1):
        late.add(exact(number))
    if start % late.stride:  # the first one was on show, and is of no use later
        assert start not in kept(late)
    assert always.series(["a"]) == late.series(["a"])


def released(setting: str, horizon: int = HORIZON) -> list[int]:
    """The rounds that a setting of `release` releases, where a round is closed at a random time, 50 a second."""
    rng = Random(5)
    clock, times = 0.0, []
    for _ in range(horizon):
        clock += rng.expovariate(0.05)
        times.append(int(clock))
    wanted = ReleaseSchedule.of(setting).wanted(1, times, NEVER, horizon)
    return [number for number, is_wanted in enumerate(wanted.tolist(), start=1) if is_wanted]


@pytest.mark.parametrize(
    ("setting", "fewest"),
    [("every-round", 127), ("every-7", 127), ("every-100", 127), ("every-1000", 66), ("every-1000ms", 127)],
)
def test_whatever_is_released_the_first_of_each_stretch_is_kept(setting: str, fewest: int) -> None:
    history, rounds = History(), released(setting)
    for at, number in enumerate(rounds, start=1):
        history.add(release(number, {}))
        assert len(history) <= MOST_SAMPLES
        if at in (50, 300, 9_000) or number == rounds[-1]:
            firsts = {each // history.stride: each for each in reversed(rounds[:at])}
            assert kept(history) == [firsts[stretch] for stretch in sorted(firsts) if stretch]
    assert fewest <= len(history)
    assert kept(history)[-1] > HORIZON - 2 * history.stride


@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=300), st.integers(0, 299), st.sampled_from([1, 7, 100])
)
def test_who_begins_late_keeps_the_same_whatever_is_released(gaps: list[int], start: int, even: int) -> None:
    """What lies at or past a round that is missing is fetched, as the reader does."""
    rounds, number = [], 0
    for gap in gaps:
        number += gap if even == 1 else even
        rounds.append(number)
    start = min(start, len(rounds) - 1)
    always, late = History(), History()
    for number in rounds:
        always.add(release(number, {}))
    late.add(release(rounds[start], {}))
    missing = late.missing(rounds[start])
    assert [number & -number for number in missing] == sorted(
        (number & -number for number in missing), reverse=True
    )
    for number in missing:
        found = bisect_left(rounds, number, hi=start)
        late.add(release(rounds[found], {}))
    for number in rounds[start + 1 :]:
        late.add(release(number, {}))
    assert kept(late) == kept(always)


def test_a_round_without_the_label_is_a_gap_and_not_a_zero() -> None:
    history = History()
    for number, counts in enumerate([{"a": 300, "b": 200}, {"b": 210}, {"a": 320}], start=1):
        history.add(release(number, counts))
    assert msgspec.to_builtins(history.series(["a", "never"])) == {
        "rounds": [1, 2, 3],
        "ts": ["2026-01-31T12:00:00.000Z"] * 3,
        "sd": [15.92] * 3,
        "tau": [112] * 3,
        "series": [
            {"label": "a", "counts": [300, None, 320], "low": [268, None, 288], "high": [332, None, 352]},
            {"label": "never", "counts": [None] * 3, "low": [None] * 3, "high": [None] * 3},
        ],
    }


def test_of_a_very_large_release_the_largest_counts_are_kept() -> None:
    history = History()
    history.add(release(1, {f"label {rank}": 9_000 - rank for rank in range(MOST_LABELS + 1)}))
    asked = ["label 0", f"label {MOST_LABELS - 1}", f"label {MOST_LABELS}"]
    first, last, beyond = history.series(asked).series
    assert (first.counts, last.counts, beyond.counts) == ([9_000], [9_001 - MOST_LABELS], [None])
