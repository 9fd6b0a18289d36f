"""Set union in two rounds: the first takes out what is frequent, and what is hopeless; the second gives to the rest.

Every user keeps a sample of at most D0 items, the same in both rounds.  Write mu^2 = 2 rho, s for the first share.

1. A user of n items gives 1 / sqrt(n) to each.  y = weight + N(0, sigma1^2), sigma1 = 1 / sqrt(2 s rho).  Labels with
   y > T1 are released.  These and all labels with y <= c sigma1 are dropped by everybody, without exception.
2. Users come one after the other, and move the weights of what they still hold towards a cap, along the straight
   line, by at most 1 in l2 (`policy_set_union.py`).  Labels of positive weight get N(0, sigma2^2), sigma2 = 1 / sqrt(2
   (1 - s) rho), and those above T2 are released.

Guarantee, for adding or removing one user u: (epsilon, delta).  Proof.  Let V be both rounds with noise on the labels
of both neighbours, absent ones at weight 0.  Samples are drawn by each user alone.  The first round of V shifts by at
most 1 in l2.  Given y, the second basket of every other user is a function of that user and of y; so the second round
is the policy of Gopi et al. on baskets that differ in u's alone, and shifts by at most 1 in l2, too.  So V is an
adaptive composition of two Gaussian mechanisms of mu_1^2 + mu_2^2 = 2 rho (Dong, Roth and Su 2022).  What is released
is what V releases, unless a novel label passes: one that no other user has in a sample.

- In round 1, u's t <= n novel labels have weight 1 / sqrt(n) <= 1 / sqrt(t) each, and T1 lets any pass with chance
  delta1.
- A label that is novel in round 2 was novel in round 1, because the same labels are dropped by all and samples stay.
  So it has passed c sigma1 before, each independently with chance p_n = Phi(1 / (sigma1 sqrt(n)) - c), and of the n at
  most Bin(n, p_n) are left.  If t are left, each has weight at most 1 / sqrt(t) in round 2: moves are along the
  straight line, so u gives equal shares to labels that nobody else gives to.  One passes with chance at most f(t) = 1 -
  (1 - Phi((1 / sqrt(t) - T2) / sigma2))^t.  T2 is the least T at which E[fmax(Bin(n, p_n))] <= delta2 for every n <=
  D0, with fmax the running maximum of f, which is not monotone for large epsilon.  fmax does not fall, so fewer novel
  labels are covered.

Which labels are novel follows from the samples alone, and what becomes of novel ones from their own noise.  If t of n
are novel, the others move by 1 - t / n in the square in round 1, and by at most 1 in round 2, so `novel_labels.py`
holds with mu^2 (1 - s t / n) beside the chances of both rounds.

Three things look alike and break this: items from outside the
first sample in round 2, whose weight 0 had no noise when it was called hopeless; a user who is left with nothing and
keeps all; and dropping by true weights.  `audit --exact` catches each (audit/broken_two_rounds.py).

Source: the rounds of DP-SIPS (Swanberg, Desfontaines and Haney 2023), here with the dropping of hopeless labels.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr, ndtr

from stream_dp.batch.baskets import Baskets, sample, spread_weights, without
from stream_dp.batch.cost import NORMAL_95, Cost
from stream_dp.batch.novel_labels import delta_of_each
from stream_dp.batch.policy_set_union import MOST_USERS, ROUNDING, Policy
from stream_dp.batch.result import Outcome
from stream_dp.batch.set_union import UNIT, released_by_gaussian, square_root_share
from stream_dp.batch.set_union_thresholds import analytic_gaussian_sigma, shared_budget_gaussian
from stream_dp.loops import move_towards
from stream_dp.privacy import loss
from stream_dp.privacy.accounting import gaussian_deltas
from stream_dp.privacy.one_shot_noise import OneShotNoise

Reals = NDArray[np.float64]

SHARE = 0.25
"""s: what the first round takes of rho and of delta."""

HOPELESS = 1.75
"""c: a label is dropped that has not this many standard deviations of the first round's noise."""

_SAFE = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class TwoRounds(Policy):
    """`alpha`: how many noise scales the cap of a weight lies above the second threshold."""

    alpha: float = 8.0

    @property
    def each_delta(self) -> float:
        """What the noise of both rounds has of delta, and what their thresholds have."""
        return _delta_of_each(self)

    @property
    def rho(self) -> float:
        """Of both rounds: the most that is (epsilon, each_delta)-DP."""
        return self._rho(self.each_delta)

    def _rho(self, d: float) -> float:
        return 1 / (2 * analytic_gaussian_sigma(self.epsilon, d) ** 2)

    @property
    def cost(self) -> Cost:
        return Cost(self.rho, self.each_delta, (self.epsilon, self.delta), loss=loss.gaussian(2 * self.rho))

    @property
    def needed(self) -> float:
        """How many users who hold nothing else a label needs in the second round to be released in 95% of cases."""
        sigma, threshold = self.second
        return max(threshold + NORMAL_95 * sigma, (HOPELESS + NORMAL_95) * self.first[0])

    @property
    def first(self) -> tuple[float, float]:
        """The noise of the first round, and its threshold."""
        return self._first(self.each_delta)

    def _first(self, d: float) -> tuple[float, float]:
        sigma = 1 / math.sqrt(2 * SHARE * self._rho(d))
        return sigma, shared_budget_gaussian(sigma, SHARE * d, self.items_per_user)

    @property
    def second(self) -> tuple[float, float]:
        """The noise of the second round, enlarged for the rounding of its moves, and its threshold."""
        return self._second(self.each_delta)

    def _second(self, d: float) -> tuple[float, float]:
        sigma, limit = 1 / math.sqrt(2 * (1 - SHARE) * self._rho(d)), self.items_per_user
        delta = (1 - SHARE) * d
        cap = 1.01 * (shared_budget_gaussian(sigma, delta, limit) + self.alpha * sigma)
        sigma *= 1 + MOST_USERS * ROUNDING * (cap * limit**0.5 + limit)
        return sigma, second_threshold(sigma, delta, self._first(d)[0], limit)

    def spent(self, d: float) -> float:
        """The delta of the proof, if noise and thresholds have d each."""
        (first, above), (second, least), limit = self._first(d), self._second(d), self.items_per_user
        novel = np.arange(1, limit + 1)
        passing = -np.expm1(novel * np.log1p(-ndtr((1 / np.sqrt(novel) - above) / first)))
        passing += _passing(least, second, first, limit)
        mu_squared = 2 * self._rho(d)
        others = gaussian_deltas(mu_squared * (1 - SHARE * novel / limit), np.asarray(self.epsilon))
        return max(d, float(np.max(others + passing)))


@lru_cache(maxsize=256)
def _delta_of_each(parameters: TwoRounds) -> float:
    return delta_of_each(parameters.delta, parameters.spent)


@lru_cache(maxsize=1024)
def second_threshold(sigma: float, delta: float, first_sigma: float, items_per_user: int) -> float:
    """The least T2 of the proof, for noise `sigma` after a round of noise `first_sigma`."""

    def covers(threshold: float) -> bool:
        return bool(np.all(_passing(threshold, sigma, first_sigma, items_per_user) <= delta * _SAFE))

    low, high = 0.0, shared_budget_gaussian(sigma, delta, items_per_user)
    while not covers(high):
        high *= 1.1
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if covers(middle) else (middle, high)
    return high


def _passing(threshold: float, sigma: float, first_sigma: float, items_per_user: int) -> Reals:
    """E[fmax(Bin(n, p_n))] of the proof for n from 1 to `items_per_user`."""
    sizes = np.arange(1, items_per_user + 1)
    passing = ndtr((1 / np.sqrt(sizes) - threshold) / sigma)
    f = -np.expm1(sizes * np.log1p(-passing))
    return np.asarray(_left(first_sigma, items_per_user) @ np.maximum.accumulate(f))


@lru_cache(maxsize=1)  # a matrix, asked for again and again while a threshold is looked for
def _left(first_sigma: float, items_per_user: int) -> Reals:
    """Row n: the chances that 1, 2, ... of n are left after the first round, (items_per_user, items_per_user)."""
    sizes = np.arange(1, items_per_user + 1)
    bound = 1 / (first_sigma * np.sqrt(sizes)) - HOPELESS
    held, stay = sizes[:, None], sizes[None, :]
    return np.asarray(
        np.exp(
            gammaln(held + 1)
            - gammaln(stay + 1)
            - gammaln(held - stay + 1)  # infinite if more than n were left
            + stay * log_ndtr(bound)[:, None]
            + (held - stay) * log_ndtr(-bound)[:, None]
        )
    )


def two_rounds(all_baskets: Baskets, parameters: TwoRounds, noise: OneShotNoise) -> Outcome:
    """Labels of both rounds, by rising number.  ValueError for more than 2^31 users."""
    if len(all_baskets.users) > MOST_USERS:
        raise ValueError(f"two-rounds bounds its rounding for {MOST_USERS} users: read fewer records.")
    kept = sample(all_baskets, parameters.items_per_user, noise)
    weights = spread_weights(kept, square_root_share) / UNIT
    released, hopeless = first_round(weights, parameters, noise)
    rest = without(kept, released | hopeless)
    released[second_round(rest, parameters, noise)] = True
    return Outcome(np.flatnonzero(released))


def first_round(
    weights: NDArray[np.float64], parameters: TwoRounds, noise: OneShotNoise
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which labels are released, and which are hopeless; a coin each says in which part of the line y lies."""
    sigma, threshold = parameters.first
    low = HOPELESS * sigma
    released, hopeless = np.zeros((2, len(weights)), np.bool_)
    held = np.flatnonzero(weights > 0)
    above = (weights[held] - low) / sigma
    stays = noise.passes(ndtr(above), ndtr(-above))
    hopeless[held[~stays]] = True
    left, above = held[stays], above[stays]
    over = (weights[left] - threshold) / sigma
    passing = ndtr(over) / ndtr(above)
    missing = (ndtr(-over) - ndtr(-above)) / ndtr(above)
    released[left[noise.passes(passing, missing)]] = True
    return released, hopeless


def second_round(rest: Baskets, parameters: TwoRounds, noise: OneShotNoise) -> NDArray[np.int64]:
    """The labels that pass, of what users still hold."""
    sigma, threshold = parameters.second
    weights = np.zeros(rest.item_count)
    cap = threshold + parameters.alpha * sigma
    move_towards(noise.order(rest.users), rest.starts, rest.items, cap, weights)
    return released_by_gaussian(weights, threshold, sigma, noise)
