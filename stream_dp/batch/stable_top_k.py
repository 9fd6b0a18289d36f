"""Top-k as an unordered set, at a cost that does not grow with k: find a large gap, test it, release the set.

Source: Zhu and Wang 2022, "Adaptive Private-K-Selection with Adaptive K", Algorithms 1 to 3, Theorems 8, 11 and 12.
Counts are of DISTINCT users; adding or removing one user moves any number of counts by 1, all in one direction.

- `stable_top_k`: k by `largest_gap` (Algorithm 1) at epsilon = 2 sqrt(rho); release the top k
  iff max(1, h_(k) - h_(k+1)) + N(0, 1 / rho) - Phi^-1(1 - d) / sqrt(rho) > 1. d-approximate rho-zCDP.
- `stable_top_k_gaussian`: the same, with k by `largest_gap_gaussian` at sigma = 2 / sqrt(rho). Renyi DP of order a is
  a rho / 2 + ln(ranks) / (a - 1) for the choice and a rho / 2 for the test, converted together; d comes on top.
- `stable_fixed_k`: `stable_top_k` with r(j) = -penalty |j - k| at rho / 2, then the missing ones, or a choice among too
  many, by Gumbel noise at rho / 2. d-approximate rho-zCDP.

The guarantee of the test: if the gap is above 1 the set is the same for both neighbours; if it is not, the test
passes with probability at most d. max(1, gap) moves by at most 1, so the test itself is rho/2-zCDP.

Corrected: Theorem 11's rho + sqrt(2 rho ln(1/delta)) is false (convert with `accounting.zcdp_epsilon`);
sigma sqrt(2 ln(1/d)) is replaced by the exact quantile; Algorithm 3 falls back to the top kbar with a threshold, never
to the whole, unknown domain.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from stream_dp.batch.cost import Cost, epsilon_per_pick, pure, require_count, require_delta, require_positive
from stream_dp.batch.gumbel_top_k import GumbelTopK, gumbel_top_k
from stream_dp.batch.largest_gap import Ranks, noisy_max_epsilon, rank_by_gaussian, rank_by_gumbel
from stream_dp.batch.ranking import Head, head
from stream_dp.batch.result import Outcome
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise


@dataclass(frozen=True, slots=True)
class GapTest:
    """Whether a gap is above `step` for certain: Gaussian noise, and at most `delta` where it is not.

    `step`: how far one neighbour moves a gap; 1, or 2 where counts may be replaced (see `label_votes.py`).
    """

    sigma: float
    delta: float
    step: int

    @property
    def offset(self) -> float:
        """sigma Phi^-1(1 - delta)."""
        return -self.sigma * float(ndtri(self.delta))

    def passes(self, gap: int, noise: OneShotNoise) -> bool:
        noisy = max(self.step, gap) + float(noise.gaussian(self.sigma, 1)[0])
        return noisy - self.offset > self.step


@dataclass(frozen=True, slots=True)
class StableTopK:
    """`ranks`: the k that may be chosen; `step`: how far one neighbour moves a gap, as in `GapTest`."""

    rho: float
    test_delta: float
    ranks: Ranks
    step: int = 1

    def __post_init__(self) -> None:
        require_positive("rho", self.rho)
        require_delta("test_delta", self.test_delta)
        require_count("step", self.step)

    @property
    def cost(self) -> Cost:
        return Cost(self.rho, self.test_delta, loss=self.loss)

    @property
    def loss(self) -> loss.Loss:
        """Of the choice of k, which is 2 sqrt(rho)-bounded-range, and of the test."""
        return loss.bounded_range(2 * math.sqrt(self.rho)) + loss.gaussian(self.rho)

    @property
    def scale(self) -> float:
        """Of the noise that chooses k: 2 step / epsilon with epsilon = 2 sqrt(rho), as the score's range is 2 step."""
        return self.step / math.sqrt(self.rho)

    @property
    def test(self) -> GapTest:
        return GapTest(self.step / math.sqrt(self.rho), self.test_delta, self.step)

    def rank(self, gaps: NDArray[np.int64], noise: OneShotNoise) -> int:
        """A k of a large gap; `gaps` has shape (kbar,)."""
        return rank_by_gumbel(gaps, self.ranks, self.scale, noise)


@dataclass(frozen=True, slots=True)
class GaussianStableTopK:
    """As `StableTopK`, with Gaussian noise for both; its Renyi DP is converted at `conversion_delta`."""

    rho: float
    test_delta: float
    conversion_delta: float
    ranks: Ranks

    def __post_init__(self) -> None:
        require_positive("rho", self.rho)
        require_delta("test_delta", self.test_delta)
        require_delta("conversion_delta", self.conversion_delta)

    @property
    def cost(self) -> Cost:
        epsilon = noisy_max_epsilon(self.rho, self.conversion_delta, self.ranks.number)
        return pure(epsilon, self.conversion_delta + self.test_delta)

    @property
    def scale(self) -> float:
        """Of the noise that chooses k: 2 / scale^2 = rho / 2."""
        return 2 / math.sqrt(self.rho)

    @property
    def test(self) -> GapTest:
        return GapTest(1 / math.sqrt(self.rho), self.test_delta, 1)

    def rank(self, gaps: NDArray[np.int64], noise: OneShotNoise) -> int:
        """A k of a large gap; `gaps` has shape (kbar,)."""
        return rank_by_gaussian(gaps, self.ranks, self.scale, noise)


def stable_top_k(
    counts: NDArray[np.int64], parameters: StableTopK | GaussianStableTopK, noise: OneShotNoise
) -> Outcome:
    """The top items for a k chosen by the mechanism, by rising number, or none and the bottom mark.

    `counts`: int64 of shape (items,), distinct users per item.
    """
    items = _stable_set(head(counts, parameters.ranks.kbar), parameters, noise)
    if items is None:
        return Outcome(np.empty(0, np.int64), bottom=True)
    return Outcome(items)


def _stable_set(
    top: Head, parameters: StableTopK | GaussianStableTopK, noise: OneShotNoise
) -> NDArray[np.int64] | None:
    """The set that passed the test, by rising number so that its order tells nothing; None when it failed."""
    gaps = top.gaps(parameters.ranks.kbar)
    k = parameters.rank(gaps, noise)
    return np.sort(top.items[:k]) if parameters.test.passes(int(gaps[k - 1]), noise) else None


@dataclass(frozen=True, slots=True)
class StableFixedK:
    """`penalty` per rank away from k; half of rho and half of delta go to the set, half to completing it."""

    rho: float
    delta: float
    k: int
    kbar: int
    penalty: float = 1.0

    def __post_init__(self) -> None:
        require_positive("rho", self.rho)
        require_delta("delta", self.delta)
        require_count("k", self.k)
        _ = self.stable  # checks the rest
        if self.k > self.kbar:
            raise ValueError(f"k = {self.k} asks for more than the kbar = {self.kbar} items: raise kbar.")

    @property
    def cost(self) -> Cost:
        completing = loss.any_order(self.rho / 2)
        return Cost(self.rho, self.delta, loss=self.stable.loss + completing)

    @property
    def stable(self) -> StableTopK:
        """The mechanism that finds the set."""
        ranks = Ranks(self.kbar, penalty=self.penalty, around=self.k)
        return StableTopK(self.rho / 2, self.delta / 2, ranks)


def stable_fixed_k(counts: NDArray[np.int64], parameters: StableFixedK, noise: OneShotNoise) -> Outcome:
    """At most k items; the bottom mark says that there are fewer.

    Those of a stable set come first, by rising number; those picked by Gumbel noise follow in noisy order.
    `counts`: int64 of shape (items,), distinct users per item.
    """
    k, kbar = parameters.k, parameters.kbar
    top = head(counts, kbar)
    released = _stable_set(top, parameters.stable, noise)
    if released is None:
        released = np.empty(0, np.int64)
    missing = k - len(released)
    if missing == 0:
        return Outcome(released)
    if missing < 0:
        epsilon = epsilon_per_pick(parameters.rho / 2, k)
        noisy = counts[released] + noise.gumbel(1 / epsilon, len(released))
        return Outcome(released[np.argsort(-noisy, kind="stable")[:k]])
    epsilon = epsilon_per_pick(parameters.rho / 2, missing)
    remaining = counts.copy()
    remaining[released] = 0
    rest = gumbel_top_k(
        remaining, GumbelTopK(epsilon, parameters.delta / 2, missing, kbar - len(released)), noise
    )
    return Outcome(np.concatenate([released, rest.items]), bottom=rest.bottom)
