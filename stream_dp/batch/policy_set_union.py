"""Set union by policy: users come one after the other and give their weight to items that still need it.

A user with more than `items_per_user` items keeps a sample of them, drawn alone. Every user moves the weights of these
items towards a cap, `alpha` noise scales above the threshold, by at most 1: with Laplace noise evenly, item by item up
to the cap (water-filling, l1); with Gaussian noise along the straight line (l2). Items of positive weight get noise;
those above the threshold are released.

Guarantee, for adding or removing one user: (epsilon, delta)-DP. Users who come later never enlarge the difference that
one user made (contraction, proved in the source for its l1-descent and l2-descent policies in real numbers). Every
item a user holds has positive weight afterwards, so only the user's own items can be novel: at most items_per_user, of
equal weight.  With Gaussian noise, let t of n items be novel and get b^2 of the square of a move: at least t / n,
because no gap to the cap is larger than theirs.  The other weights move by sqrt(1 - b^2), which later users, who hold
none of the t, do not enlarge (`novel_labels.py`).
Source: Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin 2020, "Differentially Private Set Union".

Made exact: with Laplace noise weights are whole tokens of 2^-20, for which the contraction is proved in
loops/baskets.c, and the threshold is that of discrete Laplace noise. With Gaussian noise weights are doubles: a
user's move errs by at most 2^-50 (cap sqrt(D0) + D0) in l2 between two histograms, and sigma is enlarged by what 2^31
users add up to (2.4e-4 at epsilon 1, delta 1e-6 and D0 = 10). More, which are more than Arrow's positions tell apart,
are refused.

Users come in an order drawn without looking at the data; what a user who leaves does to it: `OneShotNoise.order`.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stream_dp.batch.baskets import Baskets, sample
from stream_dp.batch.cost import NORMAL_95, Cost, pure, require_cap
from stream_dp.batch.novel_labels import delta_of_each, delta_of_weights
from stream_dp.batch.result import Outcome
from stream_dp.batch.set_union import (
    UNIT,
    LaplaceSetUnion,
    SetUnion,
    released_by_gaussian,
    released_by_laplace,
)
from stream_dp.batch.set_union_thresholds import (
    analytic_gaussian_sigma,
    shared_budget_gaussian,
    shared_budget_tau,
)
from stream_dp.loops import fill_evenly, move_towards
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise

MOST_USERS = 2**31
ROUNDING = 2.0**-50


@dataclass(frozen=True, slots=True)
class Policy(SetUnion):
    """`alpha`: how many noise scales the cap of a weight lies above the threshold."""

    alpha: float = 3.0

    def __post_init__(self) -> None:
        SetUnion.__post_init__(self)
        require_cap(self.alpha)


class LaplacePolicy(Policy):
    """Discrete Laplace noise of scale 1 / epsilon."""

    __slots__ = ()

    @property
    def cost(self) -> Cost:
        return pure(self.epsilon, self.delta)

    @property
    def needed(self) -> float:
        """See `LaplaceSetUnion.needed`."""
        return LaplaceSetUnion(self.epsilon, self.delta, self.items_per_user).needed


class GaussianPolicy(Policy):
    """Gaussian noise, which shares delta with the threshold (`novel_labels.py`)."""

    __slots__ = ()

    @property
    def each_delta(self) -> float:
        """What the noise has of delta, and what the threshold has."""
        return _delta_of_each(self)

    @property
    def sensitivity(self) -> float:
        """What one user moves the weights by in l2, rounding included: a little above 1."""
        return 1 + self.rounding(self.each_delta)

    def rounding(self, d: float) -> float:
        """What rounding adds to the move of one user in l2, if noise and threshold have delta d each."""
        sigma, limit = analytic_gaussian_sigma(self.epsilon, d), self.items_per_user
        cap = shared_budget_gaussian(sigma, d, limit) + self.alpha * sigma
        return MOST_USERS * ROUNDING * (cap * limit**0.5 + limit)

    @property
    def needed(self) -> float:
        """See `LaplaceSetUnion.needed`."""
        return self.threshold + NORMAL_95 * self.sigma

    @property
    def sigma(self) -> float:
        return analytic_gaussian_sigma(self.epsilon, self.each_delta) * self.sensitivity

    @property
    def threshold(self) -> float:
        """The least weight that is released."""
        return shared_budget_gaussian(self.sigma, self.each_delta, self.items_per_user)

    @property
    def cost(self) -> Cost:
        rho = self.sensitivity**2 / (2 * self.sigma**2)
        return Cost(rho, self.each_delta, (self.epsilon, self.delta), loss=loss.gaussian(2 * rho))


@lru_cache(maxsize=256)
def _delta_of_each(parameters: GaussianPolicy) -> float:
    epsilon, limit = parameters.epsilon, parameters.items_per_user

    def spent(d: float) -> float:
        rounding = parameters.rounding(d)
        sigma = analytic_gaussian_sigma(epsilon, d) * (1 + rounding)
        return delta_of_weights(epsilon, sigma, shared_budget_gaussian(sigma, d, limit), limit, rounding)

    return delta_of_each(parameters.delta, spent)


def laplace_policy(all_baskets: Baskets, parameters: LaplacePolicy, noise: OneShotNoise) -> Outcome:
    """Labels by water-filling; items by rising number."""
    limit = parameters.items_per_user
    kept = sample(all_baskets, limit, noise)
    scale = UNIT / parameters.epsilon
    tau = shared_budget_tau(parameters.epsilon, parameters.delta, limit, UNIT)
    weights = np.zeros(kept.item_count, np.int64)
    cap = tau + round(parameters.alpha * scale)
    fill_evenly(noise.order(kept.users), kept.starts, kept.items, UNIT, cap, weights)
    return Outcome(released_by_laplace(weights, tau, scale, noise))


def gaussian_policy(all_baskets: Baskets, parameters: GaussianPolicy, noise: OneShotNoise) -> Outcome:
    """Labels by moves along the straight line; items by rising number.  ValueError for more than 2^31 users."""
    if len(all_baskets.users) > MOST_USERS:
        raise ValueError(f"policy-gaussian bounds its rounding for {MOST_USERS} users: read fewer records.")
    limit, sigma = parameters.items_per_user, parameters.sigma
    kept = sample(all_baskets, limit, noise)
    threshold = parameters.threshold
    weights = np.zeros(kept.item_count)
    cap = threshold + parameters.alpha * sigma
    move_towards(noise.order(kept.users), kept.starts, kept.items, cap, weights)
    return Outcome(released_by_gaussian(weights, threshold, sigma, noise))
