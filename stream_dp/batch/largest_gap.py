"""The rank k after which the sorted counts fall most: a private choice of k, which names no item.

`largest_gap`: argmax over the ranks j = least..kbar of h_(j) - h_(j+1) + r(j) + Gumbel(2 / epsilon). It is epsilon-DP
and epsilon^2 / 8 -zCDP. Source: Zhu and Wang 2022, Algorithm 1 and Proposition 7.

`largest_gap_gaussian`: the same with N(0, sigma^2): Renyi DP of order a is 2 a / sigma^2 + ln(ranks) / (a - 1), where
ranks = kbar - least + 1. Source: their Theorem 8 and Corollary 9 (report-noisy-max with Gaussian noise). This curve is
not zCDP, so it is converted to (epsilon, delta) at the best order first, and enters compositions as epsilon^2 / 2 and
delta.

Counts are of DISTINCT users. Adding or removing one user moves any number of counts by 1, all in one direction, so
each gap moves by at most 1, up or down. The range of ranks and r(j) = -penalty |j - around| are public: they move no
score, and it is the same mechanism on candidates of the same sensitivity. Without them the first gap, which is the
largest of nearly every real histogram, wins.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from stream_dp.batch.cost import Cost, pure, require_count, require_delta, require_positive
from stream_dp.batch.ranking import head
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise


@dataclass(frozen=True, slots=True)
class Ranks:
    """The public ranks `least`..`kbar` that may be chosen; `penalty`: what each rank away from `around` costs."""

    kbar: int
    least: int = 1
    penalty: float = 0.0
    around: int = 1

    def __post_init__(self) -> None:
        require_count("kbar", self.kbar)
        require_count("least", self.least)
        require_count("around", self.around)
        if self.least > self.kbar:
            raise ValueError(f"least = {self.least} is above the last rank {self.kbar}: lower it.")
        if not (math.isfinite(self.penalty) and self.penalty >= 0):
            raise ValueError(f"penalty must be at least 0, not {self.penalty}.")

    @property
    def number(self) -> int:
        return self.kbar - self.least + 1

    def scores(self, gaps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Gap + r of the ranks that may be chosen, shape (number,), from the gaps of all ranks, shape (kbar,)."""
        away = np.abs(np.arange(self.least, self.kbar + 1) - self.around)
        return np.asarray(gaps[self.least - 1 :] - self.penalty * away, np.float64)


@dataclass(frozen=True, slots=True)
class Gap:
    """The released rank, least..kbar, and what it cost."""

    rank: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class LargestGap:
    """With Gumbel noise of scale 2 / epsilon."""

    epsilon: float
    ranks: Ranks

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)

    @property
    def cost(self) -> Cost:
        return Cost(self.epsilon**2 / 8, 0.0, (self.epsilon, 0.0), loss=loss.bounded_range(self.epsilon))


@dataclass(frozen=True, slots=True)
class GaussianGap:
    """With Gaussian noise of standard deviation `sigma`; `delta` is what its conversion may use."""

    sigma: float
    delta: float
    ranks: Ranks

    def __post_init__(self) -> None:
        require_positive("sigma", self.sigma)
        require_delta("delta", self.delta)

    @property
    def cost(self) -> Cost:
        return pure(noisy_max_epsilon(2 / self.sigma**2, self.delta, self.ranks.number), self.delta)


def largest_gap(counts: NDArray[np.int64], parameters: LargestGap, noise: OneShotNoise) -> Gap:
    """A rank after which the counts fall far; `counts` is int64 of shape (items,), distinct users per item."""
    ranks = parameters.ranks
    gaps = head(counts, ranks.kbar).gaps(ranks.kbar)
    return Gap(rank_by_gumbel(gaps, ranks, 2 / parameters.epsilon, noise), parameters.cost)


def largest_gap_gaussian(counts: NDArray[np.int64], parameters: GaussianGap, noise: OneShotNoise) -> Gap:
    """The largest noisy gap as `largest_gap` finds it, with Gaussian noise."""
    ranks = parameters.ranks
    gaps = head(counts, ranks.kbar).gaps(ranks.kbar)
    return Gap(rank_by_gaussian(gaps, ranks, parameters.sigma, noise), parameters.cost)


def rank_by_gumbel(gaps: NDArray[np.int64], ranks: Ranks, scale: float, noise: OneShotNoise) -> int:
    """The rank of the largest gap + r + Gumbel(scale); `gaps` has shape (kbar,)."""
    return int(np.argmax(ranks.scores(gaps) + noise.gumbel(scale, ranks.number))) + ranks.least


def rank_by_gaussian(gaps: NDArray[np.int64], ranks: Ranks, sigma: float, noise: OneShotNoise) -> int:
    """The rank of the largest gap + r + N(0, sigma^2)."""
    return int(np.argmax(ranks.scores(gaps) + noise.gaussian(sigma, ranks.number))) + ranks.least


def noisy_max_epsilon(slope: float, delta: float, candidates: int) -> float:
    """The least epsilon over orders a of slope a + ln(candidates) / (a - 1), converted to (epsilon, delta).

    Conversion of Canonne, Kamath and Steinke 2020, Proposition 12; every order is valid, so an inexact minimiser is.
    """

    def at(log_b: float) -> float:
        b = math.exp(log_b)  # a - 1
        renyi = slope * (1 + b) + math.log(candidates) / b
        return renyi - math.log1p(1 / b) - (math.log(delta) + math.log1p(b)) / b

    best = scipy.optimize.minimize_scalar(at, bounds=(-20.0, 20.0), method="bounded")
    return max(0.0, at(float(best.x))) * (1 + 1e-12)


def noisy_max_slope(epsilon: float, delta: float, candidates: int) -> float:
    """The largest slope at which `noisy_max_epsilon` stays within epsilon, rounded down.  Raises ValueError."""

    def excess(log_slope: float) -> float:
        return noisy_max_epsilon(math.exp(log_slope), delta, candidates) - epsilon

    low, high = -40.0, 14.0
    if not excess(low) < 0 < excess(high):
        raise ValueError(f"no noise of a reasonable size gives epsilon {epsilon:g} at delta {delta:g}.")
    return math.exp(float(scipy.optimize.brentq(excess, low, high, xtol=1e-12))) * (1 - 1e-9)
