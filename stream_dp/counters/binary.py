"""The Binary Mechanism for one running count per label: dyadic partial sums, each with one noise draw forever.

Round l completes exactly one node per label, node l, which covers the rounds (l - lowbit(l), l].  The prefix
1..l is the disjoint union of the nodes `chain(l)`, so

    noise(label, l) = noise(label, l - lowbit(l)) + Z(label, l),    Z ~ N_Z(0, sigma_squared)

Source: Chan, Shi and Song (2011); unknown-domain form: Cardoso and Rogers (2022), Theorem 11, whose proof drops
the factor 1/2 in rho.  The threshold is theirs with the exact integer tail of each round in place of one bound.
Why it is private: docs/guarantee.md.
"""

from dataclasses import asdict
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.escapes import equal_share, level_shares
from stream_dp.counters.protocol import Enumerated, EpochParameters
from stream_dp.counters.tree_mechanism import TreeMechanism
from stream_dp.privacy.thresholds import sum_tail_threshold


def chain(round_number: int) -> list[int]:
    """The nodes whose union is rounds 1..`round_number`, latest first.

    >>> chain(7), chain(12)
    ([7, 6, 4], [12, 8])
    """
    nodes = []
    while round_number:
        nodes.append(round_number)
        round_number &= round_number - 1
    return nodes


class DyadicTree:
    """The nodes of the Binary Mechanism: strip the lowest binary one until nothing is left."""

    def chain(self, round_number: int) -> list[int]:
        """The nodes whose union is rounds 1..`round_number`, latest first."""
        return chain(round_number)

    def parents(self, first: int, last: int) -> list[int]:
        """For each round from `first` to `last`, the node before its own in its chain; 0 if there is none."""
        return [round_number & (round_number - 1) for round_number in range(first, last + 1)]

    def slot(self, node: int) -> int:
        """log2 of the number of rounds that `node` covers."""
        return (node & -node).bit_length() - 1

    def shared_nodes(self, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
        """How many nodes two prefixes have in common: those of their common leading bits."""
        below = shared_bits(earlier, later)
        return np.bitwise_count(earlier >> below << below).astype(np.float64)


def shared_bits(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.int32]:
    """How many of the lowest bits are not a common beginning of both: their highest differing bit and all below."""
    return np.frexp((earlier ^ later).astype(np.float64))[1]


def levels(horizon: int) -> int:
    """The most nodes of a horizon that hold one round: what one event can touch, per item."""
    return horizon.bit_length()


class BinaryMechanism(TreeMechanism, frozen=True, tag="binary"):
    """The Binary Mechanism with its noise and thresholds fixed.

    A label is shown by a noisy count of at least `thresholds[m - 1]` in a round whose prefix is the union of m nodes.
    Where labels are kept it is `thresholds_by_level[j][m - 1]`, for a round that completes a node of 2^j rounds.
    """

    thresholds: tuple[int, ...]
    thresholds_by_level: tuple[tuple[int, ...], ...] = ()

    by_level: ClassVar[bool] = True
    golden_digest: ClassVar[str] = "36683a322c2f23fbf39c29407efa377f"
    enumerated: ClassVar[Enumerated] = Enumerated(rounds=3, noise=1.0, epsilon=1.0)

    @classmethod
    def tree(cls, horizon: int) -> DyadicTree:
        """See `TreeMechanism.tree`."""
        return DyadicTree()

    @classmethod
    def most_nodes(cls, horizon: int) -> int:
        """See `TreeMechanism.most_nodes`."""
        return levels(horizon)

    @classmethod
    def of(cls, parameters: EpochParameters, sigma_squared: float) -> "BinaryMechanism":
        """See `DiscreteCounter.of`: equal shares, or where labels are kept more for rounds of few nodes."""
        fields = asdict(parameters) | {"sigma_squared": sigma_squared}
        if parameters.shown == "each-round":
            of_any_round = _thresholds(sigma_squared, levels(parameters.horizon), equal_share(parameters))
            return cls(**fields, thresholds=of_any_round)
        by_level = tuple(
            _thresholds(sigma_squared, levels(parameters.horizon) - j, share)
            for j, share in enumerate(level_shares(parameters))
        )
        return cls(**fields, thresholds=(), thresholds_by_level=by_level)

    @staticmethod
    def nodes_per_event(horizon: int) -> int:
        """How many noisy sums one item of one event can change, each by 1."""
        return levels(horizon)

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        """The least noisy count by which a label is shown in each of `rounds`."""
        nodes = np.bitwise_count(rounds) - 1
        if self.thresholds:
            return np.array(self.thresholds, np.int32)[nodes]
        table = np.zeros((levels(self.horizon), levels(self.horizon)), np.int32)
        for row, thresholds in zip(table, self.thresholds_by_level, strict=True):
            row[: len(thresholds)] = thresholds
        return table[np.bitwise_count((rounds & -rounds) - 1), nodes]


def _thresholds(sigma_squared: float, most_nodes: int, share: float) -> tuple[int, ...]:
    """The thresholds of rounds whose prefix is the union of 1 .. `most_nodes` nodes."""
    return tuple(sum_tail_threshold(sigma_squared, nodes + 1, share) for nodes in range(most_nodes))
