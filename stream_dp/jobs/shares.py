"""How the guarantee of a job is divided among the counts that one user can change."""

from functools import lru_cache

from stream_dp.batch.cost import epsilon_per_item, epsilon_per_pick
from stream_dp.batch.novel_labels import delta_of_each, delta_of_integer_counts
from stream_dp.privacy.accounting import discrete_gaussian_sigma_squared, gaussian_delta, zcdp_rho
from stream_dp.privacy.discrete_gaussian import LEAST_SIGMA_SQUARED
from stream_dp.privacy.loss import bounded_range, gaussian_alone

_MOST, _HALVINGS = 1.1, 10  # no gain is larger: a ten-thousandth of it is left
_LARGEST_V = 1e6

DOWN = 1 - 1e-12
"""A factor that brings a computed float safely below its exact value."""


def laplace_share(epsilon: float, delta: float, items_per_user: int) -> tuple[float, float]:
    """The epsilon of each count and the delta of the threshold: the better of pure and zCDP composition."""
    pure = epsilon / items_per_user
    converted = epsilon_per_item(zcdp_rho(epsilon, delta / 2), items_per_user)
    return (pure, delta) if pure >= converted else (converted, delta / 2)


def gaussian_share(epsilon: float, noise_delta: float, items_per_user: int) -> float:
    """The epsilon of each count, by the exact divergence of discrete Gaussian noise."""
    if epsilon < 1e-6:
        raise ValueError(f"epsilon must be at least 1e-6 with Gaussian noise, not {epsilon}.")
    sigma_squared = discrete_gaussian_sigma_squared(epsilon, noise_delta, items_per_user)
    return max(LEAST_SIGMA_SQUARED, sigma_squared) ** -0.5 * DOWN


@lru_cache(maxsize=256)
def gaussian_shares(epsilon: float, delta: float, items_per_user: int) -> tuple[float, float]:
    """The epsilon of each count and the delta of a threshold beside them (`novel_labels.py`)."""

    def spent(d: float) -> float:
        sigma_squared = gaussian_share(epsilon, d, items_per_user) ** -2
        return delta_of_integer_counts(epsilon, sigma_squared, items_per_user, d / items_per_user)

    d = delta_of_each(delta, spent)
    return gaussian_share(epsilon, d, items_per_user), d


@lru_cache(maxsize=256)
def pick_share(epsilon: float, delta: float, picks: int, threshold: bool = True) -> tuple[float, float]:
    """The epsilon of each of `picks` draws of the exponential mechanism, and the delta of a `threshold` beside them.

    The largest of three.  Pure composition leaves all of delta to the threshold; the others leave it half.  One of them
    converts rho = picks * epsilon^2 / 8.  The other takes a Gaussian of mu^2 = V that reveals at least as much as all
    draws together (`loss.bounded_range`; docs/budget.md, "The Gaussian as a filter", with nothing kept), so that the
    draws are (epsilon, d)-DP for the d of that Gaussian.
    """
    spent = delta / 2 if threshold else delta
    pure, converted = epsilon / picks, epsilon_per_pick(zcdp_rho(epsilon, spent), picks)

    def holds(each: float) -> bool:
        v = gaussian_alone(bounded_range(each, picks))
        return v < _LARGEST_V and gaussian_delta(v / 2, epsilon) <= spent

    each, above = converted, _MOST * converted
    if holds(each):
        for _ in range(_HALVINGS):
            middle = (each + above) / 2
            each, above = (middle, above) if holds(middle) else (each, middle)
    return (pure, delta if threshold else 0.0) if pure >= each else (each, delta - spent)
