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
from stream_dp.batch.result import BatchResult
from stream_dp.batch.stable_top_k import (
    GaussianStableTopK,
    StableFixedK,
    StableTopK,
    stable_fixed_k,
    stable_top_k,
)
from stream_dp.batch.top_k import GaussianTopK, LaplaceTopK, gaussian_top_k, laplace_top_k
from stream_dp.jobs.calibrated import (
    Calibrated,
    Outcome,
    SharedBudget,
    check_bins,
    check_epsilon,
    check_guarantee,
    check_sizes,
    outcome,
    sampled_counts,
)
from stream_dp.jobs.counted import Counted
from stream_dp.jobs.declared import one_shot
from stream_dp.jobs.defaults import GAUSSIAN_TOP_ITEMS, LAPLACE_ITEMS
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
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    check_sizes(items_per_user=items_per_user)
    each, d = laplace_share(epsilon, delta, items_per_user)
    parameters = LaplaceTopK(each, d, items_per_user, kbar)

    def run(rows: Counted, noise: OneShotNoise) -> Outcome:
        return outcome(laplace_top_k(sampled_counts(rows, items_per_user, noise), parameters, noise), k)

    return Calibrated(parameters.cost, delta, True, run, needed=parameters.needed)


@one_shot("top-k", "gaussian", "counts", _SMALL)
def calibrate_gaussian_top_k(
    epsilon: float, delta: float, k: int, kbar: int, items_per_user: int = GAUSSIAN_TOP_ITEMS
) -> Calibrated:
    """Labels with counts and Gaussian noise; every user counts with at most items_per_user items."""
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    check_sizes(items_per_user=items_per_user)
    each = gaussian_share(epsilon, delta, items_per_user)
    parameters = GaussianTopK(each, delta / 2, items_per_user, kbar)

    def run(rows: Counted, noise: OneShotNoise) -> Outcome:
        return outcome(gaussian_top_k(sampled_counts(rows, items_per_user, noise), parameters, noise), k)

    cost = replace(parameters.cost, alone=(epsilon, delta))
    return Calibrated(cost, delta, True, run, needed=parameters.needed)


@one_shot("top-k", "gumbel")
def calibrate_gumbel_top_k(epsilon: float, delta: float, k: int, kbar: int) -> Calibrated:
    """Labels in noisy order, no counts; users may hold any number of items."""
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    each, d = pick_share(epsilon, delta, k)
    found = _by_counts(gumbel_top_k, GumbelTopK(each, d, k, kbar), delta)
    return replace(found, cost=replace(found.cost, alone=(epsilon, delta)))


@one_shot("top-k", "gumbel-known")
def calibrate_gumbel_known(epsilon: float, delta: float, k: int, bins: list[str]) -> Calibrated:
    """k of the public bins, in noisy order; users may hold any number of items."""
    check_guarantee(epsilon, delta)
    check_sizes(k=k)
    check_bins(bins)
    each, _ = pick_share(epsilon, delta, k, threshold=False)
    found = _by_counts(known_top_k, KnownTopK(each, len(bins), k), delta, bins)
    return replace(found, cost=replace(found.cost, alone=(epsilon, delta)))


@one_shot("top-k", "pay-what-you-get")
def calibrate_pay_what_you_get(
    epsilon: float, delta: float, k: int, budget: str, marks: int, queries: int, kbar: int
) -> Calibrated:
    """Calibrate one query of pay-what-you-get: labels in noisy order, without counts.

    The budget pays for `queries` queries, which may release `marks` labels in all: epsilon and delta are for all of
    them together.
    """
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    check_sizes(marks=marks, queries=queries)
    pure, converted = epsilon / marks, epsilon_per_pick(zcdp_rho(epsilon, delta / 2), marks)
    d = (delta if pure >= converted else delta / 2) / queries * DOWN
    opened = PayWhatYouGet(max(pure, converted), d, marks, queries)
    parameters = opened.query(k, kbar)
    found = _by_counts(gumbel_top_k, parameters, delta)
    return replace(found, cost=opened.cost, shared=SharedBudget(budget, opened, k))


@one_shot("top-k", "stable")
def calibrate_stable_top_k(
    epsilon: float, delta: float, k: int, least: int = 1, penalty: float = 0.0
) -> Calibrated:
    """A set of `least` to k labels, of a size that the mechanism chooses, or nothing; users may hold any number."""
    check_guarantee(epsilon, delta)
    ranks = _ranks_up_to(k, least, penalty)
    return _by_counts(stable_top_k, StableTopK(zcdp_rho(epsilon, delta / 2), delta / 2, ranks), delta)


@one_shot("top-k", "stable-gaussian")
def calibrate_stable_gaussian(
    epsilon: float, delta: float, k: int, least: int = 1, penalty: float = 0.0
) -> Calibrated:
    """Calibrate a stable set whose size is chosen with Gaussian noise (report-noisy-max)."""
    check_guarantee(epsilon, delta)
    ranks = _ranks_up_to(k, least, penalty)
    rho = noisy_max_slope(epsilon, delta / 2, ranks.number)
    return _by_counts(stable_top_k, GaussianStableTopK(rho, delta / 2, delta / 2, ranks), delta)


@one_shot("top-k", "ptr-laplace", enumerated=_SMALL_TESTED)
def calibrate_ptr_laplace(epsilon: float, delta: float, k: int) -> Calibrated:
    """The set of the top k if no single user could change it, or nothing; users may hold any number."""
    check_guarantee(epsilon, delta)
    check_sizes(k=k)
    return _by_counts(ptr_top_k, LaplacePtr(epsilon, delta, k), delta)


@one_shot("top-k", "ptr-gaussian", enumerated=_SMALL_TESTED)
def calibrate_ptr_gaussian(epsilon: float, delta: float, k: int) -> Calibrated:
    """Calibrate the tested top k with Gaussian noise in the test."""
    check_guarantee(epsilon, delta)
    check_sizes(k=k)
    parameters = GaussianPtr(gaussian_share(epsilon, delta, 1), delta / 2, k)
    found = _by_counts(ptr_top_k, parameters, delta)
    return replace(found, cost=replace(found.cost, alone=(epsilon, delta)))


@one_shot("top-k", "stable-fixed-k")
def calibrate_stable_fixed_k(
    epsilon: float, delta: float, k: int, kbar: int, penalty: float = 1.0
) -> Calibrated:
    """At most k labels: a stable set of about that size, completed by Gumbel noise."""
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    parameters = StableFixedK(zcdp_rho(epsilon, delta / 2), delta / 2, k, kbar, penalty)
    return _by_counts(stable_fixed_k, parameters, delta)


@one_shot("top-k", "gap", "rank")
def calibrate_gap(epsilon: float, k: int, least: int = 1, penalty: float = 0.0) -> Calibrated:
    """The rank, `least` to k, after which the counts fall most; it names no label, so it needs no delta."""
    check_epsilon(epsilon)
    return _by_rank(largest_gap, LargestGap(epsilon, _ranks_up_to(k, least, penalty)), 0.0)


@one_shot("top-k", "gap-gaussian", "rank")
def calibrate_gap_gaussian(
    epsilon: float, delta: float, k: int, least: int = 1, penalty: float = 0.0
) -> Calibrated:
    """Calibrate the largest gap with Gaussian noise (report-noisy-max)."""
    check_guarantee(epsilon, delta)
    ranks = _ranks_up_to(k, least, penalty)
    sigma = math.sqrt(2 / noisy_max_slope(epsilon, delta, ranks.number))
    return _by_rank(largest_gap_gaussian, GaussianGap(sigma, delta, ranks), delta)


def _ranks_up_to(k: int, least: int, penalty: float) -> Ranks:
    """Those from `least` to k, of which each below k costs `penalty`."""
    check_sizes(k=k, least=least)
    return Ranks(k, least, penalty, around=k)


def _by_rank(release: Callable[..., Gap], parameters: Any, delta: float) -> Calibrated:
    """A mechanism that releases a rank and names no label."""

    def run(rows: Counted, noise: OneShotNoise) -> Outcome:
        return Outcome(np.empty(0, np.int64), rank=release(rows.counts(), parameters, noise).rank)

    return Calibrated(parameters.cost, delta, False, run)


def _by_counts(
    release: Callable[..., BatchResult], parameters: Any, delta: float, bins: list[str] | None = None
) -> Calibrated:
    """A mechanism of labels, without counts, from how many users hold each; with `bins`, only of these."""

    def run(rows: Counted, noise: OneShotNoise) -> Outcome:
        read = rows if bins is None else rows.restricted(bins)
        return outcome(release(read.counts(), parameters, noise))

    return Calibrated(parameters.cost, delta, False, run, bins, needed=getattr(parameters, "needed", None))


def _check_ranks(k: int, kbar: int) -> None:
    check_sizes(k=k, kbar=kbar)
    if kbar < k:
        raise ValueError(f"k = {k} asks for more than the kbar = {kbar} items: raise kbar.")
