"""Conversions against the vectors, against sums over the whole product distribution, and against dp-accounting."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from stream_dp.privacy.accounting import (
    bun_steinke_epsilon,
    discrete_gaussian_delta,
    discrete_gaussian_epsilon,
    discrete_gaussian_sigma_squared,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rho,
    zcdp_epsilon,
    zcdp_rho,
)
from tests.shared import vectors

rhos = st.floats(math.log(1e-6), math.log(50)).map(math.exp)
epsilons = st.floats(math.log(1e-3), math.log(60)).map(math.exp)
deltas = st.floats(-40, -1).map(lambda exponent: 10.0**exponent)
shift_counts = st.integers(1, 64 * 24)

SMALL_CASES = [(s2, shifts) for s2 in (0.5, 1.0, 2.3, 4.0) for shifts in (1, 2, 3)]


def zcdp_delta(rho: float, epsilon: float) -> float:
    """min over a > 1 of exp((a-1)(a rho - epsilon)) (1 - 1/a)^a / (a-1), at the root of its derivative in ln(a-1)."""

    def slope(log_b: float) -> float:
        return (1 + 2 * math.exp(log_b)) * rho - epsilon - math.log1p(math.exp(-log_b))

    b = math.exp(brentq(slope, -200.0, 300.0, xtol=1e-14))
    return min(1.0, math.exp(b * ((1 + b) * rho - epsilon - math.log1p(1 / b)) - math.log1p(b)))


def brute_force_delta(sigma_squared: float, shifts: int, epsilon: float) -> float:
    """Hockey-stick divergence summed over every point of the product of `shifts` noisy values."""
    reach = math.ceil(9 * math.sqrt(sigma_squared)) + 1
    points = np.arange(-reach, reach + 2, dtype=np.float64)
    still, moved = (np.exp(-((points - shift) ** 2) / (2 * sigma_squared)) for shift in (0, 1))
    still, moved = still / still.sum(), moved / moved.sum()
    first, second = np.ones(1), np.ones(1)
    for _ in range(shifts):
        first, second = np.outer(first, still).ravel(), np.outer(second, moved).ravel()
    return float(np.sum(np.maximum(0.0, first - math.exp(epsilon) * second)))


def holds_on_small_cases(epsilon_of: Callable[[float, int, float], float]) -> bool:
    """Whether the claimed epsilon is true, by brute force, wherever the true delta can be summed."""
    return all(
        brute_force_delta(s2, shifts, epsilon_of(s2, shifts, delta)) <= delta * (1 + 1e-9)
        for s2, shifts in SMALL_CASES
        for delta in (1e-1, 1e-3, 1e-6, 1e-8)
    )


@pytest.mark.parametrize("case", vectors()["zcdp_to_dp"])
def test_conversions_equal_the_vectors(case: dict[str, Any]) -> None:
    rho, delta = float(case["rho"]), float(case["delta"])
    assert math.isclose(bun_steinke_epsilon(rho, delta), float(case["bun_steinke"]), rel_tol=1e-9)
    assert math.isclose(zcdp_epsilon(rho, delta), float(case["cks20"]), rel_tol=1e-9)
    assert math.isclose(gaussian_epsilon(rho, delta), float(case["exact_gaussian"]), rel_tol=1e-9)


@pytest.mark.parametrize("case", vectors()["zcdp_to_dp"])
def test_conversions_round_epsilon_up_and_rho_down(case: dict[str, Any]) -> None:
    rho, delta = float(case["rho"]), float(case["delta"])
    for convert, name in ((zcdp_epsilon, "cks20"), (gaussian_epsilon, "exact_gaussian")):
        assert Decimal(convert(rho, delta)) >= Decimal(case[name])
    assert zcdp_rho(float(case["cks20"]), delta) < rho


@given(rho=rhos, delta=deltas)
@settings(max_examples=150)
def test_zcdp_conversions_invert_each_other(rho: float, delta: float) -> None:
    epsilon = zcdp_epsilon(rho, delta)
    assert zcdp_delta(rho, epsilon) <= delta * (1 + 1e-11)
    assert zcdp_rho(epsilon, delta) >= rho * (1 - 1e-11)
    if epsilon > 1e-6:
        assert math.isclose(zcdp_delta(rho, epsilon), delta, rel_tol=1e-8)
        assert math.isclose(zcdp_rho(epsilon, delta), rho, rel_tol=1e-8)


@given(epsilon=st.one_of(st.just(0.0), epsilons), delta=deltas)
@settings(max_examples=150)
def test_rho_is_the_largest_that_meets_epsilon_and_delta(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_delta(rho, epsilon) <= delta * (1 + 1e-11) < zcdp_delta(rho * (1 + 1e-6), epsilon)


@given(rho=rhos, epsilon=epsilons, delta=deltas)
@settings(max_examples=150)
def test_conversions_keep_their_order_and_their_direction(rho: float, epsilon: float, delta: float) -> None:
    assert gaussian_delta(rho, epsilon) <= zcdp_delta(rho, epsilon) * (1 + 1e-9)
    assert gaussian_epsilon(rho, delta) <= zcdp_epsilon(rho, delta) * (1 + 1e-9) + 1e-12
    assert zcdp_epsilon(rho, delta) <= bun_steinke_epsilon(rho, delta)
    for of_rho in (zcdp_epsilon, gaussian_epsilon, bun_steinke_epsilon):
        assert of_rho(rho, delta) <= of_rho(rho * 1.01, delta) <= of_rho(rho * 1.01, delta / 2)
    for of_epsilon in (zcdp_delta, gaussian_delta):
        assert of_epsilon(rho, epsilon * 1.01) <= of_epsilon(rho, epsilon) <= of_epsilon(rho * 1.01, epsilon)


@given(rho=rhos, delta=deltas)
@settings(max_examples=100)
def test_gaussian_epsilon_inverts_gaussian_delta(rho: float, delta: float) -> None:
    epsilon = gaussian_epsilon(rho, delta)
    assert gaussian_delta(rho, epsilon) <= delta * (1 + 1e-9)
    if epsilon > 1e-6:
        assert math.isclose(gaussian_delta(rho, epsilon), delta, rel_tol=1e-6)


@given(epsilon=epsilons, delta=deltas)
@settings(max_examples=100)
def test_gaussian_rho_is_the_largest_that_meets_epsilon_and_delta(epsilon: float, delta: float) -> None:
    rho = gaussian_rho(epsilon, delta)
    assert gaussian_delta(rho, epsilon) <= delta < gaussian_delta(rho * (1 + 1e-6), epsilon)
    assert rho >= zcdp_rho(epsilon, delta) * (1 - 1e-9)


def test_zero_rho_costs_nothing() -> None:
    assert (zcdp_epsilon(0.0, 1e-6), gaussian_delta(0.0, 0.0)) == (0.0, 0.0)


@pytest.mark.parametrize(("sigma_squared", "shifts"), SMALL_CASES)
def test_the_discrete_delta_is_the_summed_one(sigma_squared: float, shifts: int) -> None:
    for epsilon in (0.0, 0.25, 1 / sigma_squared, 1.0, 2.0, 4.5, 7.0):
        exact = brute_force_delta(sigma_squared, shifts, epsilon)
        ours = discrete_gaussian_delta(sigma_squared, shifts, epsilon)
        assert exact - 1e-14 <= ours <= exact * (1 + 1e-9) + 1e-13


def test_the_discrete_epsilon_holds_by_brute_force() -> None:
    assert holds_on_small_cases(
        lambda s2, shifts, delta: discrete_gaussian_epsilon(s2, shifts, delta).epsilon
    )


@pytest.mark.parametrize(
    "broken",
    [
        lambda s2, shifts, delta: zcdp_epsilon(shifts / (4 * s2), delta),
        lambda s2, shifts, delta: discrete_gaussian_epsilon(2 * s2, shifts, delta).epsilon,
        lambda s2, shifts, delta: discrete_gaussian_epsilon(s2, shifts, delta).epsilon * (1 - 1e-6),
        lambda s2, shifts, delta: gaussian_epsilon(shifts / (2 * s2), delta),
        lambda s2, shifts, delta: (lambda rho: rho + math.sqrt(2 * rho * math.log(1 / delta)))(
            shifts / (2 * s2)
        ),
    ],
    ids=["half-rho", "half-variance", "one-millionth-short", "continuous", "paper-002"],
)
def test_a_broken_conversion_fails_by_brute_force(broken: Callable[[float, int, float], float]) -> None:
    assert not holds_on_small_cases(broken)


@pytest.mark.parametrize(
    ("sigma_squared", "shifts", "delta", "interval"),
    [(2.0, 1, 1e-6, 1e-4), (2.0, 3, 1e-6, 1e-4), (190.56, 10, 5e-7, 1e-4), (29268.0, 1536, 5e-7, 1e-5)],
)
def test_epsilon_lies_between_dp_accountings_two_estimates(
    sigma_squared: float, shifts: int, delta: float, interval: float
) -> None:
    def estimate(pessimistic: bool) -> float:
        single = privacy_loss_distribution.from_discrete_gaussian_mechanism(
            math.sqrt(sigma_squared),
            pessimistic_estimate=pessimistic,
            value_discretization_interval=interval,
            use_connect_dots=pessimistic,
        )
        return single.self_compose(shifts).get_epsilon_for_delta(delta)

    ours = discrete_gaussian_epsilon(sigma_squared, shifts, delta)
    assert ours.method == "exact"
    assert estimate(False) * (1 - 1e-9) <= ours.epsilon <= estimate(True) * (1 + 1e-9)
    assert discrete_gaussian_epsilon(sigma_squared * 1.001, shifts, delta).epsilon < estimate(True) * (
        1 - 1e-4
    )


@given(epsilon=st.floats(0.05, 20), delta=st.floats(-12, -4).map(lambda e: 10.0**e), shifts=shift_counts)
@settings(max_examples=60)
def test_calibrated_noise_meets_its_target_and_no_smaller_number_does(
    epsilon: float, delta: float, shifts: int
) -> None:
    sigma_squared = discrete_gaussian_sigma_squared(epsilon, delta, shifts)
    assert discrete_gaussian_delta(sigma_squared, shifts, epsilon) <= delta
    assert discrete_gaussian_delta(sigma_squared * (1 - 1.1e-4), shifts, epsilon) > delta
    assert float(f"{sigma_squared:.5g}") == sigma_squared
    conversion = discrete_gaussian_epsilon(sigma_squared, shifts, delta)
    assert epsilon * (1 - 1e-3) <= conversion.epsilon <= epsilon * (1 + 1e-9)
    assert math.isclose(conversion.rho, shifts / (2 * sigma_squared), rel_tol=1e-9)
    assert conversion.epsilon <= zcdp_epsilon(conversion.rho, delta)


@given(sigma_squared=st.floats(math.log(100), math.log(1e7)).map(math.exp), shifts=shift_counts, delta=deltas)
@settings(max_examples=60)
def test_wide_noise_costs_what_continuous_noise_costs(
    sigma_squared: float, shifts: int, delta: float
) -> None:
    conversion = discrete_gaussian_epsilon(sigma_squared, shifts, delta)
    continuous = gaussian_epsilon(conversion.rho, delta)
    if continuous > 1e-3:
        assert math.isclose(conversion.epsilon, continuous, rel_tol=0.01)
    assert conversion.epsilon <= zcdp_epsilon(conversion.rho, delta)


@pytest.mark.parametrize(("sigma_squared", "shifts"), [(1.0, 1000), (0.5, 300)])
def test_where_exact_tails_are_out_of_reach_the_zcdp_bound_stands(sigma_squared: float, shifts: int) -> None:
    conversion = discrete_gaussian_epsilon(sigma_squared, shifts, 1e-6)
    assert conversion.method == "zcdp"
    assert conversion.epsilon == zcdp_epsilon(conversion.rho, 1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zcdp_epsilon(-1.0, 1e-6), "rho must be"),
        (lambda: zcdp_epsilon(1.0, 0.0), "delta must lie"),
        (lambda: zcdp_rho(-0.1, 1e-6), "epsilon must be"),
        (lambda: zcdp_rho(math.nan, 1e-6), "epsilon must be"),
        (lambda: discrete_gaussian_epsilon(0.0, 3, 1e-6), "sigma_squared must be"),
        (lambda: discrete_gaussian_sigma_squared(1.0, 1e-6, 0), "at least 1"),
        (lambda: discrete_gaussian_sigma_squared(0.0, 1e-6, 3), "epsilon from 1e-6"),
        (lambda: discrete_gaussian_sigma_squared(1.0, 1.0, 3), "delta must lie"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
