"""The poles of a buffered linear Toeplitz counter: the best ones for a horizon, and what noise they give.

Instead of the stream x of one label, C x is made noisy, and B (C x + noise) is released, where B C is the matrix of
running sums.  C and B are lower triangular Toeplitz matrices.  Their first columns are the coefficients of

    c(x) = prod (1 - hat_i x) / prod (1 - theta_i x) = 1 + sum over i of r_i x / (1 - theta_i x)
    b(x) = 1 / ((1 - x) c(x))                        = sum over a of s_a / (1 - p_a x),    p = (1, hat_1 .. hat_d)

with 1 > theta_1 > hat_1 > theta_2 > ... > hat_d > 0.  Source: Dvijotham, McMahan, Pillutla, Steinke and Thakurta,
"Efficient and Near-Optimal Noise Generation for Streaming Differential Privacy" (2024).

Because the poles interlace, all r_i and s_a are positive.  One event moves C x by a column of C, so the squared
sensitivity is the sum of c_k^2 over k < horizon, reached at the first round; the noise of round t has the variance of
one draw times the sum of b_k^2 over k < t, which grows with t.  Both are sums of positive terms in closed form: nothing
cancels.

Poles are kept as gaps, 1 - pole, because the largest are so near 1.  A gap is a multiple of 2^-53, so that the pole is
a double, too.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

LARGEST_DEGREE = 6
_NEAR_ENOUGH = (
    1.005  # of the largest sd to that of the square-root Toeplitz matrices, at which no degree is added
)
_MARGIN = 1e-12  # above the relative error of `squared_norm` and `residues`, at most 200 roundings of 2^-53


class Gaps(NamedTuple):
    """1 - theta_i and 1 - hat_i, both in increasing order."""

    theta: tuple[float, ...]
    hat: tuple[float, ...]

    @property
    def poles(self) -> tuple[float, ...]:
        """The gaps of the poles p of b, the one at 1 first."""
        return (0.0, *self.hat)


def residues(zeros: NDArray[Any], poles: NDArray[Any]) -> NDArray[Any]:
    """prod_j (poles_i - zeros_j) / prod_(j != i) (poles_i - poles_j), from the gaps, for floats or fractions.

    These are the s_a for the zeros theta and the poles p, and the r_i for the zeros hat and the poles theta.
    """
    between = poles - poles[:, None]
    np.fill_diagonal(between, 1)
    return np.prod(zeros - poles[:, None], axis=1) / np.prod(between, axis=1)


def output_weights(gaps: Gaps) -> list[Fraction]:
    """The s_a, exactly; they are at most 1 and add up to 1."""
    zeros, poles = (np.array([Fraction(gap) for gap in kind], object) for kind in (gaps.theta, gaps.poles))
    return [Fraction(weight) for weight in residues(zeros, poles)]


def squared_norm(weights: NDArray[np.float64], gaps: NDArray[np.float64], terms: int) -> float:
    """The sum over k < `terms` of (sum_i weights_i (1 - gaps_i)^k)^2."""
    gap = gaps + gaps[:, None] - gaps * gaps[:, None]
    decay = np.log1p(-gaps) + np.log1p(-gaps)[:, None]
    sums = np.where(gap > 0, -np.expm1(terms * decay) / np.where(gap > 0, gap, 1.0), float(terms))
    return float(weights @ sums @ weights)


def squared_sensitivity(gaps: Gaps, horizon: int) -> float:
    """At least the sum of c_k^2 over k < `horizon`, and at most a relative 1e-11 above it."""
    theta = np.array(gaps.theta)
    return (1 + squared_norm(residues(np.array(gaps.hat), theta), theta, horizon - 1)) * (1 + _MARGIN)


def largest_sd(gaps: Gaps, horizon: int) -> float:
    """The standard deviation of a count in the last round, at rho = 1 and one item an event."""
    poles = np.array(gaps.poles)
    last = squared_norm(residues(np.array(gaps.theta), poles), poles, horizon)
    return float(np.sqrt(squared_sensitivity(gaps, horizon) * last / 2))


def square_root_sd(horizon: int) -> float:
    """The sd that the square-root Toeplitz matrices, c(x) = 1 / sqrt(1 - x), reach, to a relative 1e-9."""
    k = np.arange(1, min(horizon, 4096))
    added = float(np.sum(np.cumprod((2 * k - 1) / (2 * k)) ** 2))
    beyond = np.log((horizon - 0.25) / (len(k) + 0.75)) / np.pi  # c_k^2 is near 1 / (pi (k + 1/4))
    return float(1 + added + beyond) / np.sqrt(2)


@lru_cache(maxsize=64)
def best_gaps(horizon: int) -> Gaps:
    """The poles that make the largest sd over the horizon least, of the least degree that comes within 0.5% of the
    square-root Toeplitz matrices, or of degree 6.
    """
    enough = _NEAR_ENOUGH * square_root_sd(horizon)
    for degree in range(LARGEST_DEGREE):
        found = optimal_gaps(horizon, degree)
        if largest_sd(found, horizon) <= enough:
            return found
    return optimal_gaps(horizon, LARGEST_DEGREE)


def optimal_gaps(horizon: int, degree: int) -> Gaps:
    """The poles of this degree that make the largest sd over the horizon least."""
    if not degree:
        return Gaps((), ())

    def objective(parameters: NDArray[np.float64]) -> float:
        with np.errstate(all="ignore"):
            value = np.log(largest_sd(from_parameters(parameters), horizon))
        return float(value) if np.isfinite(value) else 1e3

    start = parameters_of(np.geomspace(0.5 / max(2, horizon), 0.6, 2 * degree))
    return rounded(from_parameters(scipy.optimize.minimize(objective, start, method="BFGS").x))


def rounded(gaps: Gaps) -> Gaps:
    """The nearest multiples of 2^-53."""
    parts = [np.round(np.array(kind) * 2.0**53) * 2.0**-53 for kind in gaps]
    return Gaps(*(tuple(kind.tolist()) for kind in parts))


def parameters_of(gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers without bounds for gaps in increasing order: the first one's logit, and the logarithms of the steps."""
    logits = np.log(gaps / (1 - gaps))
    return np.concatenate([logits[:1], np.log(np.diff(logits))])


def from_parameters(parameters: NDArray[np.float64]) -> Gaps:
    """The gaps of `parameters_of`, those of theta and of hat by turns."""
    logits = np.cumsum(np.concatenate([parameters[:1], np.exp(parameters[1:])]))
    gaps = 1 / (1 + np.exp(-logits))
    return Gaps(tuple(gaps[0::2].tolist()), tuple(gaps[1::2].tolist()))
