"""The top k as an unordered set, for a k that is given: test that one user cannot change it, then release it.

Propose-test-release (PTR). Counts are of DISTINCT users; g = max(1, h_(k) - h_(k+1)). Release the set iff g + Z >= tau,
where Z is integer noise and tau the least integer with P(1 + Z >= tau) <= d; otherwise only the bottom mark.

- Discrete Laplace noise of scale 1 / epsilon: (epsilon, d)-DP, and d-approximate epsilon^2 / 2 -zCDP.
- Discrete Gaussian noise of variance parameter 1 / epsilon^2: d-approximate epsilon^2 / 2 -zCDP.

Proof. One user moves every count by at most 1, all in one direction, so g moves by at most 1 and the outcome of the
test is as private as Z. If the neighbours' top k differ, both gaps are at most 1: then the test passes with probability
at most d on each, and when it fails both release the same. If they are equal, the release is a function of the test.

Source: Zhu and Wang 2022, Algorithms 4 and 5, Lemma 18 and Corollary 19. The exact tails of integer noise replace
their ln(1/d) / epsilon and sigma sqrt(2 ln(1/d)), which pass less often.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch import laplace_tails
from stream_dp.batch.cost import Cost, pure, require_count, require_delta, require_noise_scale
from stream_dp.batch.ranking import head
from stream_dp.batch.result import Outcome
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.thresholds import sum_tail_threshold


@dataclass(frozen=True, slots=True)
class Ptr:
    """`epsilon`: one over the scale of the noise; `test_delta`: the chance that an unstable set may pass."""

    epsilon: float
    test_delta: float
    k: int

    def __post_init__(self) -> None:
        require_noise_scale(self.epsilon)
        require_delta("test_delta", self.test_delta)
        require_count("k", self.k)


class LaplacePtr(Ptr):
    """With discrete Laplace noise."""

    __slots__ = ()

    @property
    def cost(self) -> Cost:
        return pure(self.epsilon, self.test_delta)

    @property
    def tau(self) -> int:
        """The noisy gap to reach."""
        return 1 + laplace_tails.tail_point(1 / self.epsilon, self.test_delta)

    def draw(self, noise: OneShotNoise) -> int:
        return int(noise.discrete_laplace(1 / self.epsilon, 1)[0])


class GaussianPtr(Ptr):
    """With discrete Gaussian noise."""

    __slots__ = ()

    @property
    def cost(self) -> Cost:
        spent = loss.discrete_gaussian(self.epsilon**-2, 1)
        return Cost(self.epsilon**2 / 2, self.test_delta, loss=spent)

    @property
    def tau(self) -> int:
        """The noisy gap to reach."""
        return sum_tail_threshold(self.epsilon**-2, 1, self.test_delta)

    def draw(self, noise: OneShotNoise) -> int:
        return int(noise.discrete_gaussian(self.epsilon**-2, 1)[0])


def ptr_top_k(
    counts: NDArray[np.int64], parameters: LaplacePtr | GaussianPtr, noise: OneShotNoise
) -> Outcome:
    """The top k items by rising number, or none and the bottom mark.

    `counts`: int64 of shape (items,), distinct users per item.
    """
    top = head(counts, parameters.k)
    gap = max(1, int(top.gaps(parameters.k)[-1]))
    if gap + parameters.draw(noise) < parameters.tau:
        return Outcome(np.empty(0, np.int64), bottom=True)
    return Outcome(np.sort(top.items))
