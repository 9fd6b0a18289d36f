"""Counters that complete one node a round: N(t) = N(parent(t)) + Z(t), one draw per label and node forever.

The prefix 1..t is the disjoint union of the nodes t, parent(t), parent(parent(t)) and so on down to 0; node t covers
the rounds (parent(t), t].  Which round is whose parent is all that tells one such counter from another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import Column, CounterState, Hits, grown
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian
from stream_dp.privacy.keyed_noise import KeyedNoise

_PREFIXES = 4
"""So many live nodes keep the noise of their prefix where labels skip rounds: 16 bytes a label, whatever the horizon.

A round that completes a node of level j above the block's swallows j later ones.  Its prefix needs that of the node
before those: it is kept where j < 4, and else the j of them are drawn again, once in 2^(j+1) blocks: 0.3 more draws a
block on average.
"""


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

    `sums` and `prefix` are int32 of shape (capacity,); cells beyond the number of labels mean nothing.  `sums` is None
    where labels have skipped rounds of the node.  `prefix` is None where it is not kept: it is that of the node after
    it, less the draws of that one, which its `tweak` gives again.  A label first seen later draws by it, too.
    """

    round: int
    tweak: bytes
    sums: NDArray[np.int32] | None
    prefix: NDArray[np.int32] | None


class NoiseCells:
    """A node's own noise as the cells of a column, which are computed when somebody takes them.

    Nobody takes those of most columns: a checkpoint writes what Redis does not hold yet.
    """

    dtype = np.dtype(np.int32)

    def __init__(self, labels: int, compute: Callable[[slice], NDArray[np.int32]]) -> None:
        """`compute` gives the cells of some rows, the same ones whatever happens to the counter later."""
        self._labels, self._compute = labels, compute

    def __len__(self) -> int:
        return self._labels

    def __getitem__(self, rows: slice) -> NDArray[np.int32]:
        return self._compute(slice(*rows.indices(self._labels)))

    def __array__(self, dtype: object = None, copy: object = None) -> NDArray[np.int32]:
        return self[:]

    def __deepcopy__(self, memo: object) -> NDArray[np.int32]:
        return self.copy()

    def copy(self) -> NDArray[np.int32]:
        """All of them."""
        return self[:].copy()

    def tolist(self) -> list[int]:
        """All of them as numbers."""
        return list(self[:].tolist())


class TreeCounter:
    """The partial sums and the noise of all labels.  `live` holds the nodes of chain(`round`), latest first.

    Where labels skip rounds (`follow`), most of them are idle, and only the latest nodes keep the noise of their
    prefix: those are swallowed first.
    """

    def __init__(self, tree: Tree, noise: KeyedNoise, gaussian: DiscreteGaussian) -> None:
        self._tree = tree
        self._noise = noise
        self._gaussian = gaussian
        self.round = 0
        self.labels = 0
        self.live: list[Node] = []
        self._ids = np.empty((0, 2), np.uint64)  # of all labels, as the last call gave them

    def advance(
        self,
        ids: NDArray[np.uint64],
        histories: Sequence[bytes],
        hits: Hits,
        first_seen: NDArray[np.int64],
        wanted: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """See `Counter.advance`.  Noise exists in every round, also before a label is first seen."""
        self._ids = ids
        self._add_labels(ids[self.labels :])
        if not histories:
            return np.empty((0, self.labels), np.int32)
        first, last = self.round + 1, self.round + len(histories)
        prefixes = {node.round: prefix for node, prefix in zip(self.live, self._prefixes(), strict=True)}
        parents = self._completed(first, last, wanted)
        tweaks = {a: self._noise.tweak(a, 0, histories[a - first]) for a in parents}
        draws = self._noise.draw(self._gaussian, ids, [*tweaks.values()])
        noise = dict(zip(parents, draws, strict=True))
        noise.update(prefixes)
        for a, parent in parents.items():
            if parent:
                noise[a] += noise[parent]
        nodes = self._tree.chain(last)
        self.live = [
            Node(a, tweaks[a], self._merged_sums(a, parents[a], hits), noise[a].copy())
            for a in nodes
            if a >= first
        ] + [
            node if node.prefix is not None else replace(node, prefix=prefixes[node.round])
            for node in self.live
            if node.round in nodes
        ]
        self.round = last
        if wanted is None:
            return draws
        return draws[np.searchsorted(np.fromiter(parents, np.int64, len(parents)), wanted)]

    def current(self) -> NDArray[np.int32]:
        """See `Counter.current`."""
        return self._prefix(0) if self.live else np.zeros(self.labels, np.int32)

    def subset(self, rows: NDArray[np.int64]) -> "TreeCounter":
        """See `Counter.subset`."""
        part = TreeCounter(self._tree, self._noise, self._gaussian)
        part.round, part.labels = self.round, len(rows)
        part._ids = self._ids[rows] if len(self._ids) else self._ids
        for node in self.live:
            sums = None if node.sums is None else node.sums[rows]
            prefix = None if node.prefix is None else node.prefix[rows]
            part.live.append(Node(node.round, node.tweak, sums, prefix))
        return part

    def join(self, others: "TreeCounter") -> None:
        """See `Counter.join`."""
        old, self.labels = self.labels, self.labels + others.labels
        self._ids = np.concatenate([self._ids[:old], others._ids[: others.labels]])
        for node, theirs in zip(self.live, others.live, strict=True):
            if node.prefix is not None and theirs.prefix is not None:
                node.prefix = grown(node.prefix, self.labels)
                node.prefix[old : self.labels] = theirs.prefix[: others.labels]
            else:
                node.prefix = None
            if node.sums is not None and theirs.sums is not None:
                node.sums = grown(node.sums, self.labels)
                node.sums[old : self.labels] = theirs.sums[: others.labels]
            else:
                node.sums = None

    def follow(
        self, ahead: "TreeCounter", rows: NDArray[np.int64], ids: NDArray[np.uint64], history: bytes
    ) -> None:
        """See `Counter.follow`: every label draws its own noise of the nodes that are new, and no other."""
        self._ids = ids
        held = {node.round: place for place, node in enumerate(self.live)}
        new = [node for node in ahead.live if node.round not in held]
        kept = [held[node.round] for node in ahead.live[len(new) :]]
        prefix = self._prefix(kept[0]) if kept else np.zeros(self.labels, np.int32)
        self.live = [self.live[place] for place in kept]
        if kept:
            self.live[0].prefix = prefix
        for node in reversed(new):
            own = self._draw(node.tweak, ids)
            own += prefix
            self.live.insert(0, Node(node.round, node.tweak, None, own))
            prefix = own
        for node in self.live[_PREFIXES:]:
            node.prefix = None
        self.round = ahead.round

    def state(self) -> CounterState:
        """Two columns for each live node, its own sums and noise, and its tweak."""
        columns = []
        for node, older in zip_longest(self.live, self.live[1:]):
            slot = self._tree.slot(node.round)
            if node.sums is not None:
                columns.append(Column(f"sums:{slot}", node.round, node.sums[: self.labels]))
            columns.append(Column(f"noise:{slot}", node.round, self._own_noise(node, older)))
        return CounterState(self.round, columns, {node.round: node.tweak for node in self.live})

    def restore(self, state: CounterState, labels: int) -> None:
        """See `Counter.restore`."""
        cells = {column.name: column.cells for column in state.columns}
        self.round, self.labels = state.round, labels
        self.live = []
        prefix = np.zeros(labels, np.int32)
        for node in reversed(self._tree.chain(state.round)):
            slot = self._tree.slot(node)
            sums = cells.get(f"sums:{slot}")
            prefix = prefix + cells[f"noise:{slot}"][:labels]
            self.live.insert(0, Node(node, state.tweaks[node], None if sums is None else sums.copy(), prefix))

    def _own_noise(self, node: Node, older: Node | None) -> NDArray[np.int32]:
        """A node's own noise, where `older` is the node before it; not yet computed where most labels are idle."""
        labels, prefix, before = self.labels, node.prefix, older.prefix if older is not None else None
        if prefix is None or (older is not None and before is None):
            ids, tweak = self._ids, node.tweak
            cells = NoiseCells(labels, lambda rows: self._draw(tweak, ids[rows]))
        elif before is None:
            return prefix[:labels]
        else:
            cells = NoiseCells(labels, lambda rows: prefix[rows] - before[rows])
        return cast("NDArray[np.int32]", cells if node.sums is None else cells[:])

    def _draw(self, tweak: bytes, ids: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The own noise of the node with this tweak, of each label."""
        return self._noise.draw(self._gaussian, ids, [tweak])[0]

    def _prefixes(self) -> list[NDArray[np.int32]]:
        """The noise of the prefixes of all live nodes, latest first."""
        found: list[NDArray[np.int32]] = []
        for place, node in enumerate(self.live):
            kept = node.prefix
            found.append(self._without(found[-1], place - 1) if kept is None else kept[: self.labels])
        return found

    def _prefix(self, place: int) -> NDArray[np.int32]:
        """The noise of the prefix of the live node at `place`: as it is kept, or that of a later one less the draws."""
        kept = next(i for i in range(place, -1, -1) if self.live[i].prefix is not None)
        prefix = self.live[kept].prefix
        assert prefix is not None
        prefix = prefix[: self.labels]
        for later in range(kept, place):
            prefix = self._without(prefix, later)
        return prefix

    def _without(self, prefix: NDArray[np.int32], place: int) -> NDArray[np.int32]:
        """The prefix of the node before the one at `place`, whose prefix this is."""
        return prefix - self._draw(self.live[place].tweak, self._ids[: self.labels])

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
            if node.prefix is not None:
                node.prefix = grown(node.prefix, self.labels)
                node.prefix[old : self.labels] = prefix
            if node.sums is not None:
                node.sums = grown(node.sums, self.labels)
                node.sums[old : self.labels] = 0

    def _merged_sums(self, round_number: int, start: int, hits: Hits) -> NDArray[np.int32] | None:
        """The partial sums of the new node, over the rounds after `start`: swallowed nodes and the block's hits."""
        sums = np.zeros(self.labels, np.int32)
        for node in self.live:
            if node.round > start:
                if node.sums is None:
                    return None
                sums += node.sums[: self.labels]
        hits.between(start, round_number).add_to(sums)
        return sums
