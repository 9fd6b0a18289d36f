"""Shares of a window: of the events that came in it, with the noise that both of its ends do not have in common."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.intervals import release_of
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.cap_cells import CapCells
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.windows import window_between
from tests.releases.estimates.labels import EPSILON, HORIZON

CELLS = 3_000
NAMES = [b"\xff%d" % number for number in range(CELLS)]


def pair(mechanism: Any, rounds: tuple[int, int], **changed: Any) -> tuple[WholeRelease, WholeRelease]:
    """Releases that count 10 events a round, one of ten over the cap, and a label in three of ten."""
    found = []
    for number in rounds:
        cells = {"units": 10 * number, "over_cap": number, "units_sd": mechanism.cells.sd(number)}
        plain = release_of(mechanism, number, EPSILON, 3 * number)
        found.append(replace(plain, **cells | changed))
    return found[0], found[1]


@pytest.mark.parametrize("name", ["binary", "blt"])
def test_the_noise_of_the_events_in_a_window_is_that_of_the_real_cells(name: str) -> None:
    """If noise that both ends have were counted twice, ten rounds would seem to have a fifth more, or twice as much."""
    mechanism, _ = calibrate(EPSILON, 1e-6, HORIZON, 1, name, shown="kept", cap_share=True)
    cells = CapCells(
        mechanism,
        KeyedNoise(bytes(32), "s", bytes(16)),
        names=NAMES,
    )
    paths = np.array(
        [cells.observe(np.zeros((1, CELLS), np.int64), [bytes([number]) * 32])[0] for number in range(200)]
    )
    for since, last in ((1, 200), (64, 200), (150, 160), (127, 128)):
        older, newest = pair(mechanism, (since, last))
        told = window_between(newest, older).units_sd
        assert told is not None
        really = (paths[last - 1] - paths[since - 1]).std()
        assert told == pytest.approx(really, rel=0.06)
        if since == 150:
            assert np.hypot(mechanism.cells.sd(since), mechanism.cells.sd(last)) > 1.2 * told


def test_a_share_is_of_the_events_in_the_window() -> None:
    mechanism, _ = calibrate(EPSILON, 1e-6, HORIZON, 1, "blt", shown="kept", cap_share=True)
    older, newest = pair(mechanism, (1_000, 4_000))
    window = window_between(newest, older)
    assert (window.units, window.over_cap) == (30_000, 3_000)
    [label] = window.labels
    share, over = window.share(label), window.over_cap_share
    assert share is not None
    assert over is not None
    assert share.low < 0.3 < share.high < share.low + 0.05
    assert over.low < 0.1 < over.high < over.low + 0.05
    with pytest.raises(KeyError):
        window.share("nothing")


def test_nobody_can_tell_it_of_users_of_new_labels_and_of_releases_that_do_not_say() -> None:
    """Users are counted when they come first: of those who come again in a window the cells say nothing."""
    mechanism, _ = calibrate(EPSILON, 1e-6, HORIZON, 1, "blt", shown="kept", cap_share=True)
    for changed in (
        {"unit": "user"},
        {"unit": "user-day"},
        {"units": None, "over_cap": None, "units_sd": None},
    ):
        older, newest = pair(mechanism, (1_000, 4_000), **changed)
        window = window_between(newest, older)
        assert (window.units, window.units_sd, window.over_cap_share) == (None, None, None)
        assert window.share(window.labels[0]) is None
    older, newest = pair(mechanism, (1_000, 4_000))
    late = window_between(newest, replace(older, labels=[], counts=[]))
    assert late.units == 30_000
    assert late.share(newest.labels[0]) is None
    whole = window_between(newest, None)
    assert (whole.units, whole.units_sd) == (newest.units, newest.units_sd)
