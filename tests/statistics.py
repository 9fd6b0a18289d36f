"""Statistical tests with a known rate of false alarms.

Every critical value belongs to the false-alarm rate `FALSE_ALARM`: a correct implementation fails a test about
once in a million seeds.  Seeds are fixed, so a test that passes once keeps passing.  Whoever uses one of these
also shows a broken implementation that it rejects; without that, a test may have no power at all.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, chi2, norm

FALSE_ALARM = 1e-6

NORMAL_CRITICAL = float(norm.isf(FALSE_ALARM / 2))
"""|standard normal| exceeds this, 4.8916, with probability `FALSE_ALARM`."""

_SMALLEST_EXPECTED = 25  # cells below are pooled: the chi-square law is poor where little is expected


def chi_square_critical(degrees_of_freedom: int) -> float:
    """A chi-square variable exceeds this with probability `FALSE_ALARM`."""
    return float(chi2.isf(FALSE_ALARM, degrees_of_freedom))


def fits(sample: ArrayLike, law: Mapping[int, float]) -> bool:
    """Pearson's goodness of fit: may independent integers have the law `law` (value: probability)?

    Neighbouring values are pooled until every cell expects at least 25; what lies outside the pooled range
    belongs to its outermost cells.
    """
    sample = np.asarray(sample).ravel()
    edges, expected, pooled = [], [], 0.0
    for value in sorted(law):
        pooled += law[value] * sample.size
        if pooled >= _SMALLEST_EXPECTED:
            edges.append(value)
            expected.append(pooled)
            pooled = 0.0
    expected[-1] += pooled
    assert len(expected) > 1, "the sample is too small to test anything"
    observed = np.bincount(np.searchsorted(edges[:-1], sample), minlength=len(edges))
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return statistic <= chi_square_critical(len(expected) - 1)


def uncorrelated(x: ArrayLike, y: ArrayLike, variance: float) -> bool:
    """May the pairs of `x` and `y`, each centred and of this variance, be independent of each other?

    The mean product of n independent pairs has standard deviation variance / sqrt(n).
    """
    products = np.asarray(x, float).ravel() * np.asarray(y, float).ravel()
    return bool(abs(products.mean()) <= NORMAL_CRITICAL * variance / products.size**0.5)


def rate_at_most(rate: float, occurrences: int, trials: int) -> bool:
    """Exact binomial bound: may something that happens with probability at most `rate` happen this often?"""
    return bool(binom.sf(occurrences - 1, trials, rate) > FALSE_ALARM)


def law_of(probability: Callable[[int], float], reach: int) -> dict[int, float]:
    """The law that gives each k from -reach to reach probability(|k|)."""
    return {k: probability(abs(k)) for k in range(-reach, reach + 1)}
