"""Thresholds of set union: what keeps a label that only one user holds from being released.

A user alone may give weight to t novel labels, for some t that the threshold must cover; the largest over t counts.
"""

import math
from functools import lru_cache

import numpy as np
import scipy
from scipy.special import ndtri

from stream_dp.batch import laplace_tails
from stream_dp.privacy.accounting import gaussian_delta

_SAFE = 1 - 1e-11


def novel_chance(delta: float, novel: int) -> float:
    """1 - (1 - d)^(1/t): the chance each of `novel` independent labels may have if none shall pass but with d."""
    return -math.expm1(math.log1p(-delta) / novel)


def shared_budget_tau(epsilon: float, delta: float, items_per_user: int, unit: int) -> int:
    """The least integer weight to release, where a user spreads `unit` evenly: at most ceil(unit / t) on each of t.

    Discrete Laplace noise of scale unit / epsilon. Source: Gopi et al. 2020, there for real-valued noise.
    """
    return max(
        -(-unit // novel) + laplace_tails.tail_point(unit / epsilon, novel_chance(delta, novel))
        for novel in range(1, items_per_user + 1)
    )


def shared_budget_gaussian(sigma: float, delta: float, items_per_user: int) -> float:
    """max over t <= D0 of 1 / sqrt(t) + sigma Phi^-1((1 - d)^(1/t)) (Gopi et al. 2020; Swanberg et al. 2023)."""
    novel = np.arange(1, items_per_user + 1)
    chances = -np.expm1(np.log1p(-delta * _SAFE) / novel)
    return float(np.max(1 / np.sqrt(novel) - sigma * ndtri(chances)))


def greedy_tau(epsilon: float, delta: float, tokens: int) -> int:
    """The least tau to release, in tokens of 1/K, for discrete Laplace noise of scale K / epsilon.

    A user has K tokens. Whatever the cascade, t <= K labels become novel, each of weight at least 1 and K in sum; the
    worst has one label of K - t + 1 tokens and t - 1 of one token:
    1 - (1 - p(K-t+1)) (1 - p(1))^(t-1) <= d with p(w) = P(w + noise >= tau).
    """
    scale = tokens / epsilon
    largest = tokens - np.arange(tokens, dtype=np.int64)

    def holds(above: int) -> bool:
        chances, _ = laplace_tails.chance_to_reach(largest, tokens + above, scale)
        return _worst(delta * _SAFE, chances, float(chances[-1])) <= 0

    return tokens + laplace_tails.least_integer(holds)


def _worst(delta: float, chances: np.ndarray, least: float) -> float:
    """Over t, ln(chance that one of the t novel labels passes) - ln(d): not above 0 where the threshold holds."""
    novel = np.arange(len(chances))
    none = np.log1p(-np.minimum(chances, 1 - 1e-15)) + novel * math.log1p(-min(least, 1 - 1e-15))
    return math.log(float(np.max(-np.expm1(none)))) - math.log(delta)


def tokens_at_no_cost(epsilon: float) -> int:
    """The most tokens K with K e^(epsilon/K) <= e^epsilon, at which the threshold is that of a single token."""
    tokens = max(1, math.floor(math.exp(epsilon)))
    while tokens > 1 and tokens * math.exp(epsilon / tokens) > math.exp(epsilon):
        tokens -= 1
    return tokens


@lru_cache(maxsize=1024)
def analytic_gaussian_sigma(epsilon: float, delta: float) -> float:
    """The least sigma at which N(0, sigma^2) on an l2 sensitivity of 1 is (epsilon, delta)-DP (Balle and Wang 2018)."""

    def log_excess(log_sigma: float) -> float:
        return math.log(max(gaussian_delta(math.exp(-2 * log_sigma) / 2, epsilon), 1e-320)) - math.log(delta)

    sigma = math.exp(float(scipy.optimize.brentq(log_excess, -8.0, 14.0, xtol=1e-13))) * (1 + 1e-12)
    while gaussian_delta(1 / (2 * sigma**2), epsilon) > delta:
        sigma *= 1 + 1e-12
    return sigma
