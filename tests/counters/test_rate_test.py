"""The boundary of the rate test (benchmarks/rate_test.py): its chance of a false pass, by quadrature."""

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.stats import norm

from benchmarks.public_logs import Hits
from benchmarks.rate_test import (
    RateTest,
    boundary,
    coefficients,
    each_round_by_itself,
    labels_shown,
    most_of_one_event,
)
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.calibration import calibrate

HORIZON = 40
CHANCES = [0.2, 0.05, 1e-3]


def mechanism(draw_sd: float = 1.0) -> BltMechanism:
    """A short horizon, with noise so small that a single event matters."""
    found, _ = calibrate(1.0, 1e-6, HORIZON, 1, "blt", shown="kept")
    assert isinstance(found, BltMechanism)
    return replace(found, draw_sd=draw_sd)


def ever_reaches(variances: NDArray[np.float64], least: NDArray[np.float64]) -> float:
    """The chance that the sums of independent normals, whose variances after each step these are, reach `least` ever.

    The density of those that have not is carried on a grid from step to step.
    """
    top = float(np.max(least[np.isfinite(least)]))
    grid = np.linspace(-9 * np.sqrt(variances[-1]), top, 4001)
    width = grid[1] - grid[0]
    lags = width * np.arange(1 - len(grid), len(grid))
    below = np.clip((least[:, None] - grid) / width + 0.5, 0, 1)  # how much of each point's cell is below
    density = norm.pdf(grid, scale=np.sqrt(variances[0])) * below[0]
    for step, kept in zip(np.diff(variances), below[1:], strict=True):
        density = width * fftconvolve(density, norm.pdf(lags, scale=np.sqrt(step)), "same") * kept
    return 1 - width * float(density.sum())


def of_one_event(enters: int) -> NDArray[np.float64]:
    """What an event of round `enters` adds to M by each round."""
    c = coefficients(mechanism().gaps, HORIZON)
    weights = np.cumsum(c)
    return np.cumsum(
        np.concatenate([np.zeros(enters - 1), weights[enters - 1 :] * c[: HORIZON - enters + 1]])
    )


def test_the_quadrature_knows_a_case_in_closed_form() -> None:
    """Of one step, and of two with the same boundary, which are two halves of a plane."""
    assert ever_reaches(np.array([4.0]), np.array([3.0])) == pytest.approx(norm.sf(1.5), abs=1e-4)
    joint = (
        1 - 0.25 - np.arcsin(np.sqrt(0.5)) / (2 * np.pi)
    )  # of two sums with correlation sqrt(1/2), below 0
    assert ever_reaches(np.array([1.0, 2.0]), np.zeros(2)) == pytest.approx(joint, abs=1e-3)


@pytest.mark.parametrize("chance", CHANCES)
def test_noise_alone_reaches_the_boundary_no_more_often_than_it_may(chance: float) -> None:
    test = RateTest.of(mechanism(), chance)
    bound = boundary(test.variances, chance)
    assert chance / 10 < ever_reaches(test.variances, bound) <= chance
    assert (
        ever_reaches(test.variances, each_round_by_itself(test, chance) - test.least + bound) > 1.5 * chance
    )


@pytest.mark.parametrize("chance", CHANCES)
def test_a_label_of_one_event_passes_no_more_often_than_it_may(chance: float) -> None:
    """Whichever round it enters in; without what one event adds it would."""
    test = RateTest.of(mechanism(), chance)
    most = most_of_one_event(test.weights, coefficients(mechanism().gaps, HORIZON))
    forgotten = []
    for enters in range(1, HORIZON + 1):
        untested = np.arange(1, HORIZON + 1) < enters
        least = np.where(untested, np.inf, test.least - of_one_event(enters))
        assert ever_reaches(test.variances, least) <= chance
        forgotten.append(ever_reaches(test.variances, least - most))
    assert max(forgotten) > 1.5 * chance


def test_no_event_adds_more_than_is_allowed_for() -> None:
    most = most_of_one_event(
        np.cumsum(coefficients(mechanism().gaps, HORIZON)), coefficients(mechanism().gaps, HORIZON)
    )
    added = np.max([of_one_event(enters) for enters in range(1, HORIZON + 1)], axis=0)
    assert np.all(added <= most)
    assert most == pytest.approx(added, rel=0.05)


def test_a_steady_label_is_shown_that_counts_alone_do_not_show() -> None:
    """And one that nobody could tell from noise is not."""
    found, _ = calibrate(1.0, 1e-6, 1023, 1, "blt", shown="kept")
    assert isinstance(found, BltMechanism)
    events = round(0.7 * found.tau(1023))
    steady = np.linspace(1, 1023, events).astype(np.int64)
    log = Hits([steady, np.array([500])] * 60, 1023, 1023, 1)
    alone, both = labels_shown(log, found, 1)
    assert 2 * alone < both <= 60
