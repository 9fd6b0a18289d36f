"""Every mechanism that a job may ask for, by name, calibrated to a guarantee (epsilon, delta) for the whole job.

Half of delta goes to the threshold and half to the conversion of rho, except where a pure epsilon is the cheaper
guarantee: then all of it goes to the threshold.  The mechanisms themselves, with their sources: stream_dp/batch/.

What a request leaves open is chosen without looking at data: docs/jobs.md, "What is chosen where you say nothing".
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from stream_dp.batch.cost import epsilon_per_item, epsilon_per_pick
from stream_dp.batch.greedy_set_union import Greedy, greedy, greedy_transfer
from stream_dp.batch.gumbel_top_k import GumbelTopK, PayWhatYouGet, gumbel_top_k
from stream_dp.batch.histogram import (
    GaussianHistogram,
    LaplaceHistogram,
    gaussian_histogram,
    laplace_histogram,
)
from stream_dp.batch.known_domain import KnownHistogram, SparseVector, known_histogram, sparse_vector
from stream_dp.batch.largest_gap import (
    GaussianGap,
    LargestGap,
    largest_gap,
    largest_gap_gaussian,
    noisy_max_epsilon,
    require_ranks,
)
from stream_dp.batch.policy_set_union import GaussianPolicy, LaplacePolicy, gaussian_policy, laplace_policy
from stream_dp.batch.set_union import (
    GaussianSetUnion,
    LaplaceCount,
    LaplaceSetUnion,
    gaussian_count,
    gaussian_weighted,
    laplace_count,
    laplace_weighted,
)
from stream_dp.batch.set_union_thresholds import tokens_at_no_cost
from stream_dp.batch.sips import Sips, sips
from stream_dp.batch.stable_top_k import StableFixedK, StableTopK, stable_fixed_k, stable_top_k
from stream_dp.batch.top_k import GaussianTopK, LaplaceTopK, gaussian_top_k, laplace_top_k
from stream_dp.jobs.calibrated import (
    MOST_ITEMS,
    Calibrated,
    Outcome,
    SharedBudget,
    check_epsilon,
    check_guarantee,
    check_sizes,
    outcome,
    sampled_counts,
)
from stream_dp.jobs.request import BadRequest, JobName, JobRequest, nearest
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.accounting import discrete_gaussian_sigma_squared, gaussian_rho, zcdp_rho
from stream_dp.privacy.discrete_gaussian import LEAST_SIGMA_SQUARED
from stream_dp.privacy.one_shot_noise import OneShotNoise

_DOWN = 1 - 1e-12

GAUSSIAN_UNION_ITEMS = 200
"""Items of a user that count by default where their number moves only the threshold, and that hardly."""

GAUSSIAN_COUNT_ITEMS = 30
"""The same where noise grows with the square root of their number."""

LAPLACE_ITEMS = 10
"""The same where noise, or what is left for each item, goes with their number itself."""

GAUSSIAN_ALPHA = 30.0
"""Noise scales above the threshold up to which weights are filled by default.

Less finds more where users are many and loses much where they are few; nobody knows which without looking.
"""

MOST_BY_GUMBEL = 100
"""Up to so many labels Gumbel noise finds more of the largest than Gaussian noise; docs/jobs.md has the table."""

_RANKS_PER_LABEL, _LEAST_RANKS = 50, 5_000


def _laplace_top_k(
    epsilon: float, delta: float, k: int, kbar: int, items_per_user: int = LAPLACE_ITEMS
) -> Calibrated:
    """Labels with counts; every user counts with at most items_per_user items."""
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    check_sizes(items_per_user=items_per_user)
    each, d = _laplace_share(epsilon, delta, items_per_user)
    parameters = LaplaceTopK(each, d, items_per_user, kbar)

    def run(rows: Rows, noise: OneShotNoise) -> Outcome:
        return outcome(laplace_top_k(sampled_counts(rows, items_per_user, noise), parameters, noise), k)

    return Calibrated(parameters.cost, delta, True, run)


def _gaussian_top_k(
    epsilon: float, delta: float, k: int, kbar: int, items_per_user: int = GAUSSIAN_COUNT_ITEMS
) -> Calibrated:
    """Labels with counts and Gaussian noise; every user counts with at most items_per_user items."""
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    check_sizes(items_per_user=items_per_user)
    each = _gaussian_share(epsilon, delta, items_per_user)
    parameters = GaussianTopK(each, delta / 2, items_per_user, kbar)

    def run(rows: Rows, noise: OneShotNoise) -> Outcome:
        return outcome(gaussian_top_k(sampled_counts(rows, items_per_user, noise), parameters, noise), k)

    return Calibrated(replace(parameters.cost, alone=(epsilon, delta)), delta, True, run)


def _gumbel_top_k(epsilon: float, delta: float, k: int, kbar: int) -> Calibrated:
    """Labels in noisy order, no counts; users may hold any number of items."""
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    pure, converted = epsilon / k, epsilon_per_pick(zcdp_rho(epsilon, delta / 2), k)
    d = delta if pure >= converted else delta / 2
    parameters = GumbelTopK(max(pure, converted), d, k, kbar)
    return Calibrated(
        parameters.cost,
        delta,
        False,
        lambda rows, noise: outcome(gumbel_top_k(rows.counts(), parameters, noise)),
    )


def _pay_what_you_get(
    epsilon: float, delta: float, k: int, budget: str, marks: int, queries: int, kbar: int
) -> Calibrated:
    """One of the `queries` of a budget that may release `marks` labels in all, in noisy order, without counts.

    epsilon and delta are those of the budget: of all its queries together.
    """
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    check_sizes(marks=marks, queries=queries)
    pure, converted = epsilon / marks, epsilon_per_pick(zcdp_rho(epsilon, delta / 2), marks)
    d = (delta if pure >= converted else delta / 2) / queries * _DOWN
    opened = PayWhatYouGet(max(pure, converted), d, marks, queries)
    parameters = opened.query(k, kbar)
    return Calibrated(
        opened.cost,
        delta,
        False,
        lambda rows, noise: outcome(gumbel_top_k(rows.counts(), parameters, noise)),
        shared=SharedBudget(budget, opened, k),
    )


def _stable_top_k(epsilon: float, delta: float, k: int, least: int = 1) -> Calibrated:
    """A set of `least` to k labels, of a size that the mechanism chooses, or nothing; users may hold any number."""
    check_guarantee(epsilon, delta)
    check_sizes(k=k, least=least)
    parameters = StableTopK(zcdp_rho(epsilon, delta / 2), delta / 2, k, least=least)
    return Calibrated(
        parameters.cost,
        delta,
        False,
        lambda rows, noise: outcome(stable_top_k(rows.counts(), parameters, noise)),
    )


def _stable_fixed_k(epsilon: float, delta: float, k: int, kbar: int, penalty: float = 1.0) -> Calibrated:
    """At most k labels: a stable set of about that size, completed by Gumbel noise."""
    check_guarantee(epsilon, delta)
    _check_ranks(k, kbar)
    parameters = StableFixedK(zcdp_rho(epsilon, delta / 2), delta / 2, k, kbar, penalty)
    return Calibrated(
        parameters.cost,
        delta,
        False,
        lambda rows, noise: outcome(stable_fixed_k(rows.counts(), parameters, noise)),
    )


def _gap(epsilon: float, k: int, least: int = 1) -> Calibrated:
    """The rank, `least` to k, after which the counts fall most; it names no label, so it needs no delta."""
    check_epsilon(epsilon)
    check_sizes(k=k, least=least)
    parameters = LargestGap(epsilon, k, least)

    def run(rows: Rows, noise: OneShotNoise) -> Outcome:
        return Outcome(np.empty(0, np.int64), rank=largest_gap(rows.counts(), parameters, noise).rank)

    return Calibrated(parameters.cost, 0.0, False, run)


def _gap_gaussian(epsilon: float, delta: float, k: int, least: int = 1) -> Calibrated:
    """The same with Gaussian noise (report-noisy-max)."""
    check_guarantee(epsilon, delta)
    check_sizes(k=k, least=least)
    require_ranks(least, k)

    def excess(sigma: float) -> float:
        return noisy_max_epsilon(sigma, delta, k - least + 1) - epsilon

    if not excess(1e9) < 0 < excess(1e-3):
        raise ValueError(f"no noise between 0.001 and 1e9 gives epsilon {epsilon:g} at delta {delta:g}.")
    sigma = float(brentq(excess, 1e-3, 1e9, xtol=1e-12, rtol=1e-12)) * (1 + 1e-9)
    parameters = GaussianGap(sigma, delta, k, least)

    def run(rows: Rows, noise: OneShotNoise) -> Outcome:
        return Outcome(
            np.empty(0, np.int64), rank=largest_gap_gaussian(rows.counts(), parameters, noise).rank
        )

    return Calibrated(parameters.cost, delta, False, run)


def _laplace_histogram(epsilon: float, delta: float, items_per_user: int = LAPLACE_ITEMS) -> Calibrated:
    """All labels whose noisy count reaches a threshold, with their counts."""
    check_guarantee(epsilon, delta)
    check_sizes(items_per_user=items_per_user)
    each, d = _laplace_share(epsilon, delta, items_per_user)
    parameters = LaplaceHistogram(each, d, items_per_user)

    def run(rows: Rows, noise: OneShotNoise) -> Outcome:
        return outcome(laplace_histogram(sampled_counts(rows, items_per_user, noise), parameters, noise))

    return Calibrated(parameters.cost, delta, True, run)


def _gaussian_histogram(
    epsilon: float, delta: float, items_per_user: int = GAUSSIAN_COUNT_ITEMS
) -> Calibrated:
    """The same with Gaussian noise, which is less where a user counts with many items."""
    check_guarantee(epsilon, delta)
    check_sizes(items_per_user=items_per_user)
    each = _gaussian_share(epsilon, delta, items_per_user)
    parameters = GaussianHistogram(each, delta / 2, items_per_user)

    def run(rows: Rows, noise: OneShotNoise) -> Outcome:
        return outcome(gaussian_histogram(sampled_counts(rows, items_per_user, noise), parameters, noise))

    return Calibrated(replace(parameters.cost, alone=(epsilon, delta)), delta, True, run)


def _known_histogram(
    epsilon: float, bins: list[str], items_per_user: int = LAPLACE_ITEMS, eta: float = 0.0
) -> Calibrated:
    """A noisy count of every one of the public bins; with eta, those below the high-pass threshold become 0."""
    check_epsilon(epsilon)
    check_sizes(items_per_user=items_per_user)
    _check_bins(bins)
    parameters = KnownHistogram(epsilon / items_per_user, len(bins), items_per_user, eta)

    def run(rows: Rows, noise: OneShotNoise) -> Outcome:
        counts = sampled_counts(rows.restricted(bins), items_per_user, noise)
        return outcome(known_histogram(counts, parameters, noise))

    return Calibrated(parameters.cost, 0.0, True, run, bins)


def _sparse_vector(epsilon: float, bins: list[str], threshold: int, most: int) -> Calibrated:
    """The first `most` public bins that reach `threshold`; users may hold any number of items."""
    check_epsilon(epsilon)
    check_sizes(threshold=threshold, most=most)
    _check_bins(bins)
    parameters = SparseVector(epsilon, len(bins), threshold, most)

    def run(rows: Rows, noise: OneShotNoise) -> Outcome:
        return outcome(sparse_vector(rows.restricted(bins).counts(), parameters, noise))

    return Calibrated(parameters.cost, 0.0, True, run, bins)


def _union(run: Callable[..., Any], kind: Callable[..., Any], items: int) -> Callable[..., Calibrated]:
    """A set union in one round of weights, where a user counts with a sample of `items` items unless told otherwise."""

    def calibrated(epsilon: float, delta: float, items_per_user: int = items) -> Calibrated:
        check_guarantee(epsilon, delta)
        check_sizes(items_per_user=items_per_user)
        parameters = kind(epsilon, delta, items_per_user)
        return Calibrated(
            parameters.cost,
            delta,
            False,
            lambda rows, noise: outcome(run(rows.baskets(), parameters, noise)),
        )

    return calibrated


def _policy(
    run: Callable[..., Any], kind: Callable[..., Any], items: int, fill: float
) -> Callable[..., Calibrated]:
    """A set union in which users come one after the other and fill up what still needs weight."""

    def calibrated(
        epsilon: float, delta: float, items_per_user: int = items, alpha: float = fill
    ) -> Calibrated:
        check_guarantee(epsilon, delta)
        check_sizes(items_per_user=items_per_user)
        parameters = kind(epsilon, delta, items_per_user, alpha)
        return Calibrated(
            parameters.cost,
            delta,
            False,
            lambda rows, noise: outcome(run(rows.baskets(), parameters, noise)),
        )

    return calibrated


def _greedy(epsilon: float, delta: float, tokens: int, alpha: float = 3.0) -> Calibrated:
    """Users spend tokens on the items they name most; they may hold any number of items."""
    parameters = _greedy_parameters(epsilon, delta, tokens, alpha)
    return Calibrated(
        parameters.cost,
        delta,
        False,
        lambda rows, noise: outcome(greedy(rows.baskets(), parameters, noise)),
    )


def _greedy_transfer(
    epsilon: float, delta: float, frequencies: dict[str, int], tokens: int, alpha: float = 3.0
) -> Calibrated:
    """Users spend tokens on the items that are most frequent in PUBLIC data."""
    parameters = _greedy_parameters(epsilon, delta, tokens, alpha)
    if any(not 0 <= number < 2**62 for number in frequencies.values()):
        raise ValueError("frequencies must be whole numbers from 0 to 2^62.")
    public = np.array(
        [*frequencies.values(), 0], np.int64
    )  # the last is for labels that the public data lack

    def run(rows: Rows, noise: OneShotNoise) -> Outcome:
        known = public[rows.places(list(frequencies))]
        return outcome(greedy_transfer(rows.baskets(), known, parameters, noise))

    return Calibrated(parameters.cost, delta, False, run)


def _sips(epsilon: float, delta: float, items_per_user: int = GAUSSIAN_UNION_ITEMS) -> Calibrated:
    """Three rounds of weights that need no order of users: the fastest of those that find much."""
    check_guarantee(epsilon, delta)
    check_sizes(items_per_user=items_per_user)
    parameters = Sips(gaussian_rho(epsilon, delta / 2) * _DOWN, delta / 2, items_per_user)
    return Calibrated(
        parameters.cost,
        delta,
        False,
        lambda rows, noise: outcome(sips(rows.baskets(), parameters, noise)),
    )


MECHANISMS: dict[str, dict[str, Callable[..., Calibrated]]] = {
    "top-k": {
        "laplace": _laplace_top_k,
        "gaussian": _gaussian_top_k,
        "gumbel": _gumbel_top_k,
        "pay-what-you-get": _pay_what_you_get,
        "stable": _stable_top_k,
        "stable-fixed-k": _stable_fixed_k,
        "gap": _gap,
        "gap-gaussian": _gap_gaussian,
    },
    "set-union": {
        "sips": _sips,
        "policy": _policy(laplace_policy, LaplacePolicy, LAPLACE_ITEMS, 3.0),
        "policy-gaussian": _policy(gaussian_policy, GaussianPolicy, GAUSSIAN_UNION_ITEMS, GAUSSIAN_ALPHA),
        "weighted": _union(laplace_weighted, LaplaceSetUnion, LAPLACE_ITEMS),
        "weighted-gaussian": _union(gaussian_weighted, GaussianSetUnion, GAUSSIAN_UNION_ITEMS),
        "count": _union(laplace_count, LaplaceCount, LAPLACE_ITEMS),
        "count-gaussian": _union(gaussian_count, GaussianSetUnion, GAUSSIAN_COUNT_ITEMS),
        "greedy": _greedy,
        "greedy-transfer": _greedy_transfer,
    },
    "histogram": {
        "laplace": _laplace_histogram,
        "gaussian": _gaussian_histogram,
        "known": _known_histogram,
        "sparse-vector": _sparse_vector,
    },
}
"""Job, then mechanism.  Parameters without a default, and not in `_CHOSEN`, are required."""

_CHOSEN: dict[str, Callable[[dict[str, Any]], int]] = {
    "kbar": lambda given: _kbar(given["k"]),
    "tokens": lambda given: tokens_at_no_cost(min(given["epsilon"], 4.0)),  # more would only make it slower
}
"""Parameters that are chosen by the others where a request does not give them."""


def takes(job: JobName, mechanism: str, parameter: str) -> bool:
    """Whether there is such a mechanism, and a parameter of this name among its own."""
    found = MECHANISMS[job].get(mechanism)
    return found is not None and parameter in inspect.signature(found).parameters


def default_mechanism(job: JobName, k: int = 1) -> str:
    """The mechanism of a job that names none; `k`: how many labels a top-k wants."""
    chosen = "gumbel" if k <= MOST_BY_GUMBEL else "gaussian"
    return {"top-k": chosen, "set-union": "policy-gaussian", "histogram": "gaussian"}[job]


def calibrate(request: JobRequest) -> Calibrated:
    """The mechanism of a request; raises `BadRequest`."""
    known = MECHANISMS[request.job]
    if request.mechanism not in known:
        raise BadRequest(nearest(f"mechanism of {request.job}", request.mechanism, known))
    mechanism = known[request.mechanism]
    taken = inspect.signature(mechanism).parameters
    given = request.parameters
    for name in given:
        if name not in taken:
            raise BadRequest(
                f"the mechanism {request.mechanism} takes no {name}; it takes {', '.join(taken)}"
            )
    values = {name: each.default for name, each in taken.items() if each.default is not each.empty} | given
    for name in taken:
        if name not in values and name not in _CHOSEN:
            raise BadRequest(f"the mechanism {request.mechanism} needs {name}: give it")
    try:
        values |= {name: _CHOSEN[name](values) for name in taken if name not in values}
        return replace(mechanism(**values), parameters=values)
    except (ValueError, OverflowError) as error:
        raise BadRequest(str(error).rstrip(".")) from None


def _kbar(k: int) -> int:
    """The ranks that are looked at for k labels: the threshold lies above the count behind them, so far down."""
    return max(k, _LEAST_RANKS, min(_RANKS_PER_LABEL * k, MOST_ITEMS))


def _check_ranks(k: int, kbar: int) -> None:
    check_sizes(k=k, kbar=kbar)
    if kbar < k:
        raise ValueError(f"k = {k} asks for more than the kbar = {kbar} items: raise kbar.")


def _laplace_share(epsilon: float, delta: float, items_per_user: int) -> tuple[float, float]:
    """The epsilon of each count and the delta of the threshold: the better of pure and zCDP composition."""
    pure = epsilon / items_per_user
    converted = epsilon_per_item(zcdp_rho(epsilon, delta / 2), items_per_user)
    return (pure, delta) if pure >= converted else (converted, delta / 2)


def _gaussian_share(epsilon: float, delta: float, items_per_user: int) -> float:
    """The epsilon of each count, by the exact divergence of discrete Gaussian noise at half of delta."""
    if epsilon < 1e-6:
        raise ValueError(f"epsilon must be at least 1e-6 with Gaussian noise, not {epsilon}.")
    sigma_squared = discrete_gaussian_sigma_squared(epsilon, delta / 2, items_per_user)
    return max(LEAST_SIGMA_SQUARED, sigma_squared) ** -0.5 * _DOWN


def _greedy_parameters(epsilon: float, delta: float, tokens: int, alpha: float) -> Greedy:
    check_guarantee(epsilon, delta)
    check_sizes(tokens=tokens)
    return Greedy(epsilon, delta, tokens, alpha)


def _check_bins(bins: list[str]) -> None:
    check_sizes(bins=len(bins))
    if len(set(bins)) != len(bins):
        raise ValueError("bins must name each label once.")
