"""Thresholds against the vectors and against an integer computation that shares nothing with the code."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from stream_dp.privacy.thresholds import sum_tail, sum_tail_bounds, sum_tail_threshold
from tests.shared import vectors

SCALE = 2**260  # fixed point of the brute force: absolute error below 1e-70, tails go down to 1e-30
CASES = [
    ("0.05", 1),
    ("0.05", 24),
    ("0.3", 2),
    ("0.5", 7),
    ("1.3", 24),
    ("3.4", 5),
    ("3.9", 7),
    ("10.5", 24),
    ("400", 3),
]


@lru_cache(maxsize=32)
def brute_force_tails(sigma_squared: str, terms: int) -> dict[int, Fraction]:
    """P(S >= x) for every x > 0 where it exceeds 1e-40, in integer arithmetic on a 90-digit pmf."""
    bound = math.ceil(math.sqrt(2 * float(sigma_squared) * 170)) + 1
    with localcontext() as context:
        context.prec = 90
        masses = [(-Decimal(k * k) / (2 * Decimal(sigma_squared))).exp() for k in range(-bound, bound + 1)]
        normaliser = sum(masses)
        pmf = np.array([int(mass / normaliser * SCALE) for mass in masses], dtype=object)
    total = np.array([SCALE], dtype=object)
    # Mass beyond 16 standard deviations is below 1e-54.
    keep = bound + math.ceil(16 * math.sqrt(terms * float(sigma_squared)))
    for _ in range(terms):
        total = np.convolve(total, pmf) // SCALE
        excess = len(total) // 2 - keep
        if excess > 0:
            total = total[excess:-excess]
    centre = len(total) // 2
    tails, running = {}, 0
    for x in range(len(total) - 1 - centre, 0, -1):
        running += total[centre + x]
        if running > SCALE // 10**40:
            tails[x] = Fraction(int(running), SCALE)
    return tails


def bounds_are_true_and_tight(bounds: Callable[[float, int, int], tuple[float, float]]) -> bool:
    for sigma_squared, terms in CASES:
        for x, exact in brute_force_tails(sigma_squared, terms).items():
            lower, upper = map(Fraction, bounds(float(sigma_squared), terms, x))
            if not lower <= exact <= upper or upper - lower > exact / 10**9:
                return False
    return True


def continuous_tail(sigma_squared: float, terms: int, x: int) -> tuple[float, float]:
    tail = float(norm.sf(x, scale=math.sqrt(terms * sigma_squared)))
    return tail, tail


def continuity_corrected_tail(sigma_squared: float, terms: int, x: int) -> tuple[float, float]:
    tail = float(norm.sf(x - 0.5, scale=math.sqrt(terms * sigma_squared)))
    return tail, tail


def test_tail_bounds_hold_the_exact_tail_to_nine_digits() -> None:
    assert all(len(brute_force_tails(*case)) >= 2 for case in CASES)
    assert bounds_are_true_and_tight(sum_tail_bounds)


@pytest.mark.parametrize("factor", [1 - 1e-8, 1 + 1e-8])
def test_a_tail_wrong_in_the_eighth_digit_is_noticed(factor: float) -> None:
    def wrong(sigma_squared: float, terms: int, x: int) -> tuple[float, float]:
        lower, upper = sum_tail_bounds(sigma_squared, terms, x)
        return lower * factor, upper * factor

    assert not bounds_are_true_and_tight(wrong)


@pytest.mark.parametrize("wrong", [continuous_tail, continuity_corrected_tail])
def test_a_continuous_tail_is_noticed(wrong: Callable[[float, int, int], tuple[float, float]]) -> None:
    assert not bounds_are_true_and_tight(wrong)


@pytest.mark.parametrize("case", vectors()["binary"])
def test_thresholds_equal_the_vectors(case: dict[str, Any]) -> None:
    tail = float(case["threshold_delta"]) / (case["items_per_event"] * case["horizon"])
    actual = {
        round_: sum_tail_threshold(float(case["sigma_squared"]), int(round_).bit_count(), tail)
        for round_ in case["tau"]
    }
    assert actual == case["tau"]


@pytest.mark.parametrize(("sigma_squared", "terms"), CASES)
def test_thresholds_are_exact_on_both_sides_of_a_tie(sigma_squared: str, terms: int) -> None:
    for x, exact in brute_force_tails(sigma_squared, terms).items():
        if exact >= Fraction(1, 100) or exact < Fraction(1, 10**31):
            continue
        just_above, just_below = (
            float(exact * (1 + Fraction(1, 10**9))),
            float(exact * (1 - Fraction(1, 10**9))),
        )
        assert sum_tail_threshold(float(sigma_squared), terms, just_above) == x + 1
        assert sum_tail_threshold(float(sigma_squared), terms, just_below) == x + 2
        at_the_tie = sum_tail_threshold(float(sigma_squared), terms, float(exact))
        assert at_the_tie in (x + 1, x + 2)
        assert at_the_tie == x + 2 or Fraction(float(exact)) >= exact


def test_the_continuous_quantile_lets_labels_escape_where_ours_does_not() -> None:
    """The chance that a true count of 1 reaches the threshold, against the tail allowed."""
    escapes = {"continuous": 0, "exact": 0}
    for sigma_squared, terms in CASES:
        tails = brute_force_tails(sigma_squared, terms)
        for exponent in range(2, 31):
            allowed = 10.0**-exponent
            sd = math.sqrt(terms * float(sigma_squared))
            thresholds = {
                "continuous": math.ceil(1 + sd * float(norm.isf(allowed))),
                "exact": sum_tail_threshold(float(sigma_squared), terms, allowed),
            }
            for name, threshold in thresholds.items():
                escapes[name] += tails.get(threshold - 1, Fraction(0)) > Fraction(allowed)
    assert escapes["exact"] == 0
    assert escapes["continuous"] > 20


@pytest.mark.parametrize(("sigma_squared", "terms"), [(1.0001e6, 1), (1e5, 64), (1e8, 64)])
def test_wide_noise_is_added_up_right(sigma_squared: float, terms: int) -> None:
    """For wide noise the sum is one discrete Gaussian of the summed variance; its tail is added term by term."""
    variance = sigma_squared * terms
    sd = math.sqrt(variance)
    for z in (0.01, 1.0, 3.3, 3.4, 8.0, 11.5):
        x = math.ceil(z * sd)
        points = np.arange(x, x + math.ceil(12 * sd), dtype=np.float64)
        tail = np.sum(np.exp(-points * points / (2 * variance))) / math.sqrt(2 * math.pi * variance)
        lower, upper = sum_tail_bounds(sigma_squared, terms, x)
        assert math.isclose(upper, tail, rel_tol=5e-12)
        assert lower < upper <= lower * (1 + 1e-11)
        if z >= 8:
            assert not math.isclose(norm.sf((x - 0.5) / sd), tail, rel_tol=1e-11)


@pytest.mark.parametrize(("sigma_squared", "terms", "x"), [(1.0, 300, 60), (1e-4, 64, 1), (0.05, 300, 40)])
def test_out_of_reach_the_bound_is_chernoffs(sigma_squared: float, terms: int, x: int) -> None:
    lower, upper = sum_tail_bounds(sigma_squared, terms, x)
    assert lower == 0
    assert math.isclose(upper, max(1e-270, math.exp(-x * x / (2 * terms * sigma_squared))), rel_tol=1e-9)


@given(
    log_sigma_squared=st.floats(math.log(0.05), math.log(1e8)),
    terms=st.integers(1, 64),
    exponent=st.floats(2, 30),
)
@settings(max_examples=150)
def test_a_threshold_is_the_first_that_meets_its_tail(
    log_sigma_squared: float, terms: int, exponent: float
) -> None:
    sigma_squared, tail = math.exp(log_sigma_squared), 10.0**-exponent
    threshold = sum_tail_threshold(sigma_squared, terms, tail)
    assert sum_tail(sigma_squared, terms, threshold - 1) <= tail
    assert sum_tail_bounds(sigma_squared, terms, threshold - 2)[0] * (1 + 1e-9) > tail
    assert threshold <= sum_tail_threshold(sigma_squared, terms, tail / 2)
    assert threshold <= sum_tail_threshold(sigma_squared, terms + 1, tail) + 1


@given(
    log_sigma_squared=st.floats(math.log(0.05), math.log(1e8)), terms=st.integers(1, 64), z=st.floats(-9, 9)
)
@settings(max_examples=150)
def test_the_two_tails_add_up_to_one(log_sigma_squared: float, terms: int, z: float) -> None:
    sigma_squared = math.exp(log_sigma_squared)
    x = round(z * math.sqrt(terms * sigma_squared))
    lower, upper = sum_tail_bounds(sigma_squared, terms, x)
    opposite_lower, opposite_upper = sum_tail_bounds(sigma_squared, terms, 1 - x)
    assert lower + opposite_lower <= 1 <= upper + opposite_upper
    assert sum_tail_bounds(sigma_squared, terms, x + 1)[0] <= lower
    if x <= 0:
        assert lower > 0.5


@pytest.mark.parametrize("tail", [0.0, 0.5, 1e-300, math.nan])
def test_a_tail_out_of_range_is_refused(tail: float) -> None:
    with pytest.raises(ValueError, match="tail probability must lie between"):
        sum_tail_threshold(4.0, 3, tail)


@pytest.mark.parametrize("sigma_squared", [0.0, -1.0, math.inf, math.nan])
def test_a_variance_that_is_none_is_refused(sigma_squared: float) -> None:
    with pytest.raises(ValueError, match="sigma_squared must be a positive number"):
        sum_tail(sigma_squared, 3, 5)


def test_no_terms_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        sum_tail(4.0, 0, 5)
