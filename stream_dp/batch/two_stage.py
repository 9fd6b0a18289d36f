"""Histogram in two stages: the first finds out which labels are frequent, so that users count with those they share.

A histogram bounds how many labels a user counts with.  A uniform sample spends most of that bound on labels which
nobody will see, and lowers the counts of the others.  Write V for the mu^2 of both stages, s for the first share.

1. Every user gives 1 / sqrt(n) to each of all n labels held, unsampled.  y = weight + N(0, sigma1^2) for every label
   that anybody holds, sigma1^2 = 1 / (s V).
2. Every user keeps the D0 labels held of largest y, ties by label bytes.  Labels that anybody keeps are counted, with
   noise N_Z(0, s2), s2 = 4 + D0 / ((1 - s) V), and shown from tau on.

Guarantee, for adding or removing one user u: (epsilon, delta).  Proof.  Let both stages have noise on the labels of
both neighbours, absent ones at 0.  Stage 1 shifts by at most 1 in l2.  What another user keeps depends on y at labels
which that user holds; these are there without u, too, and have noise.  So given y, all others keep the same on both
neighbours, and stage 2 shifts by 1 at the at most D0 labels that u keeps.  Its noise is a function of continuous
noise of variance s2 - 4 (docs/budget.md, "Discrete Gaussians"), so both are an adaptive composition of Gaussians of
mu^2 = s V and D0 / (s2 - 4) (Dong, Roth and Su 2022), V together.  What is shown is a function of that unless a label
passes that only u keeps.  There are at most D0, each of count 1, and tau lets one pass with chance d / D0.  How many
there are may depend on y, which `novel_labels.after` allows for: noise and threshold may have d each, more than half
of delta.

Three things look alike and break this: counts of a sample in stage 1, by which a label that somebody holds may have
no noise; keeping by true weights; and all of V for stage 2.  `audit --exact` catches each.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.baskets import Baskets, Ranks, Weighing, each_once, sample, spread_weights
from stream_dp.batch.cost import NORMAL_95, Cost, require_count, require_delta, require_positive
from stream_dp.batch.novel_labels import Allowance, Profile, after, delta_of_each, of_either
from stream_dp.batch.result import Outcome
from stream_dp.batch.set_union import UNIT, square_root_share
from stream_dp.privacy import loss
from stream_dp.privacy.accounting import gaussian_rho
from stream_dp.privacy.discrete_gaussian import variance
from stream_dp.privacy.loss import ROUNDED_VARIANCE
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.thresholds import sum_tail_threshold

SHARE = 0.1
"""s: what the first stage takes of V."""

_DOWN = 1 - 1e-9
_ALL = 1 << 62
"""No user holds more."""


def first_sigma(mu_squared: float) -> float:
    """Of the noise of the first stage, where both have `mu_squared` together."""
    return 1 / math.sqrt(SHARE * mu_squared)


@dataclass(frozen=True, slots=True)
class TwoStage:
    """(epsilon, delta) for both stages; a user counts with at most `items_per_user` labels.

    `given`: V and the threshold's delta, if they follow from what the job does besides.
    """

    epsilon: float
    delta: float
    items_per_user: int
    given: Allowance | None = None

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        require_delta("delta", self.delta)
        require_count("items_per_user", self.items_per_user)

    @property
    def allowed(self) -> Allowance:
        """V, and the threshold's delta."""
        return _allowed(self.epsilon, self.delta) if self.given is None else self.given

    @property
    def threshold_delta(self) -> float:
        return self.allowed.delta

    @property
    def mu_squared(self) -> float:
        """V."""
        return self.allowed.mu_squared

    @property
    def first_sigma(self) -> float:
        return first_sigma(self.mu_squared)

    @property
    def sigma_squared(self) -> float:
        """Of the noise of counts."""
        return max(
            2 * ROUNDED_VARIANCE, ROUNDED_VARIANCE + self.items_per_user / ((1 - SHARE) * self.mu_squared)
        )

    @property
    def cost(self) -> Cost:
        rho = SHARE * self.mu_squared / 2 + self.items_per_user / (2 * self.sigma_squared)
        alone = self.epsilon, self.delta
        return Cost(rho, self.threshold_delta, alone, loss=loss.gaussian(self.mu_squared))

    @property
    def sd(self) -> float:
        return math.sqrt(variance(self.sigma_squared))

    @property
    def tau(self) -> int:
        """The least noisy count that is shown."""
        return sum_tail_threshold(self.sigma_squared, 1, self.threshold_delta / self.items_per_user)

    @property
    def needed(self) -> float:
        """The count that is shown in 95% of cases."""
        return self.tau + NORMAL_95 * self.sd


def profile(allowed: Allowance) -> Profile:
    """The delta of both stages at each epsilon."""
    first, second = SHARE * allowed.mu_squared, (1 - SHARE) * allowed.mu_squared
    return after(first, of_either(Allowance(second, allowed.delta)))


@lru_cache(maxsize=256)
def _allowed(epsilon: float, delta: float) -> Allowance:
    def of(d: float) -> Allowance:
        return Allowance(2 * gaussian_rho(epsilon, d) * _DOWN, d)

    return of(delta_of_each(delta, lambda d: float(profile(of(d))(np.asarray(epsilon)))))


def two_stage(users: Weighing, parameters: TwoStage, noise: OneShotNoise) -> Outcome:
    """Labels and noisy counts, by falling count."""
    weights = users.weights(_ALL, square_root_share, noise) / UNIT
    first = noise.gaussian(parameters.first_sigma, users.item_count)
    counts = users.weights(parameters.items_per_user, each_once, by_weight(weights + first), 1)
    held = np.flatnonzero(counts)
    noisy = counts[held] + noise.discrete_gaussian(parameters.sigma_squared, len(held))
    passed = noisy >= parameters.tau
    items, noisy = held[passed], noisy[passed]
    order = np.lexsort((items, -noisy))
    return Outcome(items[order], noisy[order], parameters.sd, least=parameters.tau)


def by_weight(noisy: NDArray[np.float64]) -> Ranks:
    """The labels of largest noisy weight come first, ties by label."""
    places = np.empty(len(noisy), np.int64)
    places[np.argsort(-noisy, kind="stable")] = np.arange(len(noisy))
    return Ranks.of(places)


def weights_of(all_baskets: Baskets) -> NDArray[np.float64]:
    """What the first stage adds up; it is above 0 for every label that anybody holds, and only these are looked at."""
    return spread_weights(all_baskets, square_root_share) / UNIT


def kept_by(all_baskets: Baskets, noisy: NDArray[np.float64], parameters: TwoStage) -> Baskets:
    """What users keep: of what each holds the labels of largest noisy weight."""
    return sample(all_baskets, parameters.items_per_user, by_weight(noisy))
