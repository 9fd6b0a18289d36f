"""Set union in three rounds that need no order of users: the scalable one (DP-SIPS).

Every round has its part of rho and delta, in the ratio 1 : 3 : 9. In each, a user with n_u items that have not been
released yet, at most `items_per_user` of them sampled anew by that user alone, gives each the weight 1 / sqrt(n_u);
items of POSITIVE weight get N(0, sigma_i^2) with sigma_i = 1 / sqrt(2 rho_i), and those above
T_i = max over t of 1 / sqrt(t) + sigma_i Phi^-1((1 - d_i)^(1/t)) are released. Cheap first rounds take the frequent
items out, so that later ones spend everything on the rest.

Guarantee, for adding or removing one user: delta-approximate rho-zCDP. Each round sees the releases before it, and one
user moves its weights by at most 1 in l2; at most items_per_user items of weight 1 / sqrt(t) are novel in it.
Source: Swanberg, Desfontaines and Haney 2023, "DP-SIPS: A simpler, more scalable mechanism for differentially private
partition selection". Made exact: weights are whole numbers of 2^-20, rounded down.
"""

import math
from dataclasses import dataclass

import numpy as np

from stream_dp.batch.baskets import Baskets, sample, without
from stream_dp.batch.cost import Cost, require_count, require_delta, require_positive
from stream_dp.batch.result import BatchResult
from stream_dp.batch.set_union import released_by_gaussian, square_root_weights
from stream_dp.batch.set_union_thresholds import shared_budget_gaussian
from stream_dp.privacy import loss
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
        return Cost(self.rho, self.delta, loss=loss.gaussian(2 * self.rho))

    @property
    def rounds(self) -> tuple[tuple[float, float], ...]:
        """(sigma, threshold) of each round."""
        sigmas = [1 / math.sqrt(2 * self.rho * part) for part in _PARTS]
        return tuple(
            (sigma, shared_budget_gaussian(sigma, self.delta * part, self.items_per_user))
            for sigma, part in zip(sigmas, _PARTS, strict=True)
        )


def sips(all_baskets: Baskets, parameters: Sips, noise: OneShotNoise) -> BatchResult:
    """Labels of all three rounds, by rising number."""
    released = np.zeros(all_baskets.item_count, np.bool_)
    left = all_baskets
    for stage, (sigma, threshold) in enumerate(parameters.rounds):
        if stage:
            left = without(left, released)
        weights = square_root_weights(sample(left, parameters.items_per_user, noise, stage))
        released[released_by_gaussian(weights, threshold, sigma, noise)] = True
    return BatchResult(np.flatnonzero(released), parameters.cost)
