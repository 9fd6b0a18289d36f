"""Which releases of the past are kept: few, the most precise ones, and the same ones for everybody."""

from hypothesis import given
from hypothesis import strategies as st

from stream_dp.dashboard.history import MOST_LABELS, MOST_SAMPLES, History
from tests.releases import release


def kept(history: History) -> list[int]:
    return history.series([])["rounds"]


@given(st.integers(1, 5_000))
def test_the_rounds_kept_are_the_multiples_of_the_least_power_of_two_that_suffices(newest: int) -> None:
    history = History()
    for number in range(1, newest + 1):
        history.add(release(number, {}))
    stride = next(2**power for power in range(20) if newest // 2**power <= MOST_SAMPLES)
    assert kept(history) == list(range(stride, newest + 1, stride))
    assert (history.stride, history.last) == (stride, kept(history)[-1])
    assert history.missing(newest) == []


@given(st.integers(1, 3_000), st.integers(0, 300), st.randoms(use_true_random=False))
def test_who_begins_late_and_fetches_what_is_missing_keeps_the_same(
    start: int, more: int, random: object
) -> None:
    always, late = History(), History()
    for number in range(1, start + more + 1):
        always.add(release(number, {"a": number}))
    late.add(release(start, {"a": start}))
    for number in late.missing(start):
        late.add(release(number, {"a": number}))
    for number in range(start + 1, start + more + 1):
        late.add(release(number, {"a": number}))
    if start % late.stride:  # the first one was on show, and is of no use later
        assert start not in kept(late)
    assert always.series(["a"]) == late.series(["a"])


def test_a_round_without_the_label_is_a_gap_and_not_a_zero() -> None:
    history = History()
    for number, counts in enumerate([{"a": 300, "b": 200}, {"b": 210}, {"a": 320}], start=1):
        history.add(release(number, counts))
    assert history.series(["a", "never"]) == {
        "rounds": [1, 2, 3],
        "ts": ["2026-01-31T12:00:00.000Z"] * 3,
        "sd": [15.92] * 3,
        "tau": [112] * 3,
        "series": [
            {"label": "a", "counts": [300, None, 320]},
            {"label": "never", "counts": [None, None, None]},
        ],
    }


def test_of_a_very_large_release_the_largest_counts_are_kept() -> None:
    history = History()
    history.add(release(1, {f"label {rank}": 9_000 - rank for rank in range(MOST_LABELS + 1)}))
    first, last, beyond = history.series(["label 0", f"label {MOST_LABELS - 1}", f"label {MOST_LABELS}"])[
        "series"
    ]
    assert (first["counts"], last["counts"], beyond["counts"]) == ([9_000], [9_001 - MOST_LABELS], [None])
