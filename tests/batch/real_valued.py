"""Thresholds and offsets as the papers state them, for real-valued noise, to compare the shipped integer ones with.

Sources: Rogers, "A Unifying Privacy Analysis Framework for Unknown Domain Algorithms in Differential Privacy" (the
survey); Durfee and Rogers, poster "Task: Top-k"; Gopi et al. 2020.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from stream_dp.batch.histogram import Histogram
from stream_dp.batch.set_union_thresholds import novel_chance


def laplace_threshold(parameters: Histogram) -> float:
    """Dinf + b ln(D0 / (2 d)) (survey Theorem 7)."""
    return parameters.count_change - parameters.scale * math.log(2 * parameters.tail)


def gaussian_threshold(parameters: Histogram) -> float:
    """Dinf + sigma Phi^-1(1 - d / D0) (survey Theorem 7)."""
    return parameters.count_change + parameters.scale * float(norm.isf(parameters.tail))


def laplace_offset(epsilon: float, threshold_delta: float, items_per_user: int) -> float:
    """1 + y / epsilon with D (2 + y) / 4 exp(-y) = d: exact for Laplace noise on item and threshold."""
    log_tail = math.log(threshold_delta / items_per_user)
    y = brentq(lambda y: math.log((2 + y) / 4) - y - log_tail, 0.0, 4 - 2 * log_tail, xtol=1e-14, rtol=1e-14)
    return 1 + float(y) / epsilon


def gaussian_offset(epsilon: float, threshold_delta: float, items_per_user: int, kbar: int) -> float:
    """1 + sqrt(2) / epsilon * Phi^-1(1 - d / min(D0, kbar)) (survey Theorem 8)."""
    return 1 + math.sqrt(2) / epsilon * float(norm.isf(threshold_delta / min(items_per_user, kbar)))


def policy_laplace(epsilon: float, delta: float, items_per_user: int) -> float:
    """max over t <= D0 of 1/t + ln(1 / (2 (1 - (1 - d)^(1/t)))) / epsilon (Gopi et al. 2020)."""
    return max(
        1 / novel - math.log(2 * novel_chance(delta, novel)) / epsilon
        for novel in range(1, items_per_user + 1)
    )


def greedy(epsilon: float, delta: float, tokens: int) -> float:
    """The least R >= 1 with, for all t <= K and q = exp(-epsilon R) / 2,

    1 - (1 - q e^(epsilon (1 - (t-1)/K))) (1 - q e^(epsilon/K))^(t-1) <= d.
    """
    before = np.arange(tokens)

    def excess(threshold: float) -> float:
        largest = np.exp(epsilon * (1 - before / tokens - threshold)) / 2
        least = math.exp(epsilon / tokens - epsilon * threshold) / 2
        chances = -np.expm1(np.log1p(-largest) + before * math.log1p(-least))
        return math.log(float(np.max(chances))) - math.log(delta)

    highest = 2 - math.log(delta / tokens) / epsilon
    return float(brentq(excess, 1.0, highest, xtol=1e-14, rtol=1e-14)) if excess(1.0) > 0 else 1.0
