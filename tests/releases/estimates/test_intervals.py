"""Do intervals hold when a label is first shown, and later, where plain ones do not?"""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.intervals import checked, release_of
from stream_dp.counters import MECHANISMS
from stream_dp.releases.estimates.intervals import intervals, rank_ranges, whole_intervals
from stream_dp.releases.estimates.showings import Showings
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease
from tests.example_releases import release as plain_release
from tests.releases.estimates.labels import EPSILON, even_paths, mechanism


def coverage(name: str, labels: int = 150) -> dict[int, tuple[float, float, float]]:
    """The shares of plain intervals, of intervals, and of those of late subscribers that hold, by rounds after."""
    counter = mechanism(name)
    paths = even_paths(counter, labels)
    held = defaultdict(list)
    for row in range(len(paths.first)):
        for after, true, *bounds in checked(counter, paths, row, EPSILON):
            held[after].append([low <= true <= high for low, high in bounds])
    return {after: tuple(np.mean(each, axis=0)) for after, each in held.items()}


@pytest.mark.parametrize("name", MECHANISMS)
def test_intervals_hold_at_the_first_showing_and_later(name: str) -> None:
    found = coverage(name)
    for after in (0, 100, 1_000):
        _, aware, late = found[after]
        assert aware > 0.9
        assert late > 0.90


def test_plain_intervals_do_not() -> None:
    """The same bar catches count +- 1.96 sd where noise changes in every round."""
    found = coverage("blt")
    assert found[0][0] < 0.7


def shown(rounds: range, first: int, counts: dict[int, int], name: str = "blt") -> list[WholeRelease]:
    """The releases of these rounds, put together in order, of a label first shown in round `first`."""
    wholes, counter = WholeReleases(), mechanism(name)
    made = (
        release_of(counter, number, EPSILON, None if number < first else counts.get(number, 200))
        for number in rounds
    )
    return [whole for whole in map(wholes.add, made) if whole is not None]


def widths(release: WholeRelease) -> tuple[float, float]:
    """How far the ends lie from the count, in units of the standard deviation."""
    low, high = release.interval("label")
    count = release.histogram["label"]
    return (count - low) / release.sd, (high - count) / release.sd


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_crossing_is_forgotten(name: str) -> None:
    counter = mechanism(name)
    showings = Showings()
    release_of(counter, 1_499, EPSILON, None).follow(showings)
    first = release_of(counter, 1_500, EPSILON, counter.tau(1_500))
    first.follow(showings)
    assert first.first_shown("label") == 1_500
    later = release_of(counter, 4_095, EPSILON, 900)
    later.follow(showings)
    below, above = widths(first)
    assert below > above  # the noise that lifts a label is high
    assert sum(widths(first)) < 2 * 1.96 * 1.15
    assert widths(later) == pytest.approx((1.96, 1.96), abs=0.25)


def test_a_late_subscriber_gets_a_wider_interval_and_is_told() -> None:
    counter = mechanism("blt")
    tau = counter.tau(1_000)
    early = shown(range(990, 1_011), 1_000, {1_000: tau})[-1]
    late = shown(range(1_005, 1_011), 1_000, {1_000: tau})[-1]
    assert early.first_shown("label") == 1_000
    assert late.first_shown("label") is None
    (low, high), (late_low, late_high) = early.interval("label"), late.interval("label")
    assert late_low <= low
    assert late_high >= high
    assert late_high - late_low > high - low


def test_a_gap_hides_since_when_a_label_is_shown() -> None:
    counter = mechanism("blt")
    wholes = WholeReleases()
    wholes.add(release_of(counter, 500, EPSILON, None))
    whole = wholes.add(release_of(counter, 502, EPSILON, counter.tau(502)))
    assert whole is not None
    assert whole.first_shown("label") is None


def test_another_epoch_begins_anew() -> None:
    counter = mechanism("blt")
    showings = Showings()
    before = showings.follow(release_of(counter, 1, EPSILON, 300))
    following = replace(release_of(counter, 1, EPSILON, None), nonce="11" * 16, epoch=2)
    assert before
    assert showings.follow(following) == {}
    assert before  # releases of the old epoch keep what they know


def test_a_label_that_was_never_tested_has_the_plain_interval() -> None:
    """Known labels are shown below tau."""
    [first] = shown(range(1, 2), 1, {1: 3})
    first = replace(first, since=[0])
    assert widths(first) == pytest.approx((1.96, 1.96), abs=1e-3)


def test_where_labels_are_not_kept_intervals_are_plain() -> None:
    made = plain_release(7, {"tea": 400})
    whole = WholeRelease(**{name: getattr(made, name) for name in made.__struct_fields__})
    assert whole.interval("tea") == pytest.approx((400 - 1.95996 * 15.92, 400 + 1.95996 * 15.92), abs=1e-3)
    assert whole.first_shown("tea") is None


@pytest.mark.parametrize(
    "strange", [{"sd": 0.0}, {"sd": float("nan")}, {"horizon": 2**40}, {"mechanism": "other"}, {"round": 0}]
)
def test_no_release_is_too_strange(strange: dict[str, object]) -> None:
    counter = mechanism("blt")
    sound = release_of(counter, 100, EPSILON, 500)
    fields = {name: getattr(sound, name) for name in sound.__struct_fields__}
    low, high = WholeRelease(**fields | strange).intervals()
    assert len(low) == len(high) == 1


def test_whole_intervals_are_rounded_outwards_and_not_negative() -> None:
    counter = mechanism("blt")
    release = release_of(counter, 3_000, EPSILON, 3)
    low, high = release.intervals()
    whole_low, whole_high = whole_intervals(release)
    assert whole_low[0] == 0 > low[0]
    assert high[0] <= whole_high[0] < high[0] + 1


def test_every_label_of_a_release_has_the_interval_it_has_alone() -> None:
    counter = mechanism("binary")
    sound = release_of(counter, 100, EPSILON, 500)
    fields = {name: getattr(sound, name) for name in sound.__struct_fields__}
    release = WholeRelease(**fields | {"labels": ["a", "b"], "counts": [900, 500]})
    low, high = release.intervals(0.9)
    assert [(low[i], high[i]) for i in range(2)] == [release.interval(label, 0.9) for label in "ab"]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=20))
def test_ranks_that_intervals_leave_open(found: list[tuple[int, int]]) -> None:
    """Counted one by one: whoever is certainly above, and whoever may be."""
    low = np.array([float(middle - reach) for middle, reach in found])
    high = np.array([float(middle + reach) for middle, reach in found])
    best, worst = rank_ranges(low, high)
    for place in range(len(found)):
        assert best[place] == 1 + sum(low > high[place])
        assert worst[place] == sum(high >= low[place])
        assert 1 <= best[place] <= worst[place] <= len(found)


def test_a_label_that_this_round_alone_shows_has_the_noise_that_lifted_it() -> None:
    """Of labels near tau those are shown whose noise is high; count +- 1.96 sd holds hardly more than half of them."""
    draw, sd, tau = np.random.default_rng(7), 20.0, 200
    true = np.repeat([140, 170, 200, 400], 2_000)
    counts = np.rint(true + draw.normal(0, sd, len(true))).astype(int)
    seen = np.flatnonzero(counts >= tau)
    one = replace(
        plain_release(5, {f"{place:05}": int(counts[place]) for place in seen}),
        shown="each-round",
        sd=sd,
        tau=tau,
    )
    low, high = intervals(one, {})
    inside = (low <= true[seen]) & (true[seen] <= high)
    plain = np.abs(counts[seen] - true[seen]) <= 1.96 * sd
    assert plain[true[seen] <= 170].mean() < 0.7
    assert inside[true[seen] <= 170].mean() > 0.95
    assert inside.mean() == pytest.approx(0.96, abs=0.015)
    never_tested = replace(one, since=[0] * len(seen))
    assert intervals(never_tested, {})[0] == pytest.approx(counts[seen] - 1.96 * sd, abs=0.1)
