"""What all counters have in common whose rounds complete one node of a tree each, with one draw (tree.py).

The shape of the tree says everything about the noise: how many nodes make up a prefix, and how many two prefixes share.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.escapes import level_shares
from stream_dp.counters.noise_shape import NoiseShape, Step
from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.tree import Tree, TreeCounter
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian, variance
from stream_dp.privacy.keyed_noise import KeyedNoise


class TreeMechanism(DiscreteCounter, frozen=True):
    """A counter that is told by its tree, what one event can change in it, and its thresholds."""

    by_level: ClassVar[bool] = False
    """Whether thresholds of kept labels give more of delta to rounds of higher levels (escapes.py)."""

    @classmethod
    def tree(cls, horizon: int) -> Tree:
        """Which nodes make up the prefix of a round; it has no state."""
        raise NotImplementedError

    @classmethod
    def most_nodes(cls, horizon: int) -> int:
        """The most nodes of a prefix."""
        raise NotImplementedError

    def nodes(self, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many nodes make up the count of each of `rounds`."""
        return self.tree(self.horizon).shared_nodes(rounds, rounds).astype(np.int64)

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `CalibratedCounter.sds`."""
        return np.sqrt(self.nodes(rounds) * variance(self.sigma_squared))

    def counter(self, noise: KeyedNoise) -> TreeCounter:
        """See `CalibratedCounter.counter`."""
        return TreeCounter(self.tree(self.horizon), noise, DiscreteGaussian(self.sigma_squared))

    @classmethod
    def noise_shape(cls, horizon: int) -> NoiseShape:
        """Two rounds share the draws of the nodes that are in both prefixes."""
        shares = level_shares(EpochParameters(horizon, 1, 1.0)) if cls.by_level else ()
        return NoiseShape(cls.tree(horizon).shared_nodes, tuple(shares))

    @classmethod
    def noise_state(cls, horizon: int) -> "TreeState":
        """See `CalibratedCounter.noise_state`."""
        return TreeState(cls.tree(horizon), cls.most_nodes(horizon))


class TreeState:
    """One number a place in the chain of nodes, oldest first: the draw of the node there."""

    def __init__(self, tree: Tree, most_nodes: int) -> None:
        self._tree, self._places = tree, np.arange(most_nodes)
        self.weights = np.ones(most_nodes)

    def step(self, before: int, after: int) -> Step:
        """See `NoiseState.step`."""
        then, now = np.array([before]), np.array([after])
        stays = (self._places < self._tree.shared_nodes(then, now)[0]).astype(np.float64)
        live = (self._places < self._tree.shared_nodes(now, now)[0]).astype(np.float64)
        return Step(np.diag(stays), np.diag(live - stays))
