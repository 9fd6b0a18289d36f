"""The poles of a block whose windows have the least noise: see window.py and, for what poles are, blt_parameters.py.

At place i of a block of W rounds, with b_k the coefficients of b and one draw of variance 1, a window's noise has

    sum of b_k^2 over k < i     +     sum of b_k^2 over k < W - i     +     sum of (b_(k + W - i) - b_k)^2 over k < i

as its variance: that of N_b(i), of the draws of block b - 1 after place i, and of what N_(b-1) changed by since.

Labels are tested by N_b(i) alone, so thresholds follow from the first of the three.  Poles that make the sum least make
thresholds a twelfth higher; so what is made least is its square root times the square of the first's, at the places
where they are largest.  That takes most of what the sum can lose and leaves thresholds within 1% of blt's.
"""

from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from stream_dp.counters.blt_parameters import (
    Gaps,
    from_parameters,
    largest_sd,
    optimal_gaps,
    parameters_of,
    residues,
    rounded,
    squared_sensitivity,
)

_LARGEST_DEGREE = 3  # a fourth gains less than one part in a thousand
_GAIN = 0.01  # of the logarithm of what is made least
_PLACES = 257  # so many places of a block are looked at, at most


def largest_window_sd(gaps: Gaps, window: int) -> float:
    """The standard deviation of a window at the worst place of a block, at rho = 1 and one item, before rounding."""
    places = np.unique(np.linspace(1, window, min(window, _PLACES)).astype(np.int64))
    poles, weights = np.array(gaps.poles), residues(np.array(gaps.theta), np.array(gaps.poles))
    pairs, decay = poles + poles[:, None] - poles * poles[:, None], np.log1p(-poles)
    together = decay + decay[:, None]

    def sums(terms: NDArray[np.int64]) -> NDArray[np.float64]:
        """The sum of p_a^k p_b^k over k < each of `terms`."""
        number = terms[:, None, None]
        return np.where(pairs > 0, -np.expm1(number * together) / np.where(pairs > 0, pairs, 1.0), number)

    def prefix(terms: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.einsum("a,nab,b->n", weights, sums(terms), weights)

    changed = weights * -np.expm1((window - places)[:, None] * decay)
    change = np.einsum("na,nab,nb->n", changed, sums(places), changed)
    worst = np.max(prefix(places) + prefix(window - places) + change)
    return float(np.sqrt(squared_sensitivity(gaps, window) * worst / 2))


@lru_cache(maxsize=64)
def best_window_gaps(window: int) -> Gaps:
    """The poles that make the noise of windows and of tests least; another is only added where it gains something."""
    best = Gaps((), ())
    for degree in range(1, _LARGEST_DEGREE + 1 if window > 1 else 1):
        found = _optimal(window, degree)
        if _badness(found, window) > _badness(best, window) - _GAIN:
            break
        best = found
    return best


def _badness(gaps: Gaps, window: int) -> float:
    of_window, of_test = largest_window_sd(gaps, window), largest_sd(gaps, window)
    return float(np.log(of_window) + 2 * np.log(of_test))


def _optimal(window: int, degree: int) -> Gaps:
    def objective(parameters: NDArray[np.float64]) -> float:
        with np.errstate(all="ignore"):
            value = _badness(from_parameters(parameters), window)
        return value if np.isfinite(value) else 1e3

    start = parameters_of(np.concatenate([*zip(*optimal_gaps(window, degree), strict=True)]))
    # The largest of many is not smooth: the simplex finds where, and the gradient goes down the rest.
    near = scipy.optimize.minimize(
        objective, start, method="Nelder-Mead", options={"maxfev": 3000, "adaptive": True}
    ).x
    return rounded(from_parameters(scipy.optimize.minimize(objective, near, method="BFGS").x))
