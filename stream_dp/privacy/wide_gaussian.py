"""Discrete Gaussians of a large variance, as a short integer combination of draws of a small one.

Write N_Z(0, v) for P(k) proportional to exp(-k^2 / (2 v)) on the integers.

Lemma.  Let X ~ N_Z(0, v) and Z ~ N_Z(0, w) be independent, c an integer, u = v + c^2 w and r2 = v w / u.  Completing
the square,

    (x - c z)^2 / v + z^2 / w  =  x^2 / u + (z - c w x / u)^2 / r2,

so P(X + c Z = x) is exp(-x^2 / (2 u)) times a sum over all integers z of exp(-(z - mu_x)^2 / (2 r2)), and by Poisson
summation this sum is sqrt(2 pi r2) up to a factor between 1 - e and 1 + e,

    e = 2 (exp(-2 pi^2 r2) + exp(-8 pi^2 r2) + ...).

Hence the probabilities of X + c Z are those of N_Z(0, u) up to factors between (1 - e) / (1 + e) and its inverse, and
its total variation distance from N_Z(0, u) is at most e / (1 - e).

Both facts below come from this lemma with r2 >= 4 in every step, where e < 1.1e-34 (`STEP_DISTANCE`):

- Draws of N_Z(0, s2) added up one after the other with given integer factors have the law N_Z(0, T s2), T the sum of
  the squares of the factors, if each step keeps r2 >= 4.
- `square_factors` finds few such factors for any T.
"""

from fractions import Fraction
from functools import lru_cache
from math import isqrt

LEAST_SIGMA_SQUARED = 12.0
"""From this variance on, `square_factors` and the counters that use them keep r2 >= 4 in every step."""

STEP_DISTANCE = 1.1e-34
"""At most this total variation distance, and this relative error of any probability, for each step with r2 >= 4."""

_SMOOTH = 4


@lru_cache(maxsize=256)
def square_factors(total: int, sigma_squared: float) -> tuple[int, ...]:
    """Factors c_1, ..., c_n = 1 whose squares add up to `total`: sum of c_i Z_i ~ N_Z(0, total * sigma_squared).

    The Z_i are independent draws of N_Z(0, sigma_squared), and the sum is built from the last one on.  Adding c Z to
    what has the squares t - c^2 gives r2 = sigma_squared (t - c^2) / t, so each c is the largest with c^2 <= t (1 - 4 /
    sigma_squared).  At `LEAST_SIGMA_SQUARED` that is two thirds of t.  Below 2^(2k + 1), n is at most 2 k + 8: what is
    left of t >= 144 is at most t / 3 + 2 sqrt(t) <= t / 2, and from t < 144 on there are at most 10 factors.

    >>> square_factors(2**20, 1000.0)
    (1021, 78, 7, 1, 1)
    """
    if sigma_squared < LEAST_SIGMA_SQUARED:
        raise ValueError(f"sigma_squared must be at least {LEAST_SIGMA_SQUARED:g}, not {sigma_squared:g}")
    share = 1 - _SMOOTH / Fraction(sigma_squared)
    factors, rest = [], total
    while rest > 1:
        factors.append(isqrt(int(rest * share)))
        rest -= factors[-1] ** 2
    return (*factors, 1)
