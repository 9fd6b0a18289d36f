"""The Binary Mechanism for one running count per label: dyadic partial sums, each with one noise draw for ever.

Round l completes exactly one node per label, node l, which covers the rounds (l - lowbit(l), l].  The prefix
1..l is the disjoint union of the nodes `chain(l)`, so

    noise(label, l) = noise(label, l - lowbit(l)) + Z(label, l),    Z ~ N_Z(0, sigma_squared)

Source: Chan, Shi and Song (2011); unknown-domain form: Cardoso and Rogers (2022), Theorem 11, whose proof drops
the factor 1/2 in rho.  The threshold is theirs with the exact integer tail of each round in place of one bound.
Why it is private: docs/guarantee.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.privacy.discrete_gaussian import DiscreteGaussian, variance
from stream_dp.privacy.keyed_noise import KeyedNoise
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


def levels(horizon: int) -> int:
    """The most nodes of a horizon that hold one round: what one event can touch, per item."""
    return horizon.bit_length()


def level_of(node: int) -> int:
    """log2 of the number of rounds that node `node` covers."""
    return (node & -node).bit_length() - 1


@dataclass(frozen=True)
class BinaryMechanism:
    """The Binary Mechanism with its noise and thresholds fixed.

    `thresholds[m - 1]` is the least noisy count released in a round whose prefix is the union of m nodes.
    """

    horizon: int
    items_per_event: int
    sigma_squared: float
    threshold_delta: float
    thresholds: tuple[int, ...]
    name: str = "binary"

    @classmethod
    def of(
        cls, horizon: int, items_per_event: int, sigma_squared: float, threshold_delta: float
    ) -> "BinaryMechanism":
        """Compute the thresholds: each of the D0 * L chances to escape gets an equal part of `threshold_delta`."""
        tail = threshold_delta / (items_per_event * horizon)
        thresholds = [sum_tail_threshold(sigma_squared, m + 1, tail) for m in range(levels(horizon))]
        return cls(horizon, items_per_event, sigma_squared, threshold_delta, tuple(thresholds))

    @property
    def rho(self) -> float:
        """The zCDP cost of the noisy table of a whole epoch, D0 * h / (2 s2)."""
        return self.items_per_event * levels(self.horizon) / (2 * self.sigma_squared)

    def tau(self, round_number: int) -> int:
        """The least noisy count that is released in this round."""
        return self.thresholds[round_number.bit_count() - 1]

    def sd(self, round_number: int) -> float:
        """The standard deviation of every count released in this round."""
        return sqrt(round_number.bit_count() * variance(self.sigma_squared))

    def counter(self, noise: KeyedNoise) -> "BinaryCounter":
        """A counter at round 0, without labels."""
        return BinaryCounter(noise, DiscreteGaussian(self.sigma_squared))


@dataclass
class Node:
    """One live node over all labels: its partial sums and its noise, one cell a label.

    `sums` and `noise` are int32 of shape (capacity,); cells beyond the number of labels mean nothing.
    `tweak` is kept because a label first seen later draws its own noise of this node.
    """

    round: int
    tweak: bytes
    sums: NDArray[np.int32]
    noise: NDArray[np.int32]

    @property
    def level(self) -> int:
        """log2 of the number of rounds the node covers."""
        return level_of(self.round)


@dataclass(frozen=True)
class Hits:
    """Which cells of a block of rounds grow by one: `rounds` and `rows`, int64 of shape (hits,)."""

    rounds: NDArray[np.int64]
    rows: NDArray[np.int64]


class BinaryCounter:
    """The dyadic tables of all labels.  `live` holds the nodes of chain(`round`), latest first."""

    def __init__(self, noise: KeyedNoise, gaussian: DiscreteGaussian) -> None:
        self._noise = noise
        self._gaussian = gaussian
        self.round = 0
        self.labels = 0
        self.live: list[Node] = []

    def add_labels(self, ids: NDArray[np.uint64]) -> None:
        """Append labels of identities `ids`, shape (n, 2): sums 0, and the noise of the live nodes only."""
        old, self.labels = self.labels, self.labels + len(ids)
        if not self.live or not len(ids):
            return
        draws = self._noise.draw(self._gaussian, ids, [node.tweak for node in self.live])
        for node, noise in zip(self.live, draws, strict=True):
            node.sums = grown(node.sums, self.labels)
            node.noise = grown(node.noise, self.labels)
            node.sums[old : self.labels] = 0
            node.noise[old : self.labels] = noise

    def restore(self, round_number: int, live: Sequence[Node]) -> None:
        """Go on from `round_number`: `live` holds the nodes of chain(`round_number`), for all labels."""
        self.round = round_number
        by_round = {node.round: node for node in live}
        self.live = [
            replace(node, sums=node.sums.copy(), noise=node.noise.copy())
            for node in (by_round[node_round] for node_round in chain(round_number))
        ]

    def advance(self, ids: NDArray[np.uint64], tweaks: Sequence[bytes], hits: Hits) -> NDArray[np.int32]:
        """Process the next len(tweaks) rounds as one matrix.

        `ids`: identities of all labels, shape (labels, 2); `hits.rounds` are round numbers.
        Returns the noise of every label's running count after each of the rounds, int32 of shape
        (rounds, labels).
        """
        first, last = self.round + 1, self.round + len(tweaks)
        noise = self._noise.draw(self._gaussian, ids, tweaks)
        nodes = chain(last)
        completed = {a: noise[a - first].copy() for a in nodes if a >= first}
        before = self._prefix_noise()
        for row, round_number in enumerate(range(first, last + 1)):
            parent = round_number & (round_number - 1)
            if parent >= first:
                noise[row] += noise[parent - first]
            elif parent:
                noise[row] += before[parent]
        self.live = [
            Node(a, tweaks[a - first], self._merged_sums(a, hits), completed[a]) for a in completed
        ] + [node for node in self.live if node.round in nodes]
        self.round = last
        return noise

    def _prefix_noise(self) -> dict[int, NDArray[np.int32]]:
        """For each live node, the noise of the prefix that ends with it."""
        prefix, running = {}, np.zeros(self.labels, np.int32)
        for node in reversed(self.live):
            running = running + node.noise[: self.labels]
            prefix[node.round] = running
        return prefix

    def _merged_sums(self, round_number: int, hits: Hits) -> NDArray[np.int32]:
        """The partial sums of the new node: the live nodes that it swallows, and the block's own hits."""
        start = round_number & (round_number - 1)
        inside = (hits.rounds > start) & (hits.rounds <= round_number)
        sums = np.bincount(hits.rows[inside], minlength=self.labels).astype(np.int32)
        for node in self.live:
            if node.round > start:
                sums += node.sums[: self.labels]
        return sums


def grown(cells: NDArray[Any], size: int) -> NDArray[Any]:
    """`cells` with room for at least `size` rows, half more than asked so that growth costs little on average."""
    if size <= len(cells):
        return cells
    larger = np.zeros((size + size // 2, *cells.shape[1:]), cells.dtype)
    larger[: len(cells)] = cells
    return larger
