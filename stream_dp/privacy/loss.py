"""How much Gaussian noise hides as well as a mechanism, where some Gaussian noise is still to come.

A budget (epsilon, delta) is worth one Gaussian of a certain mu^2 (its squared shift in standard deviations).
Mechanisms that are chosen one after the other are paid out of it.  `v` of mu^2 is kept for what comes later, and
`gaussian_before` says how much there must have been: a Gaussian of this mu^2 tells as much as the mechanism and a
Gaussian of mu^2 = v together, or more.  The theorems and their proofs: docs/budget.md, "Why this holds".

mu^2 and privacy losses are without units.  Results are rounded up.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfinv, ndtr, ndtri_exp

Reals = NDArray[np.float64]

_MOST_STEPS = 256
"""So many equal parts of a charge are paid one by one; where there are more, in so many lumps."""

_LARGEST_STEP = 12.0
"""The mu^2 up to which the bound on steps is proved."""

_ROUNDS = 30
"""So often a bound on draws of bounded range is put into its own exponent; it settles after a few times, or never."""

_NEVER = 1e9
"""A mu^2 that no budget covers."""

_LARGEST_RESERVE = 30.0
"""Above, total variation is too near 1 to tell reserves apart in double precision."""

ROUNDED_VARIANCE = 4.0
"""A discrete Gaussian is a continuous one of this much less variance, rounded at random, but for a chance of 1e-33."""


class Loss(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the privacy loss of the mechanism behind a charge, beside its rho.

    `pure`: it is pure epsilon-DP; None where it is not.  The rest says what it is made of:
    `gaussian`: Gaussians of this mu^2 in all; `coins`: (epsilon, number) of pure epsilon-DP mechanisms; `ranges`:
    (epsilon, number) of epsilon-bounded-range ones; `steps`: (h, number) of mechanisms whose Rényi divergence of every
    order a > 0 is at most a h / 2.  Where the mechanism is interactive, there are no ranges and no steps.
    """

    pure: float | None = None
    gaussian: float = 0.0
    coins: tuple[tuple[float, int], ...] = ()
    ranges: tuple[tuple[float, int], ...] = ()
    steps: tuple[tuple[float, int], ...] = ()

    def __post_init__(self) -> None:
        values = [0.0 if self.pure is None else self.pure, self.gaussian]
        values += [value for value, _ in self.coins + self.ranges + self.steps]
        if not all(0 <= value <= _NEVER for value in values):
            raise ValueError("what a loss is made of must be numbers from 0 to 1e9")
        if not all(1 <= number <= 10**12 for _, number in self.coins + self.ranges + self.steps):
            raise ValueError("a loss is made of at least one and at most 1e12 parts of a kind")

    def __add__(self, other: Self) -> "Loss":
        """The loss of both, the second chosen after seeing the first."""
        pure = None if self.pure is None or other.pure is None else self.pure + other.pure
        return Loss(
            pure=pure,
            gaussian=self.gaussian + other.gaussian,
            coins=self.coins + other.coins,
            ranges=self.ranges + other.ranges,
            steps=self.steps + other.steps,
        )


def pure(epsilon: float, number: int = 1) -> Loss:
    """`number` mechanisms that are epsilon-DP each."""
    return Loss(pure=number * epsilon, coins=((epsilon, number),))


def bounded_range(epsilon: float, number: int = 1) -> Loss:
    """`number` draws of the exponential mechanism, each epsilon-bounded-range."""
    return Loss(pure=number * epsilon, ranges=((epsilon, number),))


def interactive_bounded_range(epsilon: float, number: int) -> Loss:
    """The loss of bounded-range draws that are each chosen after others were seen, also those of other mechanisms."""
    draws = bounded_range(epsilon, number)
    return Loss(pure=draws.pure, gaussian=min(gaussian_alone(draws), _NEVER))


def gaussian(mu_squared: float) -> Loss:
    """Continuous Gaussian noise."""
    return Loss(gaussian=mu_squared)


def any_order(rho: float) -> Loss:
    """What is rho-zCDP, and of Rényi divergence at most a rho at orders a below 1 too; it comes after all ranges."""
    return Loss(steps=((2 * rho, 1),))


def either(losses: Iterable[Loss]) -> Loss:
    """One of several mechanisms, chosen by what was seen before.

    Each is dominated by a coin of its pure epsilon, or by a Gaussian.  Whoever sees the largest such coin and the
    largest such Gaussian sees at least as much as from any one of them, whichever is chosen; so both are charged.
    """
    coin, mu_squared = 0.0, 0.0
    for each in losses:
        if each.pure is not None and each.coins:
            coin = max(coin, each.pure)
        else:
            mu_squared = max(mu_squared, min(gaussian_alone(each), _NEVER))
    return Loss(gaussian=mu_squared, coins=((coin, 1),) if coin else ())


def discrete_gaussian(sigma_squared: float, shifts: int, shift: int = 1) -> Loss:
    """`shifts` cells of noise N_Z(0, sigma_squared), each moved by at most `shift`."""
    if sigma_squared >= 2 * ROUNDED_VARIANCE:
        return gaussian(shifts * shift**2 / (sigma_squared - ROUNDED_VARIANCE) * (1 + 1e-12))
    beside = 1 + 1e-6 if sigma_squared >= 1 else 2.0
    return Loss(steps=((shift**2 / sigma_squared * beside, shifts),))


@lru_cache(maxsize=4096)
def gaussian_alone(loss: Loss) -> float:
    """The mu^2 of a Gaussian that covers the loss by itself, so that whatever is kept may be added to it."""
    return float(gaussian_before(loss, np.zeros(1))[0])


def gaussian_before(loss: Loss, reserve: Reals) -> Reals:
    """The least mu^2 known to cover the loss and keep `reserve`; both of shape (n,), infinite where nothing does."""
    needed = reserve
    for h, number in reversed(loss.steps):
        for size in _lumps(number):
            needed = _before_step(size * h, needed)
    for epsilon, number in reversed(loss.ranges):
        for size in _lumps(number):
            alone = (
                np.minimum(_before_range(epsilon, needed), _before_coin(epsilon, needed))
                if size == 1
                else math.inf
            )
            needed = np.minimum(alone, _before_step(size * epsilon**2 / 4, needed))
    for epsilon, number in loss.coins:
        for size in _lumps(number):
            needed = (
                _before_coin(epsilon, needed) if size == 1 else _before_step(size * _coin_h(epsilon), needed)
            )
    return needed + loss.gaussian


def _lumps(number: int) -> list[int]:
    """The sizes of at most `_MOST_STEPS` lumps of nearly equal size."""
    lumps = min(number, _MOST_STEPS)
    size, more = divmod(number, lumps)
    return [size + 1] * more + [size] * (lumps - more)


def _before_step(h: float, reserve: Reals) -> Reals:
    """v^2 / (v - h), where v is the reserve, or more if that is too small to pay out of."""
    if h >= _LARGEST_STEP:
        return np.full_like(reserve, math.inf)
    kept = np.maximum(reserve, h * max(2.0, _LARGEST_STEP / (_LARGEST_STEP - h)))
    return _up(kept + h / (1 - h / kept)) if h > 0 else reserve


def _before_range(epsilon: float, reserve: Reals) -> Reals:
    """The Gaussian of the same mean absolute value as a fair choice of +-epsilon / 2 beside one of variance `reserve`.

    And a little more, because losses are not centred: infinite where epsilon is too large for that.
    """
    root = np.sqrt(reserve)
    half = epsilon / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(reserve > 0, half / root, math.inf)
    centred = root * np.exp(-(ratio**2) / 2) + half * math.sqrt(math.pi / 2) * erf(ratio / math.sqrt(2))
    centred *= 1 + 4e-16
    needed = centred**2
    for _ in range(_ROUNDS):
        growth = np.exp(np.minimum(needed - reserve, _LARGEST_STEP) / 8) * (1 + 1e-9)
        needed = _up(root + (centred - root) * growth) ** 2
    settled = np.exp(np.minimum(needed - reserve, _LARGEST_STEP) / 8) <= growth
    return np.where(settled & (needed - reserve < _LARGEST_STEP), needed, math.inf)


def _before_coin(epsilon: float, reserve: Reals) -> Reals:
    """The Gaussian of the same total variation as a biased coin beside a Gaussian of mu^2 = reserve."""
    if epsilon == 0:
        return reserve
    alone = 4 * float(ndtri_exp(-np.logaddexp(0.0, epsilon))) ** 2
    least = np.minimum(reserve + alone, _before_step(_coin_h(epsilon), reserve))
    near = (reserve > 0) & (reserve < _LARGEST_RESERVE) & (epsilon < _LARGEST_RESERVE)
    kept = reserve[near]
    distance = math.tanh(epsilon / 2) + 2 * _hockey_stick(epsilon, kept) / (1 + math.exp(min(epsilon, 700.0)))
    exact = 8 * erfinv(np.minimum(distance * (1 + 1e-15), 1.0)) ** 2
    least[near] = np.minimum(least[near], exact + 1e-14 * np.sqrt(exact) * np.exp(exact / 8))
    return _up(least)


def _coin_h(epsilon: float) -> float:
    """8 ln cosh(epsilon / 2): what an epsilon-DP mechanism is as a step."""
    half = epsilon / 2
    if half < 0.1:
        return 8 * math.log1p(2 * math.sinh(half / 2) ** 2) * (1 + 1e-12)
    return 8 * (half + math.log1p(math.exp(-2 * half)) - math.log(2)) * (1 + 1e-12)


def _hockey_stick(epsilon: float, mu_squared: Reals) -> Reals:
    """The delta at `epsilon` of a Gaussian of this mu^2 above 0."""
    mu = np.sqrt(mu_squared)
    first: Any = ndtr(mu / 2 - epsilon / mu)
    return np.maximum(0.0, first - math.exp(min(epsilon, 700.0)) * ndtr(-mu / 2 - epsilon / mu))


def _up(values: Reals) -> Reals:
    return values * (1 + 4e-16)
