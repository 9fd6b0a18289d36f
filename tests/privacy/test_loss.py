"""What a mechanism costs beside a Gaussian that is still to come: the true divergence at every threshold."""

import math

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from stream_dp.privacy import loss
from stream_dp.privacy.discrete_gaussian import variance
from stream_dp.privacy.loss import Loss, gaussian_before

Reals = NDArray[np.float64]
RESERVES = [0.0, 0.1, 0.5, 1.0, 4.0, 30.0]  # in units of the square of epsilon


def divergence(epsilons: Reals, mu_squared: float) -> Reals:
    """The delta of a Gaussian at every epsilon, of either sign."""
    if mu_squared == 0:
        return np.maximum(0.0, -np.expm1(np.minimum(epsilons, 0.0)))
    mu = math.sqrt(mu_squared)
    return ndtr(mu / 2 - epsilons / mu) - np.exp(epsilons + log_ndtr(-mu / 2 - epsilons / mu))


def excess(losses: Reals, chances: Reals, reserve: float, needed: float) -> float:
    """How far the mechanism with the reserve is above the Gaussian that was needed, at the worst threshold."""
    reach = 6 * math.sqrt(needed) + float(np.abs(losses).max())
    epsilons = np.linspace(-reach, reach, 4001)
    beside = sum(
        chance * divergence(epsilons - moved, reserve) for moved, chance in zip(losses, chances, strict=True)
    )
    return float((beside - divergence(epsilons, needed)).max())


def coin(epsilon: float) -> tuple[Reals, Reals]:
    heads = 1 / (1 + math.exp(-epsilon))
    return np.array([epsilon, -epsilon]), np.array([heads, 1 - heads])


def ranged(epsilon: float, upper: float) -> tuple[Reals, Reals]:
    chance = (math.exp(epsilon) - math.exp(upper)) / math.expm1(epsilon)
    return np.array([upper, upper - epsilon]), np.array([chance, 1 - chance])


def needed(of: Loss, reserve: float) -> float:
    return float(gaussian_before(of, np.array([reserve]))[0])


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("reserve", RESERVES)
def test_a_coin_costs_what_it_must(epsilon: float, reserve: float) -> None:
    kept = reserve * epsilon**2
    found = needed(loss.pure(epsilon), kept)
    assert excess(*coin(epsilon), kept, found) <= 1e-15
    if kept < 9:  # beyond, a bound that is not the least takes its place
        assert excess(*coin(epsilon), kept, kept + (found - kept) * 0.999) > 1e-15
    assert found - kept <= 1.58 * epsilon**2


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("reserve", RESERVES)
def test_a_bounded_range_costs_enough_wherever_it_lies(epsilon: float, reserve: float) -> None:
    kept = reserve * epsilon**2 / 4
    found = needed(loss.bounded_range(epsilon), kept)
    places = np.linspace(0, epsilon, 41)[1:-1]
    assert all(excess(*ranged(epsilon, upper), kept, found) <= 1e-15 for upper in places)
    if epsilon <= 0.1:
        less = kept + (found - kept) * 0.99
        assert any(excess(*ranged(epsilon, upper), kept, less) > 1e-15 for upper in places)


@pytest.mark.parametrize("sigma_squared", [1.0, 2.0, 5.0, 7.9, 8.0, 20.0, 400.0])
@pytest.mark.parametrize("reserve", [0.0, 0.5, 5.0])
def test_discrete_gaussians_cost_enough(sigma_squared: float, reserve: float) -> None:
    kept = reserve / sigma_squared
    found = needed(loss.discrete_gaussian(sigma_squared, 1), kept)
    reach = int(12 * math.sqrt(sigma_squared)) + 3
    values = np.arange(-reach, reach + 1)
    chances = np.exp(-(values**2) / (2 * sigma_squared))
    chances /= chances.sum()
    losses = (1 - 2 * values) / (2 * sigma_squared)
    assert excess(losses, chances, kept, found) <= 1e-14
    assert variance(sigma_squared) == pytest.approx(sigma_squared, rel=1e-6)
    assert excess(losses, chances, kept, kept + 0.9 / sigma_squared) > 1e-9


@pytest.mark.parametrize("number", [2, 5, 256, 257, 1000])
def test_many_equal_parts_cost_at_least_as_one_by_one(number: int) -> None:
    epsilon, one_by_one = 0.01, np.zeros(1)
    for _ in range(number):
        one_by_one = gaussian_before(loss.pure(epsilon), one_by_one)
    together = needed(loss.pure(epsilon, number), 0.0)
    assert one_by_one[0] * (1 - 1e-9) <= together <= one_by_one[0] * 1.03


def test_parts_of_any_size_are_covered_or_never_fit() -> None:
    for of in (loss.pure(1e-9), loss.pure(30.0), loss.pure(700.0), loss.pure(1e6), loss.bounded_range(30.0)):
        for reserve in (0.0, 1e-12, 1.0, 1e3):
            assert needed(of, reserve) > reserve
    assert needed(loss.pure(0.0), 0.5) == 0.5
    assert needed(loss.gaussian(2.0), 0.5) == 2.5
    assert needed(loss.any_order(10.0), 1.0) == math.inf
    assert loss.interactive_bounded_range(30.0, 5).gaussian >= 1e3


def test_either_covers_each_of_several() -> None:
    several = [loss.pure(0.9), loss.gaussian(0.05), loss.gaussian(0.3), loss.bounded_range(0.1, 20)]
    together = loss.either(several)
    for reserve in (0.0, 1e-3, 0.3, 2.0, 50.0):
        assert needed(together, reserve) >= max(needed(each, reserve) for each in several)
    assert needed(loss.either(several[1:]), 0.5) < needed(several[0], 0.5)


@pytest.mark.parametrize(
    "wrong", [{"pure": -1.0}, {"gaussian": math.nan}, {"coins": ((0.1, 0),)}, {"steps": ((1e300, 1),)}]
)
def test_a_loss_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((ValueError, msgspec.ValidationError)):
        msgspec.convert(wrong, Loss)
    with pytest.raises(ValueError, match="loss"):
        Loss(**wrong)  # type: ignore[arg-type]
