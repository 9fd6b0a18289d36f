"""Set union in three rounds that need no order of users: the scalable one (DP-SIPS).

Every round has its part of rho and delta, in the ratio 1 : 3 : 9. In each, a user with n_u items that have not been
released yet, at most `items_per_user` of them sampled anew by that user alone, gives each the weight 1 / sqrt(n_u);
items of POSITIVE weight get N(0, sigma_i^2) with sigma_i = 1 / sqrt(2 rho_i), and those above
T_i = max over t of 1 / sqrt(t) + sigma_i Phi^-1((1 - d_i)^(1/t)) are released. Cheap first rounds take the frequent
items out, so that later ones spend everything on the rest.

Guarantee, for adding or removing one user: delta-approximate rho-zCDP, and exactly the (epsilon, d0 + delta) that ONE
Gaussian of mu^2 = 2 rho gives at d0. Proof. Let V be the same three rounds with noise on the labels of both neighbours,
absent ones at weight 0. Fix all samples and what the rounds before have released: then the weights of a round differ
by at most 1 in l2, since the user's n_u shares of 1 / sqrt(n_u), rounded down, have squares that sum to at most 1, and
no other user's sample or basket depends on this one. So given the past round i of V is a Gaussian mechanism of
mu_i = 1 / sigma_i, a number fixed in advance, with sampling beside it that presence does not move. An adaptive
composition of such rounds tells no more than one Gaussian of mu^2 = sum of mu_i^2 = 2 rho (Dong, Roth and Su 2022,
"Gaussian differential privacy": composition), whose (epsilon, d0) is known exactly. What is released is
what V releases, unless one of the user's novel items passes: at most items_per_user of weight 1 / sqrt(t) in a round,
so with a chance of at most d_i given the past, and of delta in all. By the restriction lemma the deltas add.
Source: Swanberg, Desfontaines and Haney 2023, "DP-SIPS: A simpler, more scalable mechanism for differentially private
partition selection". Made exact: weights are whole numbers of 2^-20, rounded down.
"""

import math
from dataclasses import dataclass

import numpy as np

from stream_dp.batch.baskets import Weighing
from stream_dp.batch.cost import Cost, require_count, require_delta, require_positive
from stream_dp.batch.result import Outcome
from stream_dp.batch.set_union import UNIT, released_by_gaussian, square_root_share
from stream_dp.batch.set_union_thresholds import shared_budget_gaussian
from stream_dp.privacy import loss
from stream_dp.privacy.accounting import gaussian_epsilon
from stream_dp.privacy.one_shot_noise import OneShotNoise

_PARTS = (1 / 13, 3 / 13, 9 / 13)


@dataclass(frozen=True, slots=True)
class Sips:
    """`rho` and `delta` of all three rounds; `items_per_user`: how many items of a user count in each round."""

    rho: float
    delta: float
    items_per_user: int

    def __post_init__(self) -> None:
        require_positive("rho", self.rho)
        require_delta("delta", self.delta)
        require_count("items_per_user", self.items_per_user)

    @property
    def cost(self) -> Cost:
        alone = (gaussian_epsilon(self.rho, self.delta), 2 * self.delta)
        return Cost(self.rho, self.delta, alone, loss=loss.gaussian(2 * self.rho))

    @property
    def rounds(self) -> tuple[tuple[float, float], ...]:
        """(sigma, threshold) of each round."""
        sigmas = [1 / math.sqrt(2 * self.rho * part) for part in _PARTS]
        return tuple(
            (sigma, shared_budget_gaussian(sigma, self.delta * part, self.items_per_user))
            for sigma, part in zip(sigmas, _PARTS, strict=True)
        )


def sips(users: Weighing, parameters: Sips, noise: OneShotNoise) -> Outcome:
    """Labels of all three rounds, by rising number."""
    released = np.zeros(users.item_count, np.bool_)
    for stage, (sigma, threshold) in enumerate(parameters.rounds):
        weights = users.weights(parameters.items_per_user, square_root_share, noise, stage, released) / UNIT
        released[released_by_gaussian(weights, threshold, sigma, noise)] = True
    return Outcome(np.flatnonzero(released))
