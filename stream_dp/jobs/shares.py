"""How the guarantee of a job is divided among the counts that one user can change."""

from stream_dp.batch.cost import epsilon_per_item
from stream_dp.privacy.accounting import discrete_gaussian_sigma_squared, zcdp_rho
from stream_dp.privacy.discrete_gaussian import LEAST_SIGMA_SQUARED

DOWN = 1 - 1e-12
"""A factor that brings a computed float safely below its exact value."""


def laplace_share(epsilon: float, delta: float, items_per_user: int) -> tuple[float, float]:
    """The epsilon of each count and the delta of the threshold: the better of pure and zCDP composition."""
    pure = epsilon / items_per_user
    converted = epsilon_per_item(zcdp_rho(epsilon, delta / 2), items_per_user)
    return (pure, delta) if pure >= converted else (converted, delta / 2)


def gaussian_share(epsilon: float, delta: float, items_per_user: int) -> float:
    """The epsilon of each count, by the exact divergence of discrete Gaussian noise at half of delta."""
    if epsilon < 1e-6:
        raise ValueError(f"epsilon must be at least 1e-6 with Gaussian noise, not {epsilon}.")
    sigma_squared = discrete_gaussian_sigma_squared(epsilon, delta / 2, items_per_user)
    return max(LEAST_SIGMA_SQUARED, sigma_squared) ** -0.5 * DOWN
