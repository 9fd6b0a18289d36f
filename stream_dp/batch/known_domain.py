"""Histograms over a PUBLIC list of bins: they give no protection to labels that came from the data.

The bins must be fixed before the data is seen, so `bins` is a parameter and counts of another shape are refused.
Sources: report "Differentially Private Location-based Histogram Publication" (Laplace noise, high-pass filter);
Lyu, Su and Li 2017, "Understanding the Sparse Vector Technique", Algorithm 7 and Theorems 4 and 5.

Corrected: the report calls the Laplace histogram epsilon-DP with noise Lap(1/epsilon) because one record changes one
count; here a user may change `items_per_user` counts and pays for each. Noise is discrete, for counts are integers.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch import laplace_tails
from stream_dp.batch.cost import Cost, pure, require_count, require_noise_scale, require_positive
from stream_dp.batch.result import Outcome
from stream_dp.privacy import loss
from stream_dp.privacy.discrete_gaussian import variance
from stream_dp.privacy.one_shot_noise import LARGEST_SCALE, OneShotNoise


@dataclass(frozen=True, slots=True)
class KnownHistogram:
    """`epsilon` per changed count, `bins` of the public list; `eta` >= 0 weighs the high-pass filter, 0 is none.

    (items_per_user * epsilon)-DP, and items_per_user * epsilon^2 / 2 -zCDP, for adding or removing one user.
    """

    epsilon: float
    bins: int
    items_per_user: int = 1
    eta: float = 0.0

    def __post_init__(self) -> None:
        require_noise_scale(self.epsilon)
        require_count("bins", self.bins)
        require_count("items_per_user", self.items_per_user)
        if not (math.isfinite(self.eta) and self.eta >= 0):
            raise ValueError(f"eta must be at least 0, not {self.eta}.")

    @property
    def cost(self) -> Cost:
        rho = self.items_per_user * self.epsilon**2 / 2
        alone = (self.items_per_user * self.epsilon, 0.0)
        return Cost(rho, 0.0, alone, loss=loss.pure(self.epsilon, self.items_per_user))

    @property
    def sd(self) -> float:
        return laplace_tails.standard_deviation(1 / self.epsilon)

    @property
    def high_pass(self) -> float:
        """theta = eta ln(bins) / epsilon: noisy counts below it are noise rather than data."""
        return self.eta * math.log(self.bins) / self.epsilon


def known_histogram(counts: NDArray[np.int64], parameters: KnownHistogram, noise: OneShotNoise) -> Outcome:
    """Noise on every bin, then every noisy count below the high-pass threshold set to 0: all bins are returned.

    `counts` is int64 of shape (bins,) in the order of the public list.
    """
    _require_public_bins(counts, parameters.bins)
    noisy = counts + noise.discrete_laplace(1 / parameters.epsilon, len(counts))
    if parameters.eta:
        noisy[noisy < parameters.high_pass] = 0
    sd = None if parameters.eta else parameters.sd  # a count that became 0 may have been any small one
    return Outcome(np.arange(len(counts)), noisy, sd, "laplace")


@dataclass(frozen=True, slots=True)
class GaussianKnownHistogram:
    """Discrete Gaussian noise of variance parameter `sigma_squared` on each of the `bins` of the public list.

    A user changes at most `items_per_user` of the counts, by 1 each, and no bin is left out whatever it holds: the
    release is that noise on those shifts, so it is (items_per_user / (2 sigma_squared))-zCDP without any delta, and its
    (epsilon, delta) is the exact divergence of so many unit shifts.
    """

    sigma_squared: float
    bins: int
    items_per_user: int

    @property
    def cost(self) -> Cost:
        rho = self.items_per_user / (2 * self.sigma_squared)
        return Cost(rho, 0.0, loss=loss.discrete_gaussian(self.sigma_squared, self.items_per_user))

    @property
    def sd(self) -> float:
        return math.sqrt(variance(self.sigma_squared))


def gaussian_known_histogram(
    counts: NDArray[np.int64], parameters: GaussianKnownHistogram, noise: OneShotNoise
) -> Outcome:
    """Noise on every bin; `counts` is int64 of shape (bins,) in the order of the public list."""
    _require_public_bins(counts, parameters.bins)
    noisy = counts + noise.discrete_gaussian(parameters.sigma_squared, len(counts))
    return Outcome(np.arange(len(counts)), noisy, parameters.sd)


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Finds at most `most` public bins whose count is above `threshold`, whatever the number of bins.

    `epsilon`-DP for adding or removing one user, who may change every count by 1, all in one direction. Half of it
    pays for the released counts; the search splits the rest 1 : most^(2/3) between the threshold and the queries
    (their optimum for monotonic queries), with Lap(1 / e1), Lap(most / e2) and Lap(most / e3).
    """

    epsilon: float
    bins: int
    threshold: int
    most: int

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        require_count("bins", self.bins)
        require_count("most", self.most)
        require_count("threshold", self.threshold)
        if max(self.scales) > LARGEST_SCALE:
            raise ValueError(
                f"epsilon {self.epsilon:g} for {self.most} bins needs noise of scale {max(self.scales):.2g}, and at "
                f"most {LARGEST_SCALE:g} can be drawn: raise epsilon or lower most."
            )

    @property
    def cost(self) -> Cost:
        return pure(self.epsilon)

    @property
    def scales(self) -> tuple[float, float, float]:
        """Noise scales of the threshold, of each query and of each released count."""
        ratio = self.most ** (2 / 3)
        threshold = self.epsilon / 2 / (1 + ratio)
        return 1 / threshold, self.most / (threshold * ratio), 2 * self.most / self.epsilon

    @property
    def sd(self) -> float:
        return laplace_tails.standard_deviation(self.scales[2])


def sparse_vector(counts: NDArray[np.int64], parameters: SparseVector, noise: OneShotNoise) -> Outcome:
    """The first `most` bins, in list order, whose noisy count reaches the noisy threshold, with fresh noisy counts.

    `counts` is int64 of shape (bins,) in the order of the public list. The released counts carry noise of their own:
    the noise that decided must never be released.
    """
    _require_public_bins(counts, parameters.bins)
    on_threshold, on_query, on_count = parameters.scales
    level = parameters.threshold + int(noise.discrete_laplace(on_threshold, 1)[0])
    reached = counts + noise.discrete_laplace(on_query, len(counts)) >= level
    items = np.flatnonzero(reached)[: parameters.most]
    noisy = counts[items] + noise.discrete_laplace(on_count, len(items))
    return Outcome(items, noisy, parameters.sd, "laplace")


def _require_public_bins(counts: NDArray[np.int64], bins: int) -> None:
    if counts.shape != (bins,):
        raise ValueError(
            f"this mechanism needs one count for each of the {bins} bins of a public list: list the bins in "
            "advance, or use an unknown-domain histogram."
        )
