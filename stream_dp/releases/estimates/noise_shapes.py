"""How the noise of one label's count moves from round to round, up to a factor that the `sd` of a release gives.

Everything follows from the name of the mechanism and the horizon, which stand in every release.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt_parameters import best_gaps, output_weights
from stream_dp.counters.escapes import level_shares
from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.smooth import SmoothTree, tree_shape

Covariances = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]


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


@lru_cache(maxsize=16)
def noise_shape(mechanism: str, horizon: int) -> NoiseShape:
    """The noise shape of a counter whose labels are kept.  Raises ValueError for an unknown mechanism."""
    if mechanism == "binary":
        return NoiseShape(_binary, tuple(level_shares(EpochParameters(horizon, 1, 1.0))))
    if mechanism == "honaker":
        return NoiseShape(_honaker, tuple(level_shares(EpochParameters(horizon, 1, 1.0))))
    if mechanism == "smooth":
        return NoiseShape(_smooth(horizon))
    if mechanism == "blt":
        return NoiseShape(_blt(horizon))
    raise ValueError(f"no mechanism is called {mechanism!r}")


def _shared_bits(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.int32]:
    """How many of the lowest bits are not a common beginning of both: their highest differing bit and all below."""
    return np.frexp((earlier ^ later).astype(np.float64))[1]


def _binary(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
    """Two prefixes share the nodes of their common leading bits."""
    below = _shared_bits(earlier, later)
    return np.bitwise_count(earlier >> below << below).astype(np.float64)


def _honaker(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
    """As `_binary`, with 2^k / M_k for a node of level k; where the later round has a node of level k that the earlier
    one is inside of, each of the earlier one's parts of level j adds 2^j / M_k (counters/honaker.py).
    """
    below = _shared_bits(earlier, later)
    common, level = earlier >> below << below, np.arange(25)
    bits = ((common[..., np.newaxis] >> level) & 1).astype(np.float64)
    nodes: NDArray[np.float64] = bits @ (2.0**level / (2.0 ** (level + 1) - 1))
    return nodes + (earlier - common) / np.maximum(2.0**below - 1, 1)


def _smooth(horizon: int) -> Covariances:
    tree = SmoothTree(*tree_shape(horizon))
    return tree.shared_nodes


def _blt(horizon: int) -> Covariances:
    gaps = best_gaps(horizon)
    gap = np.array(gaps.poles)
    weights = np.array([float(weight) for weight in output_weights(gaps)])
    pairs = gap + gap[:, None] - gap * gap[:, None]  # 1 - p_a p_b

    def covariances(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
        rounds, lags = np.broadcast_arrays(earlier, later - earlier)
        total = np.zeros(rounds.shape)
        for b, log_pole in enumerate(np.log1p(-gap)):
            sums = np.zeros(rounds.shape)
            for a, product in enumerate(pairs[b]):
                powers = -np.expm1(rounds * np.log1p(-product)) / product if product else rounds
                sums += weights[a] * powers
            total += weights[b] * np.exp(lags * log_pole) * sums
        return total

    return covariances
