"""The mechanisms of a top-k job, each calibrated to the guarantee of the whole job.

What they compute, with their sources: stream_dp/batch/.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from stream_dp.batch.cost import epsilon_per_pick
from stream_dp.batch.gumbel_top_k import GumbelTopK, KnownTopK, PayWhatYouGet, gumbel_top_k, known_top_k
from stream_dp.batch.joint_top_k import JointTopK, joint_top_k
from stream_dp.batch.largest_gap import (
    Gap,
    GaussianGap,
    LargestGap,
    Ranks,
    largest_gap,
    largest_gap_gaussian,
    noisy_max_slope,
)
from stream_dp.batch.ptr_top_k import GaussianPtr, LaplacePtr, ptr_top_k
from stream_dp.batch.result import Outcome
from stream_dp.batch.stable_top_k import (
    GaussianStableTopK,
    StableFixedK,
    StableTopK,
    stable_fixed_k,
    stable_top_k,
)
from stream_dp.batch.top_k import GaussianTopK, LaplaceTopK, gaussian_top_k, laplace_top_k
from stream_dp.jobs.calibrated import Calibrated, SharedBudget, calibrated, counted, head, sampled
from stream_dp.jobs.declared import one_shot
from stream_dp.jobs.defaults import GAUSSIAN_COUNT_ITEMS, GAUSSIAN_TOP_ITEMS, LAPLACE_ITEMS
from stream_dp.jobs.histogram import calibrate_two_stage
from stream_dp.jobs.shares import DOWN, gaussian_share, laplace_share, pick_share
from stream_dp.privacy.accounting import zcdp_rho
from stream_dp.privacy.one_shot_noise import OneShotNoise

_SMALL = tuple({"epsilon": 3.0, "delta": 0.05, "k": 1, "kbar": 1, "items_per_user": most} for most in (1, 2))
_SMALL_TESTED = tuple({"epsilon": 3.0, "delta": 0.05, "k": k} for k in (1, 2))


@one_shot("top-k", "laplace", "counts", _SMALL)
def calibrate_laplace_top_k(
    epsilon: float, delta: float, k: int, kbar: int, items_per_user: int = LAPLACE_ITEMS
) -> Calibrated:
    """Labels with counts; every user counts with at most items_per_user items."""
    parameters = LaplaceTopK(*laplace_share(epsilon, delta, items_per_user), items_per_user, kbar)
    return head(calibrated(sampled(items_per_user), laplace_top_k, parameters, delta), k)


@one_shot("top-k", "gaussian", "counts", _SMALL)
def calibrate_gaussian_top_k(
    epsilon: float, delta: float, k: int, kbar: int, items_per_user: int = GAUSSIAN_TOP_ITEMS
) -> Calibrated:
    """Labels with counts and Gaussian noise; every user counts with at most items_per_user items."""
    each = gaussian_share(epsilon, delta / 2, items_per_user)
    parameters = GaussianTopK(each, delta / 2, items_per_user, kbar)
    alone = epsilon, delta
    return head(calibrated(sampled(items_per_user), gaussian_top_k, parameters, delta, alone=alone), k)


@one_shot("top-k", "two-stage", "counts")
def calibrate_two_stage_top_k(
    epsilon: float, delta: float, k: int, items_per_user: int = GAUSSIAN_COUNT_ITEMS
) -> Calibrated:
    """The first k of the histogram of that name."""
    return head(calibrate_two_stage(epsilon, delta, items_per_user), k)


@one_shot("top-k", "gumbel")
def calibrate_gumbel_top_k(epsilon: float, delta: float, k: int, kbar: int) -> Calibrated:
    """Labels in noisy order, no counts; users may hold any number of items."""
    each, d = pick_share(epsilon, delta, k)
    parameters = GumbelTopK(each, d, k, kbar)
    return calibrated(counted, gumbel_top_k, parameters, delta, alone=(epsilon, delta))


@one_shot("top-k", "gumbel-known")
def calibrate_gumbel_known(epsilon: float, delta: float, k: int, bins: list[str]) -> Calibrated:
    """k of the public bins, in noisy order; users may hold any number of items."""
    each, _ = pick_share(epsilon, delta, k, threshold=False)
    parameters = KnownTopK(each, len(bins), k)
    return calibrated(counted, known_top_k, parameters, delta, alone=(epsilon, delta), bins=bins)


@one_shot("top-k", "joint-known")
def calibrate_joint_known(epsilon: float, k: int, bins: list[str]) -> Calibrated:
    """k of the public bins, drawn at once, then put in noisy order; users may hold any number of items."""
    return calibrated(counted, joint_top_k, JointTopK(epsilon, len(bins), k), 0.0, bins=bins)


@one_shot("top-k", "pay-what-you-get")
def calibrate_pay_what_you_get(
    epsilon: float, delta: float, k: int, budget: str, marks: int, queries: int, kbar: int
) -> Calibrated:
    """Calibrate one query of pay-what-you-get: labels in noisy order, without counts.

    The budget pays for `queries` queries, which may release `marks` labels in all: epsilon and delta are for all of
    them together.
    """
    pure, converted = epsilon / marks, epsilon_per_pick(zcdp_rho(epsilon, delta / 2), marks)
    d = (delta if pure >= converted else delta / 2) / queries * DOWN
    opened = PayWhatYouGet(max(pure, converted), d, marks, queries)
    found = calibrated(counted, gumbel_top_k, opened.query(k, kbar), delta)
    return replace(found, cost=opened.cost, shared=SharedBudget(budget, opened, k))


@one_shot("top-k", "stable")
def calibrate_stable_top_k(
    epsilon: float, delta: float, k: int, least: int = 1, penalty: float = 0.0
) -> Calibrated:
    """A set of `least` to k labels, of a size that the mechanism chooses, or nothing; users may hold any number."""
    ranks = Ranks(k, least, penalty, around=k)
    parameters = StableTopK(zcdp_rho(epsilon, delta / 2), delta / 2, ranks)
    return calibrated(counted, stable_top_k, parameters, delta)


@one_shot("top-k", "stable-gaussian")
def calibrate_stable_gaussian(
    epsilon: float, delta: float, k: int, least: int = 1, penalty: float = 0.0
) -> Calibrated:
    """Calibrate a stable set whose size is chosen with Gaussian noise (report-noisy-max)."""
    ranks = Ranks(k, least, penalty, around=k)
    rho = noisy_max_slope(epsilon, delta / 2, ranks.number)
    parameters = GaussianStableTopK(rho, delta / 2, delta / 2, ranks)
    return calibrated(counted, stable_top_k, parameters, delta)


@one_shot("top-k", "ptr-laplace", enumerated=_SMALL_TESTED)
def calibrate_ptr_laplace(epsilon: float, delta: float, k: int) -> Calibrated:
    """The set of the top k if no single user could change it, or nothing; users may hold any number."""
    return calibrated(counted, ptr_top_k, LaplacePtr(epsilon, delta, k), delta)


@one_shot("top-k", "ptr-gaussian", enumerated=_SMALL_TESTED)
def calibrate_ptr_gaussian(epsilon: float, delta: float, k: int) -> Calibrated:
    """Calibrate the tested top k with Gaussian noise in the test."""
    parameters = GaussianPtr(gaussian_share(epsilon, delta / 2, 1), delta / 2, k)
    return calibrated(counted, ptr_top_k, parameters, delta, alone=(epsilon, delta))


@one_shot("top-k", "stable-fixed-k")
def calibrate_stable_fixed_k(
    epsilon: float, delta: float, k: int, kbar: int, penalty: float = 1.0
) -> Calibrated:
    """At most k labels: a stable set of about that size, completed by Gumbel noise."""
    parameters = StableFixedK(zcdp_rho(epsilon, delta / 2), delta / 2, k, kbar, penalty)
    return calibrated(counted, stable_fixed_k, parameters, delta)


@one_shot("top-k", "gap", "rank")
def calibrate_gap(epsilon: float, k: int, least: int = 1, penalty: float = 0.0) -> Calibrated:
    """The rank, `least` to k, after which the counts fall most; it names no label, so it needs no delta."""
    return _by_rank(largest_gap, LargestGap(epsilon, Ranks(k, least, penalty, around=k)), 0.0)


@one_shot("top-k", "gap-gaussian", "rank")
def calibrate_gap_gaussian(
    epsilon: float, delta: float, k: int, least: int = 1, penalty: float = 0.0
) -> Calibrated:
    """Calibrate the largest gap with Gaussian noise (report-noisy-max)."""
    ranks = Ranks(k, least, penalty, around=k)
    sigma = math.sqrt(2 / noisy_max_slope(epsilon, delta, ranks.number))
    return _by_rank(largest_gap_gaussian, GaussianGap(sigma, delta, ranks), delta)


def _by_rank(release: Callable[..., Gap], parameters: Any, delta: float) -> Calibrated:
    """A mechanism that releases a rank and names no label."""

    def ranked(counts: Any, parameters: Any, noise: OneShotNoise) -> Outcome:
        return Outcome(np.empty(0, np.int64), rank=release(counts, parameters, noise).rank)

    return calibrated(counted, ranked, parameters, delta)
