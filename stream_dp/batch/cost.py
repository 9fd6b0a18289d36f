"""What a one-shot mechanism costs, known from its parameters alone, so that it can be charged before it runs.

Sources: Bun and Steinke 2016 (zCDP and its composition); Rogers, "A Unifying Privacy Analysis Framework for Unknown
Domain Algorithms in Differential Privacy" (below: the survey), Theorem 6.
"""

import math
from dataclasses import dataclass, field

from stream_dp.privacy import loss as losses
from stream_dp.privacy.accounting import zcdp_epsilon
from stream_dp.privacy.loss import Loss

_DOWN = 1 - 1e-12

NORMAL_95 = 1.645
"""So many standard deviations above a threshold a value passes it in 95% of cases."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The mechanism is `delta`-approximate `rho`-zCDP: costs compose by adding each of the two.

    "Approximate" in this sense: there is a rho-zCDP mechanism whose output is in one and the same set with probability
    at least 1 - delta on both neighbours, and then the output is a function of it. So if rho-zCDP gives (epsilon, d0),
    the whole gives (epsilon, d0 + delta).

    `alone` is an (epsilon, delta) guarantee of the mechanism by itself, where there is one that a conversion of rho
    would only loosen. It says nothing about compositions. `loss`: what is known of the mechanism behind, beside rho.
    """

    rho: float
    delta: float
    alone: tuple[float, float] | None = None
    loss: Loss = field(compare=False, kw_only=True)

    def __add__(self, other: "Cost") -> "Cost":
        """The cost of both, in any order, the second chosen after seeing the first."""
        return Cost(self.rho + other.rho, self.delta + other.delta, loss=self.loss + other.loss)

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon known for (epsilon, `delta`)-DP; infinite where `delta` cannot be met."""
        epsilon = math.inf
        if delta > self.delta:
            epsilon = zcdp_epsilon(self.rho, delta - self.delta)
        if self.alone is not None and self.alone[1] <= delta:
            epsilon = min(epsilon, self.alone[0])
        return epsilon


def pure(epsilon: float, delta: float = 0.0) -> Cost:
    """The cost of an (epsilon, delta)-DP mechanism: delta-approximate epsilon^2 / 2 -zCDP (Bun and Steinke)."""
    return Cost(epsilon**2 / 2, delta, (epsilon, delta), loss=losses.pure(epsilon))


def epsilon_per_item(rho: float, items: int) -> float:
    """The epsilon at which `items` changed counts cost rho = items * epsilon^2 / 2, rounded down."""
    return math.sqrt(2 * rho / items) * _DOWN


def epsilon_per_pick(rho: float, picks: int) -> float:
    """The epsilon at which `picks` draws of the exponential mechanism cost rho = picks * epsilon^2 / 8."""
    return math.sqrt(8 * rho / picks) * _DOWN


def require_positive(name: str, value: float) -> None:
    """Refuse a parameter that is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a number above 0, not {value}.")


def require_count(name: str, value: int) -> None:
    """Refuse a parameter that is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value}.")


def require_cap(alpha: float) -> None:
    """Refuse an `alpha`, noise scales from a threshold to the cap of a weight, that is not above 0 and at most 100.

    Up to there the gaps of a million items to their caps, in tokens, add up to less than 2^63 (at epsilon 0.0001).
    """
    require_positive("alpha", alpha)
    if alpha > 100:
        raise ValueError(f"alpha must be at most 100, not {alpha:g}.")


def require_delta(name: str, value: float) -> None:
    """Refuse a probability budget outside 1e-100 to 0.1."""
    if not 1e-100 <= value <= 0.1:
        raise ValueError(f"{name} must lie between 1e-100 and 0.1, not {value}.")


def require_noise_scale(epsilon: float, count_change: int = 1) -> None:
    """Refuse an epsilon whose integer noise, of scale count_change / epsilon, is outside what is drawn exactly."""
    require_positive("epsilon", epsilon)
    if not 0.1 <= count_change / epsilon <= 10_000:
        raise ValueError(
            f"epsilon per count must lie between {count_change / 10_000:g} and {count_change * 10}, not {epsilon}."
        )
