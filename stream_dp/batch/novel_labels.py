"""How noise and a threshold share the delta of a job: nearly all of it serves for each.

A label is novel if one user alone gives to it.  The threshold hides novel labels, noise hides how all others change,
and a label is either one or the other.  So if a user moves sums by mu^2 in all, and the share x of that falls on novel
labels, the delta is at most

    max over x of  d(mu^2 (1 - x)) + p(x),

with d(m) the delta of a Gaussian of mu^2 = m at this epsilon, and p(x) the chance that any such novel label passes.
Proof.  Take the novel labels out of what is released with the user.  What is left follows from noise on the others, so
its law P differs from the law Q without the user by a hockey-stick divergence of at most d, either way round.  None of
the novel passes with chance 1 - p, whatever the others do.  So with the user a set has at most p + P(S), which is at
most e^epsilon Q(S) + d + p; and at least (1 - p) P(S).  For the other direction take the set S at which Q(S) -
e^epsilon (1 - p) P(S) is largest.  If e^epsilon P(S) is at most 1, that is Q(S) - e^epsilon P(S) and at most p more;
else it is below 1 - (1 - p).  Both are at most d + p.

If all labels are novel, there is nothing for the noise to hide, and if none is, nothing can pass: at both ends one
summand is 0, and between them d falls much faster than p rises.  Half of delta for each, which adding their largest
values asks for, makes thresholds at epsilon 1 about 5% higher.

This needs an x that does not depend on noise.  If a branch is chosen by noisy counts that were paid before, data could
make x large just where these counts told little, and small where they told much.  `after` allows for that: it takes
the worse end at each loss l that they may have told, at epsilon - l.  Between the ends it is no worse, because d
is convex in m as long as m + m^2 / 4 <= epsilon^2: its slope is phi(epsilon / mu - mu / 2) / (2 mu).

Source of the idea: Karrer, Kifer, Wilkins and Zhang 2022, "Exact Privacy Analysis of the Gaussian Sparse Histogram
Mechanism", for real-valued noise.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.privacy.accounting import discrete_gaussian_delta, gaussian_deltas

Reals = NDArray[np.float64]

_DOWN = 1 - 1e-9
_HALVINGS = 6
_MOST_RANGES = 1024
_CELLS = 32
_FAR, _STEPS = 9.0, 512


def delta_of_each(delta: float, spent: Callable[[float], float], least: float | None = None) -> float:
    """The largest d found, up to delta, such that noise and threshold may have d each.

    `spent(d)`: what both have together, or a little more.  `least`: a d that is known to be enough, else half of delta.
    """
    low, high = delta / 2 * _DOWN if least is None else least, delta * _DOWN
    if spent(high) <= delta:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) <= delta else (low, middle)
    return low


def numbers_of_novel(items_per_user: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The least and the largest of at most 1,024 ranges, which together hold every number from 1 to `items_per_user`.

    All of them are single numbers if there are no more.
    """
    step = -(-items_per_user // _MOST_RANGES)
    least = np.arange(1, items_per_user + 1, step)
    return least, np.minimum(least + step - 1, items_per_user)


def delta_of_counts(epsilon: float, sigma: float, items_per_user: int, chance: float) -> float:
    """The delta of counts that a user moves by 1 each, with real-valued noise; a novel one passes with this chance."""
    least, most = numbers_of_novel(items_per_user)
    passing = -np.expm1(most * np.log1p(-chance))
    deltas = gaussian_deltas((items_per_user - least) / sigma**2, np.asarray(epsilon)) + passing
    none = float(gaussian_deltas(np.asarray(items_per_user / sigma**2), np.asarray(epsilon)))
    return max(none, float(deltas.max()))


def delta_of_integer_counts(
    epsilon: float, sigma_squared: float, items_per_user: int, chance: float
) -> float:
    """`delta_of_counts` with discrete noise N_Z(0, sigma_squared), whose divergence is known exactly."""

    def noise(others: int) -> float:
        return discrete_gaussian_delta(sigma_squared, others, epsilon) if others else 0.0

    ranges = zip(*(numbers.tolist() for numbers in numbers_of_novel(items_per_user)), strict=True)
    found = noise(items_per_user)
    for least, most in ranges:
        found = max(found, noise(items_per_user - least) - math.expm1(most * math.log1p(-chance)))
    return found


def delta_of_weights(
    epsilon: float, sigma: float, threshold: float, items_per_user: int, rounding: float = 0.0
) -> float:
    """The delta of a union: a user moves weights by at most 1 in l2, those of t novel labels by equal parts of that.

    t of at most `items_per_user` labels get t / items_per_user of the square, or more.  Weights get noise `sigma`; at
    most `rounding` is added to what is moved, and the noise is larger by as much.
    """
    least, most = (numbers[:, None] for numbers in numbers_of_novel(items_per_user))
    shares = least / items_per_user + (1 - least / items_per_user) * np.linspace(0, 1, _CELLS + 1)
    passing = -np.expm1(most * np.log1p(-ndtr((np.sqrt(shares[:, 1:] / least) - threshold) / sigma)))
    moved = (np.sqrt(1 - shares[:, :-1]) + rounding) / sigma
    deltas = gaussian_deltas(moved**2, np.asarray(epsilon)) + passing
    none = float(gaussian_deltas(np.square((1 + rounding) / sigma), np.asarray(epsilon)))
    return max(none, float(deltas.max()))


class Allowance(NamedTuple):
    """What a mechanism has beside others: the mu^2 of its noise, and the delta of what this does not cover."""

    mu_squared: float
    delta: float


Profile = Callable[[Reals], Reals]
"""The delta of a mechanism at each epsilon of an array, whichever of two neighbours comes first."""


def of_either(allowed: Allowance) -> Profile:
    """A Gaussian and a threshold, where every label is novel or not, in whatever proportion."""
    mu_squared, threshold_delta = allowed

    def profile(epsilon: Reals) -> Reals:
        noise = gaussian_deltas(np.asarray(mu_squared), epsilon)
        convex = (epsilon > 0) & (mu_squared + mu_squared**2 / 4 <= epsilon**2)
        return np.asarray(np.where(convex, np.maximum(noise, threshold_delta), noise + threshold_delta))

    return profile


def of_both(allowed: Allowance) -> Profile:
    """What a Gaussian covers but for a chance of that delta."""
    return lambda epsilon: gaussian_deltas(np.asarray(allowed.mu_squared), epsilon) + allowed.delta


def after(mu_squared: float, *following: Profile) -> Profile:
    """Noisy sums of this mu^2, and then one of the following mechanisms, chosen by what the sums told."""
    edges = np.linspace(-_FAR, _FAR, _STEPS + 1)
    low, high = edges[:-1], edges[1:]
    chances = np.where(high > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    told = mu_squared / 2 + math.sqrt(mu_squared) * high

    def profile(epsilon: Reals) -> Reals:
        at = np.asarray(epsilon)[..., None] - told
        worst = np.maximum.reduce([each(at) for each in following])
        return np.asarray(worst @ chances + ndtr(-_FAR))

    return profile
