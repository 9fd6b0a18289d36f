"""Top-k with counts over an unknown domain, for users who hold at most `items_per_user` items.

Only the kbar + 1 largest counts of DISTINCT users are looked at. Each of the first kbar gets noise, and so does the
threshold, which lies above the (kbar + 1)-th count; items at or above it are released with their noisy counts.

Guarantee, for adding or removing one user: threshold_delta-approximate (items_per_user * epsilon^2 / 2)-zCDP. By
the restriction lemma: match the items that leave the head with those that enter it, rank by rank; then at most
items_per_user of the kbar + 1 noisy values differ, by 1 each (Durfee and Rogers 2019, Lemma 5.2), and the release
is a function of them unless one of at most min(items_per_user, kbar) unmatched items, each at most 1 above the
(kbar + 1)-th count, reaches the threshold. Holds for any noise.

Sources: Durfee and Rogers, poster "Task: Top-k", Algorithm 1 (`laplace`); Rogers, "A Unifying Privacy Analysis
Framework for Unknown Domain Algorithms in Differential Privacy" (the survey), Algorithm 2 and Theorem 8 (`gaussian`).
Corrected: the poster's threshold offset lacks the 1/epsilon, and even ln(D/d)/epsilon leaves 4 to 7 times d because
the threshold is noisy too. Counts are integers, so the noise is discrete and the offset is the exact tail point of
the difference of two draws.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch import laplace_tails
from stream_dp.batch.cost import NORMAL_95, Cost, require_count, require_delta, require_noise_scale
from stream_dp.batch.intervals import Law
from stream_dp.batch.ranking import Head, head
from stream_dp.batch.result import Outcome
from stream_dp.privacy import loss
from stream_dp.privacy.discrete_gaussian import variance
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.thresholds import sum_tail_threshold


@dataclass(frozen=True, slots=True)
class CountedTopK:
    """`epsilon` per changed count; `kbar`: how many items may be released at most."""

    epsilon: float
    threshold_delta: float
    items_per_user: int
    kbar: int

    def __post_init__(self) -> None:
        require_noise_scale(self.epsilon)
        require_delta("threshold_delta", self.threshold_delta)
        require_count("items_per_user", self.items_per_user)
        require_count("kbar", self.kbar)

    @property
    def rho(self) -> float:
        return self.items_per_user * self.epsilon**2 / 2

    @property
    def tail(self) -> float:
        """The chance with which one unmatched item may pass."""
        return self.threshold_delta / min(self.items_per_user, self.kbar)


class LaplaceTopK(CountedTopK):
    """Discrete Laplace noise of scale 1 / epsilon."""

    __slots__ = ()

    @property
    def cost(self) -> Cost:
        return Cost(
            self.rho,
            self.threshold_delta,
            (self.items_per_user * self.epsilon, self.threshold_delta),
            loss=loss.pure(self.epsilon, self.items_per_user),
        )

    @property
    def sd(self) -> float:
        return laplace_tails.standard_deviation(1 / self.epsilon)

    @property
    def offset(self) -> int:
        """How far the threshold lies above the (kbar + 1)-th count, before its noise."""
        return 1 + laplace_tails.difference_tail_point(1 / self.epsilon, self.tail)

    @property
    def needed(self) -> float:
        """See `GaussianTopK.needed`."""
        return self.offset + laplace_tails.difference_tail_point(1 / self.epsilon, 0.05)


class GaussianTopK(CountedTopK):
    """Discrete Gaussian noise of variance parameter 1 / epsilon^2."""

    __slots__ = ()

    @property
    def cost(self) -> Cost:
        noise = loss.discrete_gaussian(self.sigma_squared, self.items_per_user)
        return Cost(self.rho, self.threshold_delta, loss=noise)

    @property
    def sigma_squared(self) -> float:
        return self.epsilon**-2

    @property
    def sd(self) -> float:
        return math.sqrt(variance(self.sigma_squared))

    @property
    def offset(self) -> int:
        """How far the threshold lies above the (kbar + 1)-th count, before its noise."""
        return sum_tail_threshold(self.sigma_squared, 2, self.tail)

    @property
    def needed(self) -> float:
        """How far above the (kbar + 1)-th count an item is released in 95% of cases, if there are fewer than k."""
        return self.offset + NORMAL_95 * math.sqrt(2 * self.sigma_squared)


def laplace_top_k(counts: NDArray[np.int64], parameters: LaplaceTopK, noise: OneShotNoise) -> Outcome:
    """At most kbar items by falling noisy count; `counts` is int64 of shape (items,), distinct users per item."""
    top = head(counts, parameters.kbar)
    return _above_threshold(
        top, noise.discrete_laplace(1 / parameters.epsilon, len(top.items) + 1), parameters
    )


def gaussian_top_k(counts: NDArray[np.int64], parameters: GaussianTopK, noise: OneShotNoise) -> Outcome:
    """At most kbar items by falling noisy count; `counts` is int64 of shape (items,), distinct users per item."""
    top = head(counts, parameters.kbar)
    return _above_threshold(
        top, noise.discrete_gaussian(parameters.sigma_squared, len(top.items) + 1), parameters
    )


def _above_threshold(top: Head, draws: NDArray[np.int64], parameters: LaplaceTopK | GaussianTopK) -> Outcome:
    """The items whose noisy count reaches the noisy threshold, which nobody sees; the last draw is the threshold's."""
    noisy = top.counts + draws[:-1]
    passed = noisy >= top.next_count + parameters.offset + int(draws[-1])
    items, noisy = top.items[passed], noisy[passed]
    order = np.lexsort((items, -noisy))
    items, noisy = items[order], noisy[order]
    law: Law = "laplace" if isinstance(parameters, LaplaceTopK) else "normal"
    return Outcome(items, noisy, parameters.sd, law, int(noisy[-1]) if len(noisy) else None)
