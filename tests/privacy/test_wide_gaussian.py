"""Is a short combination of draws as good as one draw of the large variance?"""

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.privacy.discrete_gaussian import pmf
from stream_dp.privacy.wide_gaussian import LEAST_SIGMA_SQUARED, STEP_DISTANCE, square_factors

NODES = [(1 << level) * ((2 << level) - 1) for level in range(25)]
VARIANCES = [*np.arange(12, 30, 0.61).tolist(), 40.0, 60.0, 100.0, 333.0, 1e3, 1e4, 1e6, 1e10]


def two_sided(half: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([half[:0:-1], half])


def combined(factors: tuple[int, ...], sigma_squared: float) -> NDArray[np.float64]:
    """The law of the sum of factor times draw, symmetric about its middle."""
    one = two_sided(pmf(sigma_squared))
    law = np.ones(1)
    for factor in factors:
        stretched = np.zeros((len(one) - 1) * factor + 1)
        stretched[::factor] = one
        law = np.convolve(law, stretched)
    return law


def distance(law: NDArray[np.float64], sigma_squared: float) -> float:
    """Total variation distance from the discrete Gaussian."""
    expected = two_sided(pmf(sigma_squared))
    padding = (len(law) - len(expected)) // 2
    if padding > 0:
        expected = np.pad(expected, padding)
    else:
        law = np.pad(law, -padding)
    return float(np.abs(law - expected).sum()) / 2


@pytest.mark.parametrize("sigma_squared", [12.0, 17.3, 40.0, 300.0])
@pytest.mark.parametrize("total", [1, 2, 3, 6, 28, 120])
def test_the_combination_has_the_law_of_one_wide_draw(total: int, sigma_squared: float) -> None:
    law = combined(square_factors(total, sigma_squared), sigma_squared)
    assert distance(law, total * sigma_squared) < 1e-13


@pytest.mark.parametrize(("factors", "total"), [((5, 1), 26), ((2, 2, 2), 12), ((4, 2, 1), 22)])
def test_factors_that_are_too_far_apart_or_add_up_to_something_else_do_not(
    factors: tuple[int, ...], total: int
) -> None:
    assert distance(combined(factors, 12.0), total * 12.0) > 1e-8


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_scaled_estimate_of_a_node_has_the_law_of_one_wide_draw(level: int) -> None:
    """2^k Z + ... over all nodes below: what a label that came in time holds; it needs a variance of 12, not of 2."""
    factors = tuple(1 << k for k in range(level + 1) for _ in range(1 << (level - k)))
    assert sum(factor**2 for factor in factors) == NODES[level]
    assert distance(combined(factors, LEAST_SIGMA_SQUARED), NODES[level] * LEAST_SIGMA_SQUARED) < 1e-13
    assert distance(combined(factors, 1.0), NODES[level]) > 1e-6


@pytest.mark.parametrize("sigma_squared", VARIANCES)
def test_every_step_is_smooth_and_there_are_few(sigma_squared: float) -> None:
    for level, total in enumerate(NODES):
        factors = square_factors(total, sigma_squared)
        rest = total
        for factor in factors[:-1]:
            rest -= factor**2
            assert factor > 0
            assert sigma_squared * rest / (rest + factor**2) >= 4
        assert rest == factors[-1] == 1
        assert len(factors) <= 2 * level + 8


def test_the_distance_of_a_step_is_the_bound_of_the_lemma() -> None:
    smoothness = np.exp(-8 * np.pi**2)
    assert 2 * smoothness / (1 - 2 * smoothness) * (1 + 1e-30) < STEP_DISTANCE < 2.2 * smoothness


def test_a_variance_too_small_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 12, not 11\.9"):
        square_factors(6, 11.9)
