"""Tails of discrete Laplace noise, P(x) proportional to exp(-|x| / scale), and the integer offsets they give.

With a = 1 / scale and q = exp(-a): P(Z = x) = (1 - q) / (1 + q) q^|x|, so P(Z >= x) = q^x / (1 + q) for x >= 0.
Every threshold is the least integer that keeps its guarantee with a relative margin for rounding, `_SAFE`.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_SAFE = 1 - 1e-11


def tail(scale: float, x: int) -> float:
    """P(Z >= x) for one draw."""
    if x <= 0:
        return 1 - tail(scale, 1 - x)
    return math.exp(-x / scale) / (1 + math.exp(-1 / scale))


def difference_tail(scale: float, x: int) -> float:
    """P(Z - Z' >= x) for two independent draws, x >= 0.

    P(Z - Z' = w) = ((1 - q) / (1 + q))^2 q^w (w + (1 + q^2) / (1 - q^2)) for w >= 0, summed over w >= x.
    """
    q, rest = math.exp(-1 / scale), -math.expm1(-1 / scale)
    centre = (1 + q * q) / (rest * (1 + q))
    return math.exp(-x / scale) / (1 + q) ** 2 * (rest * (x + centre) + q)


def standard_deviation(scale: float) -> float:
    """sqrt(2 q) / (1 - q)."""
    return math.sqrt(2 * math.exp(-1 / scale)) / -math.expm1(-1 / scale)


def tail_point(scale: float, chance: float) -> int:
    """The least x >= 0 with P(Z >= x) <= `chance`."""
    return least_integer(lambda x: tail(scale, x) <= chance * _SAFE)


def difference_tail_point(scale: float, chance: float) -> int:
    """The least x >= 0 with P(Z - Z' >= x) <= `chance`."""
    return least_integer(lambda x: difference_tail(scale, x) <= chance * _SAFE)


def least_integer(holds: Callable[[int], bool]) -> int:
    """The least n >= 0 at which `holds`, which never turns false again above it."""
    passing = 1
    while not holds(passing):
        passing *= 2
    failing = -1
    while passing - failing > 1:
        middle = (passing + failing) // 2
        if holds(middle):
            passing = middle
        else:
            failing = middle
    return passing


def chance_to_reach(
    weights: NDArray[np.int64], tau: int, scale: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P(weight + Z >= tau) and P(weight + Z < tau), each with full relative precision; float64 of shape (n,)."""
    above = (weights - tau).astype(np.float64)
    one_plus_q = 1 + math.exp(-1 / scale)
    reached = np.exp(np.minimum(above, 0.0) / scale) / one_plus_q  # valid while the weight is at most tau
    missed = np.exp(-np.maximum(above + 1, 1.0) / scale) / one_plus_q  # valid from the weight tau on
    low = above < 0
    return np.where(low, reached, 1 - missed), np.where(low, 1 - reached, missed)
