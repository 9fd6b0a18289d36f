"""Discrete Laplace tails against sums over an explicit pmf."""

import numpy as np
import pytest

from stream_dp.batch import laplace_tails

SCALES = [0.2, 1.0, 3.7, 25.0]


def explicit(scale: float) -> np.ndarray:
    reach = int(60 * scale) + 60
    masses = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return masses / masses.sum()


@pytest.mark.parametrize("scale", SCALES)
def test_tails_are_sums_of_the_pmf(scale: float) -> None:
    masses = explicit(scale)
    centre = len(masses) // 2
    for x in (-3, 0, 1, 2, 7, int(10 * scale)):
        assert masses[centre + x :].sum() == pytest.approx(laplace_tails.tail(scale, x), rel=1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_difference_tails_are_sums_of_the_convolution(scale: float) -> None:
    masses = explicit(scale)
    both = np.convolve(masses, masses)
    centre = len(both) // 2
    for x in (0, 1, 2, 7, int(10 * scale)):
        assert both[centre + x :].sum() == pytest.approx(laplace_tails.difference_tail(scale, x), rel=1e-10)


@pytest.mark.parametrize("scale", SCALES)
def test_standard_deviation_is_that_of_the_pmf(scale: float) -> None:
    masses = explicit(scale)
    steps = np.arange(len(masses)) - len(masses) // 2
    expected = np.sqrt((masses * steps**2).sum())
    assert expected == pytest.approx(laplace_tails.standard_deviation(scale), rel=1e-12)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("chance", [0.05, 1e-6, 1e-12])
def test_points_are_the_least_that_keep_the_chance(scale: float, chance: float) -> None:
    point = laplace_tails.tail_point(scale, chance)
    assert laplace_tails.tail(scale, point) <= chance < laplace_tails.tail(scale, point - 1)
    point = laplace_tails.difference_tail_point(scale, chance)
    assert laplace_tails.difference_tail(scale, point) <= chance
    assert laplace_tails.difference_tail(scale, point - 1) > chance


def test_chances_to_reach_and_to_miss_are_complements_with_full_precision() -> None:
    weights = np.array([1, 50, 99, 100, 101, 300])
    reached, missed = laplace_tails.chance_to_reach(weights, 100, 2.0)
    expected = [laplace_tails.tail(2.0, 100 - int(weight)) for weight in weights]
    assert reached == pytest.approx(expected, rel=1e-12)
    assert missed == pytest.approx(1 - np.array(expected), abs=1e-15)
    assert missed[-1] == pytest.approx(laplace_tails.tail(2.0, 201), rel=1e-12)
