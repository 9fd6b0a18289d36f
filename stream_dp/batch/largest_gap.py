"""The rank k after which the sorted counts fall most: a private choice of k, which names no item.

`largest_gap`: argmax over least <= j <= kbar of h_(j) - h_(j+1) + Gumbel(2 / epsilon). It is epsilon-DP and
epsilon^2 / 8 -zCDP. Source: Zhu and Wang 2022, Algorithm 1 and Proposition 7.

`largest_gap_gaussian`: the same with N(0, sigma^2): Renyi DP of order a is 2 a / sigma^2 + ln(ranks) / (a - 1), where
ranks = kbar - least + 1. Source: their Theorem 8 and Corollary 9 (report-noisy-max with Gaussian noise). This curve is
not zCDP, so it is converted to (epsilon, delta) at the best order first, and enters compositions as epsilon^2 / 2 and
delta.

Counts are of DISTINCT users. Adding or removing one user moves any number of counts by 1, all in one direction, so
each gap moves by at most 1, up or down. `least` and `kbar` are public, so that leaving ranks out of the choice costs
nothing: it is the same mechanism on fewer candidates of the same sensitivity. Without it the first gap, which is the
largest of nearly every real histogram, wins.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from stream_dp.batch.cost import Cost, pure, require_count, require_delta, require_positive
from stream_dp.batch.ranking import head
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise


@dataclass(frozen=True, slots=True)
class Gap:
    """The released rank, least..kbar, and what it cost."""

    rank: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class LargestGap:
    """With Gumbel noise of scale 2 / epsilon."""

    epsilon: float
    kbar: int
    least: int = 1

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        require_ranks(self.least, self.kbar)

    @property
    def cost(self) -> Cost:
        return Cost(self.epsilon**2 / 8, 0.0, (self.epsilon, 0.0), loss.bounded_range(self.epsilon))


@dataclass(frozen=True, slots=True)
class GaussianGap:
    """With Gaussian noise of standard deviation `sigma`; `delta` is what its conversion may use."""

    sigma: float
    delta: float
    kbar: int
    least: int = 1

    def __post_init__(self) -> None:
        require_positive("sigma", self.sigma)
        require_delta("delta", self.delta)
        require_ranks(self.least, self.kbar)

    @property
    def cost(self) -> Cost:
        candidates = self.kbar - self.least + 1
        return pure(noisy_max_epsilon(self.sigma, self.delta, candidates), self.delta)


def largest_gap(counts: NDArray[np.int64], parameters: LargestGap, noise: OneShotNoise) -> Gap:
    """A rank after which the counts fall far; `counts` is int64 of shape (items,), distinct users per item."""
    gaps = head(counts, parameters.kbar).gaps(parameters.kbar)
    return Gap(noisiest_gap(gaps, 2 / parameters.epsilon, noise, parameters.least), parameters.cost)


def largest_gap_gaussian(counts: NDArray[np.int64], parameters: GaussianGap, noise: OneShotNoise) -> Gap:
    """The largest noisy gap as `largest_gap` finds it, with Gaussian noise."""
    gaps = head(counts, parameters.kbar).gaps(parameters.kbar)[parameters.least - 1 :]
    noisy = gaps + noise.gaussian(parameters.sigma, len(gaps))
    return Gap(int(np.argmax(noisy)) + parameters.least, parameters.cost)


def noisiest_gap(
    gaps: NDArray[np.int64],
    scale: float,
    noise: OneShotNoise,
    least: int = 1,
    regulariser: NDArray[np.float64] | None = None,
) -> int:
    """The rank j = least..kbar of the largest gap + regulariser + Gumbel(scale); both arrays have shape (kbar,)."""
    noisy = gaps[least - 1 :] + noise.gumbel(scale, len(gaps) - least + 1)
    if regulariser is not None:
        noisy += regulariser[least - 1 :]
    return int(np.argmax(noisy)) + least


def require_ranks(least: int, kbar: int) -> None:
    """Refuse a range of ranks that holds none."""
    require_count("kbar", kbar)
    require_count("least", least)
    if least > kbar:
        raise ValueError(f"least = {least} is above the last rank {kbar}: lower it.")


def noisy_max_epsilon(sigma: float, delta: float, candidates: int) -> float:
    """The least epsilon over orders a of 2 a / sigma^2 + ln(candidates) / (a - 1), converted to (epsilon, delta).

    Conversion of Canonne, Kamath and Steinke 2020, Proposition 12; every order is valid, so an inexact minimiser is.
    """

    def at(log_b: float) -> float:
        b = math.exp(log_b)  # a - 1
        renyi = 2 * (1 + b) / sigma**2 + math.log(candidates) / b
        return renyi - math.log1p(1 / b) - (math.log(delta) + math.log1p(b)) / b

    best = minimize_scalar(at, bounds=(-20.0, 20.0), method="bounded")
    return max(0.0, at(float(best.x))) * (1 + 1e-12)
