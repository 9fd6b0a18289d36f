"""What counters have in common whose noisy sums carry one draw of N_Z(0, sigma_squared) each.

One item of an event changes each of at most `nodes_per_event` sums by 1, so the noise has to hide that many unit shifts
for each item of an event.
"""

from typing import ClassVar, Self

from msgspec import structs

from stream_dp.counters.protocol import CAP_CELLS, CAP_SCALE, EpochParameters, Promise, RunningCounter
from stream_dp.privacy.accounting import (
    discrete_gaussian_epsilon,
    discrete_gaussian_sigma_squared,
    gaussian_rho,
    zcdp_rho,
)
from stream_dp.privacy.discrete_gaussian import LEAST_SIGMA_SQUARED
from stream_dp.privacy.keyed_noise import collision_probability
from stream_dp.privacy.loss import ROUNDED_VARIANCE, Loss, discrete_gaussian

_DRAW_DISTANCE = 2.0**-100
"""At most this chance that a draw is not discrete Gaussian, by either log: see privacy/discrete_gaussian.py."""

_GOLDEN_SIGMA_SQUARED = 1000.25


class DiscreteCounter(RunningCounter, frozen=True):
    """A counter with discrete Gaussian noise: `sigma_squared` is the variance parameter of one draw."""

    sigma_squared: float
    threshold_delta: float

    least_sigma_squared: ClassVar[float] = LEAST_SIGMA_SQUARED
    """The least variance parameter whose draws are computed exactly enough, whatever the guarantee."""

    @classmethod
    def calibrated(cls, parameters: EpochParameters, promise: Promise) -> tuple[Self, str]:
        """The least sigma squared, by the exact divergence of as many unit shifts as one unit makes.

        The cells beside the labels have other noise, which that divergence does not know: see `_with_cells`.
        """
        if parameters.cap_share:
            return cls._with_cells(parameters, promise)
        shifts = parameters.items_per_event * cls.nodes_per_event(parameters.horizon)
        sigma_squared = discrete_gaussian_sigma_squared(promise.epsilon, promise.noise_delta, shifts)
        promise.require_variance(sigma_squared)
        found = cls.of(parameters, max(sigma_squared, cls.least_sigma_squared))
        conversion = discrete_gaussian_epsilon(found.sigma_squared, shifts, promise.noise_delta)
        return found, conversion.method

    @classmethod
    def _with_cells(cls, parameters: EpochParameters, promise: Promise) -> tuple[Self, str]:
        """A draw is one of a Gaussian of variance 4 less, rounded at random (loss.py): all of them are one Gaussian.

        16 s2 - 4 is at least 16 (s2 - 4), so the cells cost at most their part of `charged_items`.  Where s2 would be
        too small for that, rho is converted.
        """
        shifts = parameters.charged_items * cls.nodes_per_event(parameters.horizon)
        rho = gaussian_rho(promise.epsilon, promise.noise_delta)
        sigma_squared, method = (shifts / (2 * rho) + ROUNDED_VARIANCE) * (1 + 1e-9), "exact"
        if sigma_squared < 2 * ROUNDED_VARIANCE:
            rho, method = zcdp_rho(promise.epsilon, promise.noise_delta), "zcdp"
            sigma_squared = shifts / (2 * rho) * (1 + 1e-9)
        found = cls.of(parameters, max(sigma_squared, cls.least_sigma_squared))
        promise.require_variance(CAP_SCALE**2 * found.sigma_squared)
        return found, method

    @classmethod
    def coupling_delta(cls, size: int, items_per_event: int) -> float:
        """Of what is charged for a draw, its table needs a quarter at most."""
        coincide = collision_probability(items_per_event * size.bit_length())
        return items_per_event * size * _DRAW_DISTANCE + coincide

    @classmethod
    def golden(cls, horizon: int) -> Self:
        """See `CalibratedCounter.golden`."""
        return cls.of(EpochParameters(horizon, 1, 1e-6), _GOLDEN_SIGMA_SQUARED)

    @staticmethod
    def nodes_per_event(horizon: int) -> int:
        """How many noisy sums one item of one event can change, each by 1."""
        raise NotImplementedError

    @property
    def rho(self) -> float:
        """The zCDP cost of the noisy table of a whole epoch: half a unit shift over s2, D0 * nodes times."""
        return self.charged_items * self.nodes_per_event(self.horizon) / (2 * self.sigma_squared)

    @property
    def loss(self) -> Loss:
        """One unit shift for each of these sums."""
        of_labels = discrete_gaussian(
            self.sigma_squared, self.items_per_event * self.nodes_per_event(self.horizon)
        )
        return of_labels + self.cells.loss if self.cap_share else of_labels

    @property
    def cells(self) -> Self:
        """See `CalibratedCounter.cells`."""
        scaled = CAP_SCALE**2 * self.sigma_squared
        return structs.replace(self, sigma_squared=scaled, items_per_event=CAP_CELLS, cap_share=False)
