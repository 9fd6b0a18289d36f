"""Many independent runs of a one-shot mechanism.

Mechanisms whose items do not meet (histograms, set union over users with items of their own) take all replicas as one
input: what is released of a replica's items depends on these items and on noise of their own.  All others run one by
one.  So that a run of three draws does not pay for starting three generators, its noise comes from `PooledNoise`: the
real generator's draws, made in blocks and handed out one after the other, each once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.baskets import Baskets, baskets
from stream_dp.batch.result import Outcome
from stream_dp.privacy.one_shot_noise import OneShotNoise

_POOL = 1 << 15


class PooledNoise(OneShotNoise):
    """One-shot noise that is drawn in blocks, which is faster.  No draw is handed out twice."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._pools: dict[tuple[str, float], tuple[NDArray[Any], int]] = {}

    def discrete_gaussian(self, sigma_squared: float, count: int) -> NDArray[np.int64]:
        """`count` draws of N_Z(0, sigma_squared)."""
        return self._next("gaussian integers", sigma_squared, count, super().discrete_gaussian)

    def discrete_laplace(self, scale: float, count: int) -> NDArray[np.int64]:
        """`count` draws of the discrete Laplace law."""
        return self._next("Laplace integers", scale, count, super().discrete_laplace)

    def gumbel(self, scale: float, count: int) -> NDArray[np.float64]:
        """`count` draws of the Gumbel law."""
        return self._next("Gumbel", scale, count, super().gumbel)

    def gaussian(self, sigma: float, count: int) -> NDArray[np.float64]:
        """`count` draws of N(0, sigma^2)."""
        return self._next("Gaussian", sigma, count, super().gaussian)

    def _next(
        self, law: str, scale: float, count: int, draw: Callable[[float, int], NDArray[Any]]
    ) -> NDArray[Any]:
        pool, used = self._pools.get((law, scale), (np.empty(0), 0))
        if used + count > len(pool):
            pool, used = draw(scale, max(_POOL, count)), 0
        self._pools[law, scale] = pool, used + count
        return pool[used : used + count]


def one_by_one(run: Callable[[OneShotNoise], Sequence[int]], runs: int, key: bytes) -> NDArray[np.int64]:
    """What `run` returns each time, int64 of shape (runs, values)."""
    noise = PooledNoise(key)
    return np.array([run(noise) for _ in range(runs)], np.int64).reshape(runs, -1)


def disjoint_counts(counts: Sequence[int], runs: int) -> NDArray[np.int64]:
    """A histogram in which every replica has `counts` on items of its own: replica r has r * len(counts) and on."""
    return np.tile(np.array(counts, np.int64), runs)


def disjoint_baskets(users: Sequence[Sequence[int]], items: int, runs: int) -> Baskets:
    """Users with items of their own in every replica; `users` lists each one's items, numbered from 0 to items - 1.

    User u of replica r has the number r * len(users) + u in both inputs of a pair where absent users hold nothing.
    """
    owners = np.repeat(np.arange(len(users)), [len(held) for held in users])
    held = np.array([item for one in users for item in one], np.int64)
    replica = np.arange(runs)[:, None]
    rows = (replica * len(users) + owners).ravel(), (replica * items + held).ravel()
    return baskets(*rows, runs * items)


def per_replica(result: Outcome, items: int, runs: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which items of each replica were released and, where there are any, their counts; shape (runs, items)."""
    shown, counts = np.zeros(runs * items, bool), np.zeros(runs * items, np.int64)
    shown[result.items] = True
    if result.counts is not None:
        counts[result.items] = result.counts
    return shown.reshape(runs, items), counts.reshape(runs, items)
