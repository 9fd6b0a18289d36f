"""What counters have in common whose noisy sums carry one draw of N_Z(0, sigma_squared) each.

One item of an event changes each of at most `nodes_per_event` sums by 1, so the noise has to hide that many unit shifts
for each item of an event.
"""

from typing import ClassVar, Self

from stream_dp.counters.protocol import EpochParameters, RunningCounter
from stream_dp.privacy.discrete_gaussian import LEAST_SIGMA_SQUARED
from stream_dp.privacy.loss import Loss, discrete_gaussian


class DiscreteCounter(RunningCounter, frozen=True):
    """A counter with discrete Gaussian noise: `sigma_squared` is the variance parameter of one draw."""

    sigma_squared: float
    threshold_delta: float

    least_sigma_squared: ClassVar[float] = LEAST_SIGMA_SQUARED
    """The least variance parameter whose draws are computed exactly enough, whatever the guarantee."""

    draws_per_round: ClassVar[int] = 1
    """How many draws of one label a round takes, on average."""

    @classmethod
    def of(cls, parameters: EpochParameters, sigma_squared: float) -> Self:
        """Compute the thresholds for sums that each carry one draw of N_Z(0, sigma_squared)."""
        raise NotImplementedError

    @staticmethod
    def nodes_per_event(horizon: int) -> int:
        """How many noisy sums one item of one event can change, each by 1."""
        raise NotImplementedError

    @staticmethod
    def start_draws(horizon: int) -> int:
        """At most so many draws does a label take in the round where it starts, besides those of its rounds."""
        return 0

    @property
    def rho(self) -> float:
        """The zCDP cost of the noisy table of a whole epoch: half a unit shift over s2, D0 * nodes times."""
        return self.items_per_event * self.nodes_per_event(self.horizon) / (2 * self.sigma_squared)

    @property
    def loss(self) -> Loss:
        """One unit shift for each of these sums."""
        return discrete_gaussian(
            self.sigma_squared, self.items_per_event * self.nodes_per_event(self.horizon)
        )
