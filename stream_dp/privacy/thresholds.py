"""Tails of sums of discrete Gaussians, and the integer threshold that hides a label's first appearance.

`S` is the sum of `terms` independent draws of N_Z(0, sigma_squared), P(k) proportional to
exp(-k^2 / (2 sigma_squared)) on the integers. Write m = terms, v = m * sigma_squared. Everything rests on:

Lattice identity. |k|^2 = (sum k)^2 / m + |k - mean(k)|^2, and adding 1 to every k_i adds m to the sum and
leaves the second part alone. Summing over all k in Z^m with sum x gives, exactly and for every integer x,

    P(S = x) = w(x mod m) * exp(-x^2 / (2 v)),

so m numbers w(0..m-1) describe every tail, however deep, without underflow or cancellation.

Flatness. w(r) is a sum of exp(-|u|^2 / (2 sigma_squared)) over a shifted copy of the lattice A_{m-1}. Poisson
summation turns it into a constant times 1 + sum over non-zero y in the dual lattice of exp(-2 pi^2
sigma_squared |y|^2) times a cosine. Each y is the projection of one k in Z^m with |sum k| <= m/2, so |y|^2 =
|k|^2 - (sum k)^2 / m >= |k|^2 - |sum k| / 2 >= |k|^2 / 2. Hence w deviates from a constant by at most the
factor 1 +- eta,

    eta = (sum over j in Z of exp(-pi^2 sigma_squared j^2))^m - 1,

about 2 m exp(-pi^2 sigma_squared): nothing from sigma_squared = 4 on. The sum is then N_Z(0, v) itself, for
all practical purposes and within a known factor. Below that, w comes from one convolution of positive
numbers.

Every bound carries a relative margin that covers rounding: 1e-12 in the flat case, less than 1e-10 else.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx

_FLATNESS = 1e-13  # largest eta taken for none; twice this is inside _FLAT_MARGIN
_FLAT_MARGIN = 1e-12  # exp at exponents up to 690 (3e-13), flatness (2e-13), Euler-Maclaurin (1e-13)
_DEEPEST = 690.0  # exponents beyond this would leave the range of a double
_SMALLEST = 1e-270  # no upper bound goes below it
_DIRECT_VARIANCE = 1e6  # above this variance a tail is too long to add up term by term
_MOST_CONVOLVED = 256  # terms; more than that with a non-flat w is out of reach
_UNIT_ROUNDOFF = 2.0**-53


class _Shape(NamedTuple):
    """w over one period (float64, positive), and the relative error of w times a Gaussian factor."""

    weights: NDArray[np.float64]
    margin: float


def sum_tail_bounds(sigma_squared: float, terms: int, x: int) -> tuple[float, float]:
    """Lower and upper bound on P(S >= x), at most 2e-10 apart, relatively, on the tail side x > 0.

    Out of reach (more than 256 terms below sigma_squared of about 4, or terms / sigma_squared above 2,200)
    the pair is (0, Chernoff bound exp(-x^2 / (2 v))): wide, and still true, for N_Z(0, s2) is s2-sub-Gaussian
    (Canonne, Kamath and Steinke 2020). The upper bound stops at 1e-270, far from where doubles lose digits.
    """
    _check(sigma_squared, terms)
    if x <= 0:
        lower, upper = sum_tail_bounds(sigma_squared, terms, 1 - x)
        return max(0.0, 1.0 - upper - _UNIT_ROUNDOFF), min(1.0, 1.0 - lower + _UNIT_ROUNDOFF)
    variance = terms * sigma_squared
    shape = _shape(sigma_squared, terms)
    exponent = x * x / (2 * variance)
    if shape is None or exponent > _DEEPEST:
        return 0.0, max(_SMALLEST, math.exp(-min(exponent, _DEEPEST)) * (1 + _FLAT_MARGIN))
    if variance > _DIRECT_VARIANCE:
        tail, rest = float(shape.weights[0]) * _wide_tail(variance, x), 0.0
    else:
        tail, rest = _added_tail(shape.weights, variance, x)
    if tail < _SMALLEST:
        return 0.0, _SMALLEST
    return tail * (1 - shape.margin), (tail + rest) * (1 + shape.margin)


def sum_tail(sigma_squared: float, terms: int, x: int) -> float:
    """Upper bound on P(S >= x), within a relative 1e-9 of it where `sum_tail_bounds` says so."""
    return sum_tail_bounds(sigma_squared, terms, x)[1]


@lru_cache(maxsize=1024)
def sum_tail_threshold(sigma_squared: float, terms: int, tail: float) -> int:
    """Least count that a label must reach: 1 + min{ x : P(S >= x) <= tail }.

    A label that only the differing event holds has true count 1, so it passes `noisy >= threshold` with
    probability at most `tail`. The result is never below the exact value, because the search uses an upper
    bound on P. It is one above it only if `tail` lies within the margin (1e-10 relative) above an attained
    probability.

    Args:
        sigma_squared: variance parameter of each draw.
        terms: number of draws added up, popcount of the round for the Binary Mechanism.
        tail: probability allowed, from 1e-250 to below 1/2; threshold_delta / (items_per_event * horizon).
    """
    _check(sigma_squared, terms)
    if not 1e-250 <= tail < 0.5:
        raise ValueError(f"The tail probability must lie between 1e-250 and 0.5, not {tail}: change delta.")
    # S >= 0 has probability above 1/2, and at the Chernoff point even the loosest bound is below the tail.
    failing = 0
    passing = math.ceil(math.sqrt(2 * terms * sigma_squared * (math.log(1 / tail) + 1e-9))) + 1
    while passing - failing > 1:
        middle = (failing + passing) // 2
        if sum_tail(sigma_squared, terms, middle) <= tail:
            passing = middle
        else:
            failing = middle
    return passing + 1


def _check(sigma_squared: float, terms: int) -> None:
    if not 0 < sigma_squared <= 1e30:
        raise ValueError(f"sigma_squared must be a positive number up to 1e30, not {sigma_squared}.")
    if terms < 1:
        raise ValueError(f"The number of noise terms must be at least 1, not {terms}.")


@lru_cache(maxsize=1024)
def _shape(sigma_squared: float, terms: int) -> _Shape | None:
    """The periodic factor w, or None where it is out of reach."""
    ratio = math.exp(-(math.pi**2) * sigma_squared)
    eta = math.expm1(terms * math.log1p(2 * ratio / (1 - ratio)))
    if eta <= _FLATNESS:
        # The normaliser of N_Z(0, v) is sqrt(2 pi v) (1 + 2 exp(-2 pi^2 v) + ...), the rest below 1e-25 here.
        return _Shape(np.array([1 / math.sqrt(2 * math.pi * terms * sigma_squared)]), _FLAT_MARGIN)
    if terms > _MOST_CONVOLVED or terms / (4 * sigma_squared) > 550:
        return None
    return _convolved_shape(sigma_squared, terms)


def _convolved_shape(sigma_squared: float, terms: int) -> _Shape:
    """w by convolving the pmf cut at +-bound, and a margin for the cut and for rounding.

    Cutting loses at most terms * P(|k| > bound) from P(S = r), which is compared to the smallest P(S = r)
    found. Adding n positive numbers errs by at most n roundings, so a chain of convolutions that ends in
    `terms` draws errs by at most 2 * terms * bound roundings per doubling. A path k, of energy |k|^2 / (2
    sigma_squared), errs by twice its energy in roundings. Its mean given S = r is at most terms / (2
    sigma_squared) + 4.2 terms: with b = 1 / (2 sigma_squared) and the partition function g(b), it is -b (log
    g)'(b) <= 2 log(g(b/2) / g(b)) as log g is convex, where g(b) >= exp(-b terms / 4) for the part |u|^2 and
    g(b/2) <= (1 + sqrt(4 pi sigma_squared))^terms.
    """
    bound = math.ceil(math.sqrt(2 * sigma_squared * (50 + math.log(terms)) + terms / 2))
    steps = np.arange(-bound, bound + 1, dtype=np.float64)
    pmf = np.exp(-steps * steps / (2 * sigma_squared))
    pmf /= pmf.sum()
    total = _convolution_power(pmf, terms)
    residues = np.arange(terms // 2 + 1)
    centre = len(total) // 2
    probabilities = total[centre + residues]
    cut = 2 * math.exp(-((bound + 1) ** 2) / (2 * sigma_squared)) / -math.expm1(-(bound + 1) / sigma_squared)
    roundings = 2 * terms * (bound + 8) * (terms.bit_length() + 1) + 4 * (700 + terms / sigma_squared)
    margin = 2 * terms * cut / float(probabilities.min()) + roundings * _UNIT_ROUNDOFF
    half = probabilities * np.exp(residues * residues / (2 * terms * sigma_squared))
    period = np.arange(terms)
    return _Shape(half[np.minimum(period, terms - period)], margin)


def _convolution_power(pmf: NDArray[np.float64], terms: int) -> NDArray[np.float64]:
    """The pmf of the sum of `terms` draws: direct, never by FFT, so that small values keep their digits."""
    power = pmf
    for bit in bin(terms)[3:]:
        power = np.convolve(power, power)
        if bit == "1":
            power = np.convolve(power, pmf)
    return power


def _added_tail(weights: NDArray[np.float64], variance: float, x: int) -> tuple[float, float]:
    """Sum of w(j) exp(-j^2 / (2 v)) over x <= j < last, and a bound on what lies from `last` on (x > 0)."""
    largest = float(weights.max())
    reach = 40 + math.log(largest / float(weights.min()))
    last = math.ceil(math.sqrt(x * x + 2 * variance * reach)) + 1
    points = np.arange(x, last)
    squares = points.astype(np.float64) ** 2
    tail = float(np.sum(weights[points % len(weights)] * np.exp(-squares / (2 * variance))))
    # (last + i)^2 >= last^2 + 2 last i: a geometric series.
    rest = largest * math.exp(-last * last / (2 * variance)) / -math.expm1(-last / variance)
    return tail, rest


def _wide_tail(variance: float, x: int) -> float:
    """Sum of f(j) = exp(-j^2 / (2 v)) over j >= x > 0, for v > 1e6, by Euler and Maclaurin.

    The series goes to the third derivative. Its remainder is at most 2 zeta(6) / (2 pi)^6 < 3.31e-5 times the
    integral of |f^(6)| over [x, inf). With z = x / sqrt(v), that integral is |f^(5)(x)| <= z^5 f(x) v^(-5/2)
    beyond the last root z = 3.3243 of the sixth Hermite polynomial, and below it at most sqrt(2 pi 6!)
    v^(-5/2) (Cauchy-Schwarz). Relative to the tail it stays below 4e-5 z^6 / v^3, which is 1.1e-13 at v = 1e6
    and the deepest z = 37.2, and below 3 / v^3.
    """
    sd = math.sqrt(variance)
    z = x / sd
    integral = sd * math.sqrt(math.pi / 2) * float(erfcx(z / math.sqrt(2)))
    corrections = 0.5 + z / (12 * sd) - (z**3 - 3 * z) / (720 * sd**3)
    return (integral + corrections) * math.exp(-z * z / 2)
