"""Are the poles the best ones, and do the closed forms say what the matrices themselves say?"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.counters.blt_parameters import (
    LARGEST_DEGREE,
    Gaps,
    best_gaps,
    largest_sd,
    optimal_gaps,
    output_weights,
    square_root_sd,
    squared_sensitivity,
)
from stream_dp.counters.blt_variances import growth_variances, row_variances
from tests.shared import vectors

CONSTANTS = vectors("blt_constants")
HORIZONS = [1, 2, 3, 4, 7, 10, 33, 100, 1000, 1023, 4095, 5000, 65_535, 100_000, 300_000, 1 << 20]


def given(case: dict[str, Any]) -> Gaps:
    return Gaps(tuple(case["one_minus_theta"]), tuple(case["one_minus_thetahat"]))


def horizon_and_degree(name: str) -> tuple[int, int]:
    """Of "L=2^10,d=3"."""
    power, degree = name.removeprefix("L=2^").split(",d=")
    return 1 << int(power), int(degree)


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_given_poles_have_the_given_sensitivity_variance_and_weights(name: str) -> None:
    case, (horizon, degree) = CONSTANTS[name], horizon_and_degree(name)
    gaps = given(case)
    assert degree == len(gaps.theta)
    assert case["sens_sq"] == pytest.approx(squared_sensitivity(gaps, horizon), rel=1e-9)
    assert case["row_norm_sq_max"] == pytest.approx(row_variances(gaps, np.array([horizon]))[0], rel=1e-9)
    assert case["s"] == pytest.approx([float(weight) for weight in output_weights(gaps)], rel=1e-9)
    assert case["max_sd_rho1"] == pytest.approx(largest_sd(gaps, horizon), rel=1e-9)


@pytest.mark.parametrize("name", CONSTANTS)
def test_our_poles_are_as_good_as_the_given_ones_of_equal_degree(name: str) -> None:
    horizon, degree = horizon_and_degree(name)
    found = largest_sd(optimal_gaps(horizon, degree), horizon)
    assert found == pytest.approx(CONSTANTS[name]["max_sd_rho1"], rel=1e-8)


def square_root_coefficients(horizon: int) -> NDArray[np.float64]:
    """Of 1 / sqrt(1 - x), which is its own factor of 1 / (1 - x)."""
    k = np.arange(1, horizon)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


@pytest.mark.parametrize("horizon", HORIZONS)
def test_the_largest_error_is_within_half_a_percent_of_the_square_root_matrices(horizon: int) -> None:
    squares = float(np.sum(square_root_coefficients(horizon) ** 2))
    reference = squares / np.sqrt(2)
    assert reference == pytest.approx(square_root_sd(horizon), rel=1e-8)
    assert largest_sd(best_gaps(horizon), horizon) <= 1.005 * reference


def test_beyond_that_the_largest_degree_is_taken_and_is_as_good() -> None:
    for horizon in (3_000_000, 1 << 24):
        gaps = best_gaps(horizon)
        assert len(gaps.theta) == LARGEST_DEGREE
        assert largest_sd(gaps, horizon) <= 1.005 * square_root_sd(horizon)


def test_the_least_degree_is_taken_that_is_good_enough() -> None:
    for horizon in (10, 1000, 65_535):
        degree = len(best_gaps(horizon).theta)
        worse = optimal_gaps(horizon, degree - 1)
        assert largest_sd(worse, horizon) > 1.005 * square_root_sd(horizon)


@pytest.mark.parametrize("horizon", HORIZONS)
def test_poles_interlace_and_are_doubles(horizon: int) -> None:
    gaps = best_gaps(horizon)
    ordered = [gap for pair in zip(*gaps, strict=True) for gap in pair]
    assert ordered == sorted(set(ordered))
    assert all(0 < gap < 1 and Fraction(1 - gap) == 1 - Fraction(gap) for gap in ordered)


def columns(gaps: Gaps, horizon: int) -> tuple[list[Fraction], list[Fraction]]:
    """The coefficients of c and of b = 1 / ((1 - x) c), by multiplying and dividing power series exactly."""

    def times_one_minus(series: list[Fraction], pole: Fraction) -> list[Fraction]:
        return [x - pole * before for x, before in zip(series, [Fraction(0), *series], strict=False)]

    def over_one_minus(series: list[Fraction], pole: Fraction) -> list[Fraction]:
        divided, before = [], Fraction(0)
        for x in series:
            before = x + pole * before
            divided.append(before)
        return divided

    c = b = [Fraction(1)] + [Fraction(0)] * (horizon - 1)
    for theta, hat in zip(gaps.theta, gaps.hat, strict=True):
        c = over_one_minus(times_one_minus(c, 1 - Fraction(hat)), 1 - Fraction(theta))
        b = over_one_minus(times_one_minus(b, 1 - Fraction(theta)), 1 - Fraction(hat))
    return c, over_one_minus(b, Fraction(1))


@pytest.mark.parametrize("horizon", [1, 2, 3, 10, 33, 60])
def test_closed_forms_equal_the_exact_matrices(horizon: int) -> None:
    gaps = best_gaps(horizon)
    c, b = columns(gaps, horizon)
    running_sums = [sum(c[j] * b[k - j] for j in range(k + 1)) for k in range(horizon)]
    assert running_sums == [1] * horizon  # B C is the matrix of running sums
    sensitivity = sum(x * x for x in c)
    assert (
        sensitivity <= Fraction(squared_sensitivity(gaps, horizon)) <= sensitivity * (1 + Fraction(1, 10**11))
    )
    weights, poles = output_weights(gaps), [1 - Fraction(gap) for gap in gaps.poles]
    assert b == [sum(s * p**k for s, p in zip(weights, poles, strict=True)) for k in range(horizon)]
    rounds = np.arange(1, horizon + 1)
    variances = np.cumsum([float(x * x) for x in b])
    assert variances == pytest.approx(row_variances(gaps, rounds), rel=1e-13)
    for before in (0, 1, horizon // 2):
        for skipped in (1, 5):
            old = [float(b[k]) for k in range(before)]
            new = [
                float(sum(s * p ** (k + skipped) for s, p in zip(weights, poles, strict=True)))
                for k in range(before)
            ]
            fresh = [
                float(sum(s * p**k for s, p in zip(weights, poles, strict=True))) for k in range(skipped)
            ]
            expected = sum((x - y) ** 2 for x, y in zip(new, old, strict=True)) + sum(x * x for x in fresh)
            assert expected == pytest.approx(
                growth_variances(gaps, before, np.array([skipped]))[0], rel=1e-12
            )


def test_variances_of_late_rounds_equal_the_sums_themselves() -> None:
    horizon = 200_000
    gaps = best_gaps(horizon)
    weights = np.array([float(weight) for weight in output_weights(gaps)])
    logs = np.log1p(-np.array(gaps.poles))
    b = np.exp(np.arange(horizon)[:, None] * logs) @ weights
    rounds = np.array([1, 511, 512, 513, 99_999, horizon])
    assert np.cumsum(b**2)[rounds - 1] == pytest.approx(row_variances(gaps, rounds), rel=1e-10)
    assert np.all(np.diff(row_variances(gaps, np.arange(1, 3000))) > 0)


@pytest.mark.parametrize("start", [0, 1, 511, 512, 1_000_000, 2**24 - 700])
@pytest.mark.parametrize("size", [1, 2, 511, 512, 513])
def test_rounds_have_the_same_variance_bit_for_bit_however_many_are_asked_for(start: int, size: int) -> None:
    gaps = best_gaps(2**24)
    asked = np.arange(start, start + size)[::-1]
    together = row_variances(gaps, np.arange(start, start + 5_000))[:size][::-1]
    assert row_variances(gaps, asked).tobytes() == together.tobytes()
    assert row_variances(gaps, asked[:0]).shape == (0,)
