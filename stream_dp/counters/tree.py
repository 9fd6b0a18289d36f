"""Counters that complete one node a round: N(t) = N(parent(t)) + Z(t), one draw per label and node forever.

The prefix 1..t is the disjoint union of the nodes t, parent(t), parent(parent(t)) and so on down to 0; node t covers
the rounds (parent(t), t].  Which round is whose parent is all that tells one such counter from another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import Column, CounterState, Hits, grown
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian
from stream_dp.privacy.keyed_noise import KeyedNoise


class Tree(Protocol):
    """Which nodes make up the prefix of a round."""

    def chain(self, round_number: int) -> list[int]:
        """The nodes whose union is rounds 1..`round_number`, latest first."""
        ...

    def parents(self, first: int, last: int) -> list[int]:
        """For each round from `first` to `last`, the node before its own in its chain; 0 if there is none."""
        ...

    def slot(self, node: int) -> int:
        """The column that `node` is kept in: no two nodes of one chain share it."""
        ...

    def shared_nodes(self, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
        """How many nodes the prefixes of two rounds have in common, which begin alike and never meet again."""
        ...


@dataclass
class Node:
    """One live node over all labels: its partial sums, and the noise of the prefix that ends with it, one cell a label.

    `sums` and `prefix` are int32 of shape (capacity,); cells beyond the number of labels mean nothing.  A label first
    seen later draws by its `tweak`, too.
    """

    round: int
    tweak: bytes
    sums: NDArray[np.int32]
    prefix: NDArray[np.int32]


class TreeCounter:
    """The partial sums and the noise of all labels.  `live` holds the nodes of chain(`round`), latest first."""

    def __init__(self, tree: Tree, noise: KeyedNoise, gaussian: DiscreteGaussian) -> None:
        self._tree = tree
        self._noise = noise
        self._gaussian = gaussian
        self.round = 0
        self.labels = 0
        self.live: list[Node] = []

    def advance(
        self,
        ids: NDArray[np.uint64],
        histories: Sequence[bytes],
        hits: Hits,
        first_seen: NDArray[np.int64],
        wanted: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """See `Counter.advance`.  Noise exists in every round, also before a label is first seen."""
        self._add_labels(ids[self.labels :])
        if not histories:
            return np.empty((0, self.labels), np.int32)
        first, last = self.round + 1, self.round + len(histories)
        parents = self._completed(first, last, wanted)
        drawn = self._noise.tweaks((a, 0, histories[a - first]) for a in parents)
        tweaks = dict(zip(parents, drawn, strict=True))
        draws = self._noise.draw(self._gaussian, ids, drawn)
        noise = dict(zip(parents, draws, strict=True))
        noise.update((node.round, node.prefix[: self.labels]) for node in self.live)
        for a, parent in parents.items():
            if parent:
                noise[a] += noise[parent]
        nodes = self._tree.chain(last)
        self.live = [
            Node(a, tweaks[a], self._merged_sums(a, parents[a], hits), noise[a].copy())
            for a in nodes
            if a >= first
        ] + [node for node in self.live if node.round in nodes]
        self.round = last
        if wanted is None:
            return draws
        return draws[np.searchsorted(np.fromiter(parents, np.int64, len(parents)), wanted)]

    def current(self) -> NDArray[np.int32]:
        """See `Counter.current`."""
        return self.live[0].prefix[: self.labels] if self.live else np.zeros(self.labels, np.int32)

    def state(self) -> CounterState:
        """Two columns for each live node, its own sums and noise, and its tweak."""
        columns = []
        for node, older in zip_longest(self.live, self.live[1:]):
            slot = self._tree.slot(node.round)
            own = node.prefix if older is None else node.prefix[: self.labels] - older.prefix[: self.labels]
            columns.append(Column(f"sums:{slot}", node.round, node.sums[: self.labels]))
            columns.append(Column(f"noise:{slot}", node.round, own[: self.labels]))
        return CounterState(self.round, columns, {node.round: node.tweak for node in self.live})

    def restore(self, state: CounterState, labels: int) -> None:
        """See `Counter.restore`."""
        cells = {column.name: column.cells for column in state.columns}
        self.round, self.labels = state.round, labels
        self.live = []
        prefix = np.zeros(labels, np.int32)
        for node in reversed(self._tree.chain(state.round)):
            slot = self._tree.slot(node)
            prefix = prefix + cells[f"noise:{slot}"][:labels]
            self.live.insert(0, Node(node, state.tweaks[node], cells[f"sums:{slot}"].copy(), prefix))

    def _completed(self, first: int, last: int, wanted: NDArray[np.int64] | None) -> dict[int, int]:
        """The nodes to draw noise for in the rounds `first` to `last`, in order, each with its parent.

        Where not all rounds are wanted, most nodes are never looked at: their noise is not drawn.
        """
        if wanted is None:
            return dict(zip(range(first, last + 1), self._tree.parents(first, last), strict=True))
        parents: dict[int, int] = {}
        for end in (*wanted.tolist(), last):
            nodes = self._tree.chain(end)
            parents.update(zip(nodes, (*nodes[1:], 0), strict=False))
        return {a: parents[a] for a in sorted(parents) if a >= first}

    def _add_labels(self, ids: NDArray[np.uint64]) -> None:
        """Append labels: sums 0, and the noise of the live nodes only."""
        old, self.labels = self.labels, self.labels + len(ids)
        if not self.live or not len(ids):
            return
        draws = self._noise.draw(self._gaussian, ids, [node.tweak for node in self.live])
        for older, newer in pairwise(reversed(draws)):
            newer += older
        for node, prefix in zip(self.live, draws, strict=True):
            node.prefix = grown(node.prefix, self.labels)
            node.prefix[old : self.labels] = prefix
            node.sums = grown(node.sums, self.labels)
            node.sums[old : self.labels] = 0

    def _merged_sums(self, round_number: int, start: int, hits: Hits) -> NDArray[np.int32]:
        """The partial sums of the new node, over the rounds after `start`: swallowed nodes and the block's hits."""
        sums = np.zeros(self.labels, np.int32)
        for node in self.live:
            if node.round > start:
                sums += node.sums[: self.labels]
        hits.between(start, round_number).add_to(sums)
        return sums
