"""Do the intervals of labels that tests have found hold, when they are found, later, and in windows?"""

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.config.settings import Settings
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.engine.discovery_histogram import DiscoveryHistogram
from stream_dp.engine.epoch import Epoch
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.releases.encoder import ReleaseEncoder
from stream_dp.releases.estimates import found_labels
from stream_dp.releases.estimates.showings import Showings
from stream_dp.releases.smoothing import Smoother
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release
from stream_dp.releases.windows import window_between

HORIZON, LABELS = 1023, 600
ONE_ROUND = 601  # with labels, without a test
KEY = bytes(range(32))
EPOCH = Epoch.open(
    Settings(
        stream="s", mechanism="blt", discover="default", epsilon=2.0, horizon=HORIZON, items_per_event=4
    ),
    1,
    0,
)


def log() -> list[list[str]]:
    """Each label comes evenly, the rarest 20 times in all and the most frequent some 200 times."""
    rates = np.geomspace(20, 200, LABELS) / HORIZON
    hits = np.random.default_rng(5).random((HORIZON, LABELS)) < rates
    return [[f"{label:03d}" for label in np.flatnonzero(row)] for row in hits]


LOG = log()
TRUE = np.cumsum([np.bincount([int(label) for label in row], minlength=LABELS) for row in LOG], axis=0)


@pytest.fixture(scope="module")
def releases() -> list[WholeRelease]:
    """All rounds, as a subscriber of each gets them, who has seen every one."""
    mechanism = EPOCH.mechanism
    assert isinstance(mechanism, DiscoveryMechanism)
    histogram = DiscoveryHistogram(mechanism, KeyedNoise(KEY, "s", bytes(16)))
    encoder = ReleaseEncoder("s", 1, bytes(16), mechanism, EPOCH.guarantee, EPOCH.release_tags(KEY))
    found, showings, previous = [], Showings(), 0
    for block in histogram.blocks(LOG):
        for [value] in encoder.encode(block, [0] * len(block.rounds), previous):
            release = decode_whole_release(value)
            release.follow(showings)
            if release.labels and (release.tau is not None or release.round in (ONE_ROUND, HORIZON)):
                # What a release knows of showings grows with them, so intervals are computed at once.
                release.__dict__["ends"] = release.intervals()
            found.append(release)
        previous = int(block.rounds[-1])
    return found


def held(release: WholeRelease, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.bool_]:
    true = TRUE[release.round - 1, [int(label) for label in release.labels]]
    return (low <= true) & (true <= high)


def share(of: list[NDArray[np.bool_]]) -> float:
    return float(np.concatenate(of).mean())


def test_intervals_hold_when_a_label_is_found_and_at_the_end(releases: list[WholeRelease]) -> None:
    at_test, narrow = [], []
    for release in releases:
        if release.tau is not None and release.labels:
            counts, sds = np.array(release.counts), np.array(release.label_sds)
            new = np.array(release.found) == max(release.found or [])
            new &= counts < release.tau + sds  # what was far above it would have been found in any case
            at_test.append(held(release, *release.__dict__["ends"])[new])
            narrow.append(held(release, counts - sds, counts + sds)[new])
    assert sum(map(len, at_test)) > 100
    assert share(at_test) > 0.93, "more hold than must, because a label was tested before"
    assert share(narrow) < 0.8, "half as wide they would not"
    last = releases[-1]
    assert held(last, *last.__dict__["ends"]).mean() > 0.92


def test_those_of_windows_have_none_of_the_noise_of_tests(releases: list[WholeRelease]) -> None:
    good, narrow = [], []
    for start, end in ((300, 320), (500, 700), (900, 1000)):
        older, newer = releases[start - 1], releases[end - 1]
        window = window_between(newer, older)
        places = [int(label) for label in window.labels]
        true = TRUE[end - 1, places] - TRUE[start - 1, places]
        good.append((window.low <= true) & (true <= window.high))
        middle, half = (window.low + window.high) / 2, (window.high - window.low) / 4
        narrow.append((middle - half <= true) & (true <= middle + half))
    assert 0.92 < share(good) < 0.98
    assert share(narrow) < 0.8


def test_who_begins_to_read_later_has_wider_intervals(releases: list[WholeRelease]) -> None:
    release = releases[ONE_ROUND - 1]
    alone = decode_whole_release(msgspec.json.encode(release))
    low, high = alone.intervals()
    own = release.__dict__["ends"]
    assert (low <= own[0] + 1e-9).mean() > 0.95
    assert held(alone, low, high).mean() >= held(release, *own).mean()


def test_smoothed_counts_are_nearer_and_have_lost_some_of_what_tests_lift(
    releases: list[WholeRelease],
) -> None:
    smoother = Smoother()
    raw, near = [], []
    for release in releases[::5]:
        smoothed = smoother.add(release)
        if release.labels:
            true = TRUE[release.round - 1, [int(label) for label in release.labels]]
            raw.append(np.array(release.counts) - true)
            near.append(smoothed.counts - true)
    released, smooth = np.concatenate(raw), np.concatenate(near)
    assert np.sqrt(np.mean(smooth**2)) < 0.85 * np.sqrt(np.mean(released**2))
    assert 0 < smooth.mean() < 0.8 * released.mean()


@pytest.mark.parametrize("later", [0.0, 0.01, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("least", [-0.9, 0.3, 2.0, 20.0])
def test_quantiles_leave_what_they_say_below_them(least: float, later: float) -> None:
    levels = (0.025, 0.999)
    cells, masses = found_labels._laws(least)
    spread = np.hypot(later, (cells[:, 1:2] - cells[:, :1]) / 12**0.5)
    for level, quantiles in zip(levels, found_labels._lifted(least, later, levels), strict=True):
        below = np.sum(masses * ndtr((quantiles[:, None] - cells) / spread), axis=1)
        assert below == pytest.approx(level, abs=1e-7)
