"""How the noise of one label's count moves from round to round, up to a factor that the `sd` of a release gives.

Everything follows from the counter and its horizon, which stand in every release.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Covariances = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
Matrix = NDArray[np.float64]


class NoiseShape(NamedTuple):
    """`covariances(earlier, later)`: of the noise in two rounds, earlier <= later, which broadcast against each other;
    one draw of the mechanism has variance 1.  `shares`: what a round of each level (log2 of its lowest binary one) may
    spend of delta, up to a common factor, or none where all rounds may spend the same.
    """

    covariances: Covariances
    shares: tuple[float, ...] = ()

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The standard deviation of the noise in each of `rounds`."""
        return np.sqrt(self.covariances(rounds, rounds))

    def correlations(self, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of the noise in two rounds."""
        return self.covariances(earlier, later) / (self.sds(earlier) * self.sds(later))


class Step(NamedTuple):
    """From one round to a later one: `kept` times the numbers, shape (numbers, numbers), and the covariance of what is
    fresh; one draw of the mechanism has variance 1.
    """

    kept: Matrix
    fresh: Matrix


class NoiseState(Protocol):
    """The noise as a few hidden numbers, for a Kalman filter: `weights` times the numbers is the noise of a round.

    They are the draws of live nodes in a tree, or the decaying sums of a buffered Toeplitz counter.  From one released
    round to the next each of them decays and receives fresh noise.
    """

    weights: Matrix

    def step(self, before: int, after: int) -> Step:
        """From round `before`, or from nothing at 0, to round `after`."""
        ...
