"""The law of a standard normal draw, put together from cells and places in them: tables in integers, and a series.

Cells.  Cell k is the interval of width w = 2^-12 around x = k w.  Its mass is

    P(k)  proportional to  exp(-x^2 / 2) * (the integral over 0 <= s <= 1 of exp(-w^2 s^2 / 8) cosh(x w s / 2)),

which is computed in integers, so that every machine holds the same table.  Cells are drawn by Walker's alias method:
16 bits pick a bin, 111 bits decide between the two cells that share it, and one bit is the sign.  The work is the same
whatever is drawn, and one look-up fits into the second-level cache.

Places.  In cell k the density of v = (z - x) / w in [-1/2, 1/2] is proportional to exp(-a v - b v^2 / 2), a = x w, b =
w^2.  The map from a uniform v to one of that law, expanded in powers of a and b, where b counts twice, is

    T(v) = v - (1/4 - v^2) Q(v),    Q(v) = a/2 + (2 a^2 + b) v / 6 + `_SERIES`,

up to order 7.  T is a polynomial with T(+-1/2) = +-1/2 that grows, so T(v) has the density 1 / T'(v).  Its distance
from the law is half the mean of |h - 1|, where h(v) = exp(-a T - b T^2 / 2) T' / (the integral of exp(-a y - b y^2 /
2)).  Multiply a by a complex number t and b by t^2: h becomes an analytic function of t, and h - 1 = O(t^8), because T
is right up to order 7.  Where |t a| <= 1.3 and |t^2 b| <= 0.7, adding up the absolute values of all terms gives |h| <
28, so by Cauchy |h - 1| <= 28 r^8 / (1 - r) with r = max(a / 1.3, w / sqrt(0.7)).  Half of its mean is below 2^-88.

What is drawn thus has a law within `DRAW_DISTANCE` of the standard normal, the table included: it holds 51,645 cells of
each sign.  Each mass is rounded down by less than 2^-127, and cell 0 gets what is left: the table is within 2^-112 of
the normal masses, all cells together.  The cells beyond it have less than 2^-118.

Keyed draws of this law: gaussian_noise.py.
"""

from fractions import Fraction
from functools import lru_cache
from math import exp, factorial, sqrt

import numpy as np
from numpy.typing import NDArray

from stream_dp.privacy.discrete_gaussian import gaussian_weights

LARGEST_DRAW = 12.7
"""No draw is larger, in absolute value."""

DRAW_DISTANCE = 2.0**-87
"""Total variation distance of one draw from the standard normal, before rounding."""

_TAIL_SHARE = 2.0**-30  # of DRAW_DISTANCE: what `missing_chance` adds for the cells far out

DRAW_ERROR = 2.0**-92
"""Largest absolute error by rounding with which a draw is computed."""

CELL_BITS = 12
BIN_BITS = 16
LOW_BITS = 63
"""How many bits of a threshold are kept apart: they decide once in 2^48 draws."""

_CHOICE_BITS = 127 - BIN_BITS
_FULL_BIN = 1 << _CHOICE_BITS
_RATIO_UNIT = 1 << 160  # fixed point of the integrals
_TERMS = 7  # of their series; what is left out is below 2^-135
_SPARE_BITS = 150  # of the 320 of the weights

_SERIES = {  # what multiplies a^i b^j in Q: coefficients of 1, v^2, v^4 .. where i is odd, else of v, v^3, v^5 ..
    (3, 0): "-1/48 1/4",
    (1, 1): "-1/32 7/24",
    (4, 0): "-1/30 1/5",
    (2, 1): "-17/240 23/60",
    (0, 2): "-1/160 7/120",
    (5, 0): "1/720 -1/24 1/6",
    (3, 1): "5/1152 -43/360 163/360",
    (1, 2): "1/768 -59/1440 127/720",
    (6, 0): "17/5040 -1/21 1/7",
    (4, 1): "29/2240 -11/63 71/140",
    (2, 2): "9/1120 -191/1680 29/84",
    (0, 3): "1/5376 -59/10080 127/5040",
    (7, 0): "-17/161280 11/1920 -5/96 1/8",
    (5, 1): "-47/92160 4279/161280 -1891/8064 617/1120",
    (3, 2): "-1/2048 4159/161280 -1873/8064 1867/3360",
    (1, 3): "-1/24576 2227/645120 -6299/161280 4369/40320",
}


def missing_chance(draws: int, shift: float) -> float:
    """At most this chance that the law of a draw lacks the value at which another one, moved by the data, stands.

    For the deficit r of what is drawn, r(z) = 1 - density / normal density where that is positive, it bounds the sum of
    the means of r(z_i + d_i) over `draws` normal z_i, for all d_i whose squares add up to at most shift^2.  One mean is
    at most DRAW_DISTANCE * f(d), f(d) = (1 + d)^8 + 2^-30 e^(13 d): the eighth power is that of the series, and the
    rest that of the cells' masses and of those beyond the table, whose deficits are absolute.  All terms of f's power
    series are positive, so (f(d) - f(0) - f'(0) d) / d^2 grows with d, and the sum of f(d_i) is at most draws * f(0) +
    f'(0) * sqrt(draws) * shift + f(shift).
    """
    even = draws * (1 + _TAIL_SHARE)
    linear = (8 + 13 * _TAIL_SHARE) * sqrt(draws) * shift
    return DRAW_DISTANCE * (even + linear + (1 + shift) ** 8 + _TAIL_SHARE * exp(min(700.0, 13 * shift)))


def series(order: int) -> dict[tuple[int, int, int], Fraction]:
    """The coefficients of a^i b^j v^m in Q up to i + 2 j = `order` <= 7, by (i, j, m)."""
    terms = {(1, 0, 0): Fraction(1, 2), (2, 0, 1): Fraction(1, 3), (0, 1, 1): Fraction(1, 6)}
    for (i, j), coefficients in _SERIES.items():
        for n, coefficient in enumerate(coefficients.split()):
            terms[i, j, 2 * n + 1 - i % 2] = Fraction(coefficient)
    return {(i, j, m): coefficient for (i, j, m), coefficient in terms.items() if i + 2 * j <= order}


def collected(power: int) -> tuple[float, ...]:
    """What multiplies a^power in Q from order 3 on: coefficients of v^m as in `_SERIES`, four of them, b put in."""
    width_squared = Fraction(1, 1 << 2 * CELL_BITS)
    sums = [Fraction(0)] * 4
    for (i, j, m), coefficient in series(7).items():
        if i == power and i + 2 * j >= 3:
            sums[m // 2] += coefficient * width_squared**j
    return tuple(map(float, sums))


def cell_masses() -> list[int]:
    """P(|k|) * 2^127 for the cells k = 0, 1, ... of both signs together, rounded down; 0 gets what is left."""
    width_squared = Fraction(1, 1 << 2 * CELL_BITS)
    ratio_terms = [  # of (k w^2 / 2)^2m in the integral
        sum(
            (-width_squared / 8) ** j / (factorial(j) * (2 * m + 2 * j + 1) * factorial(2 * m))
            for j in range(_TERMS)
        )
        for m in range(_TERMS)
    ]
    last, *others = (int(term * _RATIO_UNIT) for term in reversed(ratio_terms))
    masses = []
    for k, weight in enumerate(gaussian_weights(4.0**CELL_BITS)):
        ratio, k_squared = last, k * k
        for term in others:
            ratio = term + (ratio * k_squared >> 4 * CELL_BITS + 2)
        masses.append((weight >> _SPARE_BITS) * ratio)
    total = 2 * sum(masses) - masses[0]
    units = [(mass << 128) // total for mass in masses]
    while not units[-1]:
        units.pop()
    units[0] = (1 << 127) - sum(units[1:])
    return units


@lru_cache(maxsize=1)
def alias_table() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """For each bin: the high 48 bits of its threshold above its alias, and the low 63 bits; uint64 of shape (2^16,).

    111 bits below the threshold mean the bin's own cell, others the alias (Walker 1977; Vose 1991).
    """
    units = cell_masses()
    units += [0] * ((1 << BIN_BITS) - len(units))
    thresholds, aliases = [_FULL_BIN - 1] * len(units), list(range(len(units)))
    small = [k for k, mass in enumerate(units) if mass < _FULL_BIN]
    large = [k for k, mass in enumerate(units) if mass >= _FULL_BIN]
    while small:
        k, giver = small.pop(), large[-1]
        thresholds[k], aliases[k] = units[k], giver
        units[giver] -= _FULL_BIN - units[k]
        if units[giver] < _FULL_BIN:
            small.append(large.pop())
    bins = [threshold >> LOW_BITS << 16 | alias for threshold, alias in zip(thresholds, aliases, strict=True)]
    low = [threshold & (1 << LOW_BITS) - 1 for threshold in thresholds]
    return np.array(bins, np.uint64), np.array(low, np.uint64)
