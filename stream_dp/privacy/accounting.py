"""From zero-concentrated DP (zCDP) and from discrete Gaussian noise to (epsilon, delta), and back.

Budgets compose by adding rho; the conversion happens once, at the end. Three conversions of rho:

- `bun_steinke_epsilon`: rho + 2 sqrt(rho ln(1/delta)), the papers' form. Loose, here for comparison only.
- `zcdp_*`: the tight one (Canonne, Kamath and Steinke 2020, Proposition 12), valid for all of zCDP.
- `gaussian_*`: exact for the continuous Gaussian (Balle and Wang 2018). NOT a bound for discrete noise.

For discrete Gaussian noise there is something better than either, see `discrete_gaussian_delta`. Natural
logs; epsilon, delta and rho are without units. Every result is rounded to the safe side: epsilon and delta
up, rho down.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

from stream_dp.privacy.thresholds import sum_tail_bounds

Reals = NDArray[np.float64]

_SAFETY = 1e-12  # relative to the largest part of a sum; what a result is moved to the safe side
_LARGEST_EPSILON = 600.0  # above, exp(epsilon) nears the end of a double's range: only the zCDP bound is used
_NO_SHIFT = 1e-18  # the mu^2 that stands for none
_DIGITS = 5  # significant decimal digits of a calibrated sigma_squared


@dataclass(frozen=True, slots=True)
class Conversion:
    """An (epsilon, delta) guarantee and the bound that proves it.

    `method` is "exact" (hockey-stick divergence of the discrete noise itself, from its tails) or "zcdp".
    `rho` is what the same mechanism costs in zCDP, for composition with others.
    """

    method: str
    epsilon: float
    delta: float
    rho: float


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Least epsilon >= 0 such that rho-zCDP implies (epsilon, delta)-DP by Canonne-Kamath-Steinke."""
    _check_rho(rho)
    _check_delta(delta)
    log_delta = math.log(delta)
    if rho == 0 or _zcdp_log_delta(rho, 0.0) <= log_delta:
        return 0.0
    loose = bun_steinke_epsilon(rho, delta)
    near = _root(lambda epsilon: _zcdp_log_delta(rho, epsilon) - log_delta, 0.0, loose)
    b = _best_order(rho, near)
    epsilon = (1 + b) * rho + (_order_term(b) - log_delta) / b
    largest_part = (1 + b) * rho - (_order_term(b) + log_delta) / b
    return max(0.0, epsilon + largest_part * _SAFETY)


@lru_cache(maxsize=4096)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho such that rho-zCDP implies (epsilon, delta)-DP by Canonne-Kamath-Steinke."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    log_delta = math.log(delta)
    bun_steinke = (epsilon / (math.sqrt(epsilon - log_delta) + math.sqrt(-log_delta))) ** 2
    lower = upper = max(bun_steinke, delta * delta / 16)
    while _zcdp_log_delta(lower, epsilon) > log_delta:
        lower /= 4
    while _zcdp_log_delta(upper, epsilon) <= log_delta:
        upper *= 4
    near = _root(lambda rho: _zcdp_log_delta(rho, epsilon) - log_delta, lower, upper)
    b = _best_order(near, epsilon)
    rho = (epsilon + (log_delta - _order_term(b)) / b) / (1 + b)
    largest_part = (epsilon - (log_delta + _order_term(b)) / b) / (1 + b)
    return max(0.0, rho - largest_part * _SAFETY)


def bun_steinke_epsilon(rho: float, delta: float) -> float:
    """rho + 2 sqrt(rho ln(1/delta)) (Bun and Steinke 2016). Loose: for comparison only."""
    _check_rho(rho)
    _check_delta(delta)
    return (rho + 2 * math.sqrt(-rho * math.log(delta))) * (1 + _SAFETY)


def gaussian_delta(rho: float, epsilon: float) -> float:
    """Exact delta of a continuous Gaussian with zCDP parameter rho (Balle and Wang 2018, Theorem 8).

    Phi(-a) - e^epsilon Phi(-b), a = epsilon/mu - mu/2, b = epsilon/mu + mu/2, mu = sqrt(2 rho). As b^2/2 -
    epsilon = a^2/2, both terms share one exponential and nothing overflows. NOT a bound for discrete noise.
    """
    _check_rho(rho)
    _check_epsilon(epsilon)
    if rho == 0:
        return 0.0
    mu = math.sqrt(2 * rho)
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    common = math.exp(-a * a / 2) / 2
    second = common * float(erfcx(b / math.sqrt(2)))
    first = float(ndtr(-a)) if a < 0 else common * float(erfcx(a / math.sqrt(2)))
    return min(
        1.0, max(0.0, first - second) * (1 + _SAFETY) + 1e-14 * first
    )  # first and second nearly cancel


def gaussian_deltas(mu_squared: Reals, epsilon: Reals) -> Reals:
    """Upper bounds on the delta of continuous Gaussians, each of its mu^2 at its epsilon; arrays that broadcast.

    `gaussian_delta` for many at once; an epsilon may be negative here.
    """
    mu = np.sqrt(np.maximum(mu_squared, _NO_SHIFT))
    first = ndtr(mu / 2 - epsilon / mu)
    second = np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    return np.asarray(np.minimum(1.0, np.maximum(0.0, first - second) + 1e-11 * first))


def gaussian_rho(epsilon: float, delta: float) -> float:
    """Largest rho at which a continuous Gaussian is (epsilon, delta)-DP. NOT valid for discrete noise."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    log_delta = math.log(delta)
    lower = upper = zcdp_rho(epsilon, delta)
    while gaussian_delta(upper, epsilon) <= delta:
        upper *= 2
    rho = _root(lambda rho: math.log(gaussian_delta(rho, epsilon)) - log_delta, lower, upper)
    while gaussian_delta(rho, epsilon) > delta:
        rho *= 1 - _SAFETY
    return rho


def gaussian_epsilon(rho: float, delta: float) -> float:
    """Exact epsilon of a continuous Gaussian with zCDP parameter rho. NOT a bound for discrete noise."""
    _check_rho(rho)
    _check_delta(delta)
    if gaussian_delta(rho, 0.0) <= delta:
        return 0.0
    log_delta = math.log(delta)
    return _root(
        lambda epsilon: math.log(max(gaussian_delta(rho, epsilon), 1e-320)) - log_delta,
        0.0,
        bun_steinke_epsilon(rho, delta),
    ) * (1 + _SAFETY)


def discrete_gaussian_delta(sigma_squared: float, shifts: int, epsilon: float) -> float:
    """Upper bound on the delta of `shifts` unit shifts, each in its own draw of N_Z(0, sigma_squared).

    The neighbours' log-likelihood ratio at x is sum_i (x_i^2 - (x_i - 1)^2) / (2 s2) up to its sign: it
    depends on x through the sum alone. So the best event is a tail of the sum S of m = `shifts` draws, and
    the hockey-stick divergence is exactly

        delta = P(S >= t) - e^epsilon P(S >= t + m),   t = floor(epsilon s2 - m / 2) + 1.

    Shifts of either sign, in any mixture, give the same value, for the draws are symmetric; fewer shifts give
    less. The tails carry rigorous relative margins of 1e-12 to 1e-10, and t is found in exact rational
    arithmetic. The composition may be adaptive, because every shift has this one pair of distributions as its
    worst case.
    """
    _check_discrete(sigma_squared, shifts)
    _check_epsilon(epsilon)
    start = math.floor(Fraction(epsilon) * Fraction(sigma_squared) - Fraction(shifts, 2)) + 1
    first = sum_tail_bounds(sigma_squared, shifts, start)[1]
    if epsilon > _LARGEST_EPSILON:
        return first
    second = math.exp(epsilon) * sum_tail_bounds(sigma_squared, shifts, start + shifts)[0]
    return min(1.0, max(0.0, first * (1 + 1e-15) - second * (1 - 1e-15)))


def discrete_gaussian_epsilon(sigma_squared: float, shifts: int, delta: float) -> Conversion:
    """What `shifts` = items_per_event * levels unit shifts in N_Z(0, sigma_squared) guarantee at this delta.

    The exact divergence, or the zCDP conversion of rho = shifts / (2 sigma_squared) where that is smaller or
    the exact tails are out of reach. Epsilon is the least one to a relative 1e-10, rounded up.
    """
    _check_discrete(sigma_squared, shifts)
    _check_delta(delta)
    rho = shifts / (2 * sigma_squared) * (1 + _SAFETY)
    passing = zcdp_epsilon(rho, delta)
    if discrete_gaussian_delta(sigma_squared, shifts, passing) > delta:
        return Conversion("zcdp", passing, delta, rho)
    failing = 0.0
    if discrete_gaussian_delta(sigma_squared, shifts, failing) <= delta:
        return Conversion("exact", failing, delta, rho)
    while passing - failing > 1e-10 * passing:
        middle = (failing + passing) / 2
        if discrete_gaussian_delta(sigma_squared, shifts, middle) <= delta:
            passing = middle
        else:
            failing = middle
    return Conversion("exact", passing, delta, rho)


@lru_cache(maxsize=256)
def discrete_gaussian_sigma_squared(epsilon: float, delta: float, shifts: int) -> float:
    """Least sigma_squared of five significant digits at which `shifts` unit shifts are (epsilon, delta)-DP.

    The value itself has been checked against `discrete_gaussian_delta`, or is the zCDP bound rounded up. Five
    digits are at most 1e-4 above the least real value, and print and parse as the same double.
    """
    _check_discrete(1.0, shifts)
    _check_epsilon(epsilon)
    _check_delta(delta)
    if epsilon < 1e-6:
        raise ValueError(f"Noise can be calibrated for an epsilon from 1e-6, not {epsilon}.")

    def meets(index: int) -> bool:
        return discrete_gaussian_delta(_on_grid(index), shifts, epsilon) <= delta

    passing = _grid_index(shifts / (2 * zcdp_rho(epsilon, delta)) * (1 + _SAFETY))
    step, failing = 1000, passing
    while meets(failing):
        passing, failing, step = failing, failing - step, 2 * step
    while passing - failing > 1:
        middle = (failing + passing) // 2
        if meets(middle):
            passing = middle
        else:
            failing = middle
    return _on_grid(passing)


_PER_DECADE = 9 * 10 ** (_DIGITS - 1)


def _on_grid(index: int) -> float:
    """The index-th number of five significant digits, counted from 1.0000."""
    decade, place = divmod(index, _PER_DECADE)
    return float(f"{10 ** (_DIGITS - 1) + place}e{decade - _DIGITS + 1}")


def _grid_index(value: float) -> int:
    """The least index whose number is not below `value`."""
    decade = math.floor(math.log10(value))
    index = decade * _PER_DECADE + math.floor((value / 10.0**decade - 1) * 10 ** (_DIGITS - 1)) - 2
    while _on_grid(index) < value:
        index += 1
    return index


def _zcdp_log_delta(rho: float, epsilon: float) -> float:
    """ln of the least delta that Canonne-Kamath-Steinke give every rho-zCDP mechanism, rho > 0; may be above 0.

    min over a > 1 of exp((a-1)(a rho - epsilon)) (1 - 1/a)^a / (a-1). Any a is valid, so an inexact minimiser
    is safe.
    """
    b = _best_order(rho, epsilon)
    return b * ((1 + b) * rho - epsilon) + _order_term(b)


def _order_term(b: float) -> float:
    """ln((1 - 1/a)^a / (a - 1)) at a = 1 + b, without cancellation."""
    return -b * math.log1p(1 / b) - math.log1p(b)


def _best_order(rho: float, epsilon: float) -> float:
    """The b = a - 1 > 0 that minimises the bound: the root of its derivative, which increases with b."""

    def slope(log_b: float) -> float:
        b = math.exp(log_b)
        return (1 + 2 * b) * rho - epsilon - math.log1p(1 / b)

    low = max(-700.0, min(-2.0 - max(0.0, rho - epsilon), -math.log(2 * rho)))
    high = math.log((epsilon + 1) / (2 * rho) + 1)
    return math.exp(low if slope(low) >= 0 else _root(slope, low, high))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(scipy.optimize.brentq(function, low, high, xtol=1e-300, rtol=1e-14, maxiter=500))


def _check_rho(rho: float) -> None:
    if not (math.isfinite(rho) and (rho == 0 or rho >= 1e-250)):
        raise ValueError(f"rho must be zero or a number from 1e-250, not {rho}.")


def _check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon must be at least 0, not {epsilon}.")


def _check_delta(delta: float) -> None:
    if not 1e-100 <= delta < 1:
        raise ValueError(f"delta must lie between 1e-100 and 1, not {delta}.")


def _check_discrete(sigma_squared: float, shifts: int) -> None:
    if not 0 < sigma_squared <= 1e30:
        raise ValueError(f"sigma_squared must be a positive number up to 1e30, not {sigma_squared}.")
    if shifts < 1:
        raise ValueError(f"The number of shifts must be at least 1, not {shifts}.")
