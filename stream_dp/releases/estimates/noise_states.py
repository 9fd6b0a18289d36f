"""The noise of one label's count as a few hidden numbers that move from round to round, for a Kalman filter.

Each mechanism's noise is a sum of such numbers: the draws of live nodes in a tree, the decaying sums of a buffered
Toeplitz counter.  From one released round to the next each of them decays and receives fresh noise.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt_parameters import best_gaps, output_weights
from stream_dp.counters.smooth import SmoothTree, tree_shape

Matrix = NDArray[np.float64]


class Step(NamedTuple):
    """From one round to a later one: `kept` times the numbers, shape (numbers, numbers), and the covariance of what is
    fresh; one draw of the mechanism has variance 1.
    """

    kept: Matrix
    fresh: Matrix


class NoiseState(Protocol):
    """`weights` times the numbers is the noise of a round."""

    weights: Matrix

    def step(self, before: int, after: int) -> Step:
        """From round `before`, or from nothing at 0, to round `after`."""
        ...


@lru_cache(maxsize=16)
def noise_state(mechanism: str, horizon: int) -> NoiseState:
    """The noise state of a counter.  Raises ValueError for an unknown mechanism."""
    kinds: dict[str, Callable[[int], NoiseState]] = {
        "binary": _Dyadic,
        "smooth": _Smooth,
        "honaker": _Honaker,
        "blt": _Toeplitz,
    }
    if mechanism not in kinds:
        raise ValueError(f"no mechanism is called {mechanism!r}")
    return kinds[mechanism](horizon)


class _Dyadic:
    """One number a level: the draw of its live node."""

    def __init__(self, horizon: int) -> None:
        self._levels = np.arange(horizon.bit_length())
        self.weights = np.ones(len(self._levels))

    def step(self, before: int, after: int) -> Step:
        live = (after >> self._levels & 1).astype(np.float64)
        stays = live * (self._levels >= (before ^ after).bit_length())
        return Step(np.diag(stays), np.diag(live - stays))


class _Smooth:
    """One number a place in the chain of nodes."""

    def __init__(self, horizon: int) -> None:
        ones, zeros = tree_shape(horizon)
        self._tree = SmoothTree(ones, zeros)
        self._places = np.arange(ones)
        self.weights = np.ones(ones)

    def step(self, before: int, after: int) -> Step:
        rounds = np.array([before, after])
        shared = self._tree.shared_nodes(rounds[:1], rounds[1:])[0]
        stays = (self._places < shared).astype(np.float64)
        live = (self._places < self._tree.prefix_nodes(rounds[1:])[0]).astype(np.float64)
        return Step(np.diag(stays), np.diag(live - stays))


class _Toeplitz:
    """One number a pole: U_a(t) = p_a U_a(t-1) + z_t (counters/blt.py)."""

    def __init__(self, horizon: int) -> None:
        gaps = best_gaps(horizon)
        gap = np.array(gaps.poles)
        self._logs = np.log1p(-gap)
        self._products = gap + gap[:, None] - gap * gap[:, None]
        self.weights = np.array([float(weight) for weight in output_weights(gaps)])

    def step(self, before: int, after: int) -> Step:
        rounds = after - before
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = -np.expm1(rounds * (self._logs + self._logs[:, None])) / self._products
        return Step(np.diag(np.exp(rounds * self._logs)), np.where(self._products > 0, sums, float(rounds)))


class _Honaker:
    """One number a level: the estimate F_k / M_k of its live node, in which those of merged nodes go on."""

    def __init__(self, horizon: int) -> None:
        self._levels = horizon.bit_length()
        self.weights = np.ones(self._levels)
        self._divisors = 2.0 ** (np.arange(self._levels) + 1) - 1

    def step(self, before: int, after: int) -> Step:
        kept, fresh = np.eye(self._levels), np.zeros((self._levels, self._levels))
        while before < after:
            size = (after - before).bit_length() - 1
            if before:
                size = min(size, (before & -before).bit_length() - 1)
            before += 1 << size
            merge, variance = self._merge(size, (before & -before).bit_length() - 1)
            kept, fresh = merge @ kept, merge @ fresh @ merge.T + variance
        return Step(kept, fresh)

    def _merge(self, size: int, top: int) -> tuple[Matrix, Matrix]:
        """Add a whole node of level `size`, which completes those up to `top`: see `counters/honaker.py`."""
        merge, variance = np.eye(self._levels), np.zeros((self._levels, self._levels))
        merge[: top + 1] = 0
        merge[top, size:top] = self._divisors[size:top] / self._divisors[top]
        own = sum(4.0**level for level in range(size + 1, top + 1))
        variance[top, top] = (2.0**size * self._divisors[size] + own) / self._divisors[top] ** 2
        return merge, variance
