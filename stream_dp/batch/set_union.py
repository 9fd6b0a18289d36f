"""Set union: the labels that enough users hold, without counts, by one round of weights per user.

A user with more than `items_per_user` items keeps a uniform sample, drawn by that user alone. Then

- count (Korolova et al. 2009): every item of a user gets the same weight, 1 / D0 (Laplace) or 1 / sqrt(D0) (Gaussian);
- weighted (Gopi et al. 2020): 1 / n (Laplace) or 1 / sqrt(n) (Gaussian) for a user who keeps n items;

so a user moves the weights by at most 1 in l1 or l2. Items of POSITIVE weight get noise, and those above the threshold
are released. Only the labels leave, never a weight.

Guarantee, for adding or removing one user: (epsilon, delta)-DP, by the restriction lemma. With Laplace noise the
threshold takes all of delta; with Gaussian noise it shares delta with sigma, that of the analytic Gaussian mechanism
(`novel_labels.py`).

Sources: Korolova, Kenthapadi, Mishra and Ntoulas 2009, "Releasing search queries and clicks privately"; Gopi, Gulhane,
Kulkarni, Shen, Shokouhi and Yekhanin 2020, "Differentially Private Set Union", where count and weighted are baselines.

Weights are whole numbers of 2^-20, rounded down, so their sums are exact in any order of users. Only a coin leaves per
item, so its probability is computed directly instead of drawing noise: discrete Laplace with its exact integer
threshold, or the Gaussian's tail.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from stream_dp.batch import laplace_tails
from stream_dp.batch.baskets import Integers, Weighing, each_once
from stream_dp.batch.cost import NORMAL_95, Cost, pure, require_count, require_delta, require_positive
from stream_dp.batch.novel_labels import delta_of_counts, delta_of_each, delta_of_weights
from stream_dp.batch.result import Outcome
from stream_dp.batch.set_union_thresholds import (
    analytic_gaussian_sigma,
    novel_chance,
    shared_budget_gaussian,
    shared_budget_tau,
)
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise

UNIT = 1 << 20
"""What one user gives away, in units of weight."""

_LARGEST_EPSILON = 50.0


@dataclass(frozen=True, slots=True)
class SetUnion:
    """`epsilon` and `delta` of the whole release; `items_per_user`: how many items of a user count."""

    epsilon: float
    delta: float
    items_per_user: int

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        if not 1e-4 <= self.epsilon <= _LARGEST_EPSILON:
            raise ValueError(f"epsilon must lie between 0.0001 and {_LARGEST_EPSILON:g}, not {self.epsilon}.")
        require_delta("delta", self.delta)
        require_count("items_per_user", self.items_per_user)
        if self.items_per_user > UNIT:
            raise ValueError(f"items_per_user must be at most {UNIT}, not {self.items_per_user}.")


class LaplaceSetUnion(SetUnion):
    """Laplace noise of scale 1 / epsilon on weights of l1 sensitivity 1."""

    __slots__ = ()

    @property
    def cost(self) -> Cost:
        return pure(self.epsilon, self.delta)

    @property
    def needed(self) -> float:
        """How many users who hold nothing else a label needs to be released in 95% of cases."""
        tau = shared_budget_tau(self.epsilon, self.delta, self.items_per_user, UNIT)
        return tau / UNIT + math.log(10) / self.epsilon


class LaplaceCount(SetUnion):
    """Laplace noise of scale items_per_user / epsilon on each of a user's counts."""

    __slots__ = ()

    @property
    def cost(self) -> Cost:
        """Each of D0 counts is (epsilon / D0)-DP, so in zCDP the count is D0 times cheaper than its epsilon says."""
        rho = self.epsilon**2 / (2 * self.items_per_user)
        noise = loss.pure(self.epsilon / self.items_per_user, self.items_per_user)
        return Cost(rho, self.delta, (self.epsilon, self.delta), loss=noise)


class GaussianSetUnion(SetUnion):
    """Gaussian noise on weights of l2 sensitivity 1."""

    __slots__ = ()

    @property
    def each_delta(self) -> float:
        """What the noise has of delta, and what the threshold has."""
        return _delta_of_each(self.epsilon, self.delta, self.items_per_user)

    @property
    def sigma(self) -> float:
        return analytic_gaussian_sigma(self.epsilon, self.each_delta)

    @property
    def threshold(self) -> float:
        """The least weight that is released."""
        return shared_budget_gaussian(self.sigma, self.each_delta, self.items_per_user)

    @property
    def needed(self) -> float:
        """See `LaplaceSetUnion.needed`."""
        return self.threshold + NORMAL_95 * self.sigma

    @property
    def cost(self) -> Cost:
        noise = loss.gaussian(1 / self.sigma**2)
        return Cost(1 / (2 * self.sigma**2), self.each_delta, (self.epsilon, self.delta), loss=noise)


@lru_cache(maxsize=256)
def _delta_of_each(epsilon: float, delta: float, items_per_user: int) -> float:
    """What noise and threshold have of delta each, whether users give 1 / sqrt(n) or the same to each item."""

    def spent(d: float) -> float:
        sigma = analytic_gaussian_sigma(epsilon, d)
        threshold = shared_budget_gaussian(sigma, d, items_per_user)
        return max(
            delta_of_weights(epsilon, sigma, threshold, items_per_user),
            delta_of_counts(
                epsilon, sigma * math.sqrt(items_per_user), items_per_user, novel_chance(d, items_per_user)
            ),
        )

    return delta_of_each(delta, spent)


def laplace_count(users: Weighing, parameters: LaplaceCount, noise: OneShotNoise) -> Outcome:
    """Labels by the number of users, noise of scale items_per_user / epsilon on it."""
    limit = parameters.items_per_user
    counts = users.weights(limit, each_once, noise)
    scale = limit / parameters.epsilon
    tau = 1 + laplace_tails.tail_point(scale, novel_chance(parameters.delta, limit))
    return Outcome(released_by_laplace(counts, tau, scale, noise))


def gaussian_count(users: Weighing, parameters: GaussianSetUnion, noise: OneShotNoise) -> Outcome:
    """Labels by the number of users, noise of sigma * sqrt(items_per_user) on it."""
    limit = parameters.items_per_user
    counts = users.weights(limit, each_once, noise).astype(np.float64)
    sigma = parameters.sigma * limit**0.5
    threshold = 1 - sigma * float(ndtri(novel_chance(parameters.each_delta, limit)))
    return Outcome(released_by_gaussian(counts, threshold, sigma, noise))


def laplace_weighted(users: Weighing, parameters: LaplaceSetUnion, noise: OneShotNoise) -> Outcome:
    """Labels by weights of 1 / n."""
    weights = users.weights(parameters.items_per_user, equal_share, noise)
    tau = shared_budget_tau(parameters.epsilon, parameters.delta, parameters.items_per_user, UNIT)
    return Outcome(released_by_laplace(weights, tau, UNIT / parameters.epsilon, noise))


def gaussian_weighted(users: Weighing, parameters: GaussianSetUnion, noise: OneShotNoise) -> Outcome:
    """Labels by weights of 1 / sqrt(n)."""
    weights = users.weights(parameters.items_per_user, square_root_share, noise) / UNIT
    return Outcome(released_by_gaussian(weights, parameters.threshold, parameters.sigma, noise))


def equal_share(sizes: Integers) -> Integers:
    """1 / n for each of a user's n items, in units of 2^-20, rounded down."""
    return UNIT // sizes


def square_root_share(sizes: Integers) -> NDArray[np.float64]:
    """1 / sqrt(n) for each of a user's n items, in units of 2^-20, rounded down."""
    return np.floor(UNIT / np.sqrt(sizes))


def released_by_laplace(
    weights: NDArray[np.int64], tau: int, scale: float, noise: OneShotNoise
) -> NDArray[np.int64]:
    """The items of positive weight with weight + DiscreteLaplace(scale) >= tau, by rising number."""
    held = np.flatnonzero(weights > 0)
    return held[noise.passes(*laplace_tails.chance_to_reach(weights[held], tau, scale))]


def released_by_gaussian(
    weights: NDArray[np.float64], threshold: float, sigma: float, noise: OneShotNoise
) -> NDArray[np.int64]:
    """The items of positive weight with weight + N(0, sigma^2) >= threshold, by rising number."""
    held = np.flatnonzero(weights > 0)
    above = (weights[held] - threshold) / sigma
    return held[noise.passes(ndtr(above), ndtr(-above))]
