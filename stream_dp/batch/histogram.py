"""One-shot histogram over labels nobody listed in advance: labels and counts.

Every item of positive count gets integer noise, and is released if its noisy count reaches a threshold so high
that an item which only one user holds passes with probability at most threshold_delta / items_per_user.

Guarantee, for adding or removing one user who changes at most `items_per_user` counts, each by at most
`count_change`: threshold_delta-approximate (items_per_user * epsilon^2 / 2)-zCDP, by the restriction lemma: noise
on the items of both neighbours is rho-zCDP, and the release is a function of it unless an item passes that the
smaller neighbour does not hold. With Laplace noise alone it is also (items_per_user * epsilon, delta)-DP.

Source: Rogers, "A Unifying Privacy Analysis Framework for Unknown Domain Algorithms in Differential Privacy" (the
survey), Algorithm 1 and Theorem 7. Corrected: its closing D0^2 Dinf^2 / (2 b^2) should read D0 Dinf^2 / (2 b^2);
integer counts take discrete noise and its exact integer tail, for the continuous quantile is not a bound for integers.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch import laplace_tails
from stream_dp.batch.cost import NORMAL_95, Cost, require_count, require_delta, require_noise_scale
from stream_dp.batch.intervals import Law
from stream_dp.batch.result import Outcome
from stream_dp.privacy import loss
from stream_dp.privacy.discrete_gaussian import variance
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.thresholds import sum_tail_threshold


@dataclass(frozen=True, slots=True)
class Histogram:
    """`epsilon` per changed count; `count_change`: how far one user moves one count (1 for distinct users)."""

    epsilon: float
    threshold_delta: float
    items_per_user: int
    count_change: int = 1

    def __post_init__(self) -> None:
        require_count("count_change", self.count_change)
        require_noise_scale(self.epsilon, self.count_change)
        require_delta("threshold_delta", self.threshold_delta)
        require_count("items_per_user", self.items_per_user)

    @property
    def scale(self) -> float:
        """Of the noise: b of the Laplace law, sigma of the Gaussian."""
        return self.count_change / self.epsilon

    @property
    def rho(self) -> float:
        return self.items_per_user * self.epsilon**2 / 2

    @property
    def tail(self) -> float:
        """The chance with which one item of a single user may pass."""
        return self.threshold_delta / self.items_per_user


class LaplaceHistogram(Histogram):
    """Discrete Laplace noise."""

    __slots__ = ()

    @property
    def cost(self) -> Cost:
        alone = (self.items_per_user * self.epsilon, self.threshold_delta)
        return Cost(self.rho, self.threshold_delta, alone, loss=loss.pure(self.epsilon, self.items_per_user))

    @property
    def sd(self) -> float:
        return laplace_tails.standard_deviation(self.scale)

    @property
    def tau(self) -> int:
        """The least noisy count that is released."""
        return self.count_change + laplace_tails.tail_point(self.scale, self.tail)

    @property
    def needed(self) -> float:
        """The count that is released in 95% of cases."""
        return self.tau + math.log(10) * self.scale


class GaussianHistogram(Histogram):
    """Discrete Gaussian noise."""

    __slots__ = ()

    @property
    def cost(self) -> Cost:
        noise = loss.discrete_gaussian(self.scale**2, self.items_per_user, self.count_change)
        return Cost(self.rho, self.threshold_delta, loss=noise)

    @property
    def sd(self) -> float:
        return math.sqrt(variance(self.scale**2))

    @property
    def tau(self) -> int:
        """The least noisy count that is released."""
        return self.count_change - 1 + sum_tail_threshold(self.scale**2, 1, self.tail)

    @property
    def needed(self) -> float:
        """The count that is released in 95% of cases."""
        return self.tau + NORMAL_95 * self.scale


def laplace_histogram(
    counts: NDArray[np.int64], parameters: LaplaceHistogram, noise: OneShotNoise
) -> Outcome:
    """Release items and noisy counts; `counts` is int64 of shape (items,), zero for items nobody holds."""
    held = np.flatnonzero(counts > 0)
    noisy = counts[held] + noise.discrete_laplace(parameters.scale, len(held))
    return _thresholded(held, noisy, parameters, "laplace")


def gaussian_histogram(
    counts: NDArray[np.int64], parameters: GaussianHistogram, noise: OneShotNoise
) -> Outcome:
    """Release items and noisy counts; `counts` is int64 of shape (items,), zero for items nobody holds."""
    held = np.flatnonzero(counts > 0)
    noisy = counts[held] + noise.discrete_gaussian(parameters.scale**2, len(held))
    return _thresholded(held, noisy, parameters, "normal")


def _thresholded(
    items: NDArray[np.intp],
    noisy: NDArray[np.int64],
    parameters: LaplaceHistogram | GaussianHistogram,
    law: Law,
) -> Outcome:
    passed = noisy >= parameters.tau
    items, noisy = items[passed], noisy[passed]
    order = np.lexsort((items, -noisy))
    return Outcome(items[order], noisy[order], parameters.sd, law, parameters.tau)
