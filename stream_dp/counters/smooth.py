"""The smooth binary counter: as the Binary Mechanism, on a tree whose prefixes and rounds are balanced.

Source: Andersson and Pagh, "A Smooth Binary Mechanism for Efficient Private Continual Observation" (2023), in the form
below, where the numbers of ones and zeros need not be equal and empty nodes are left out.

Leaves.  The leaves of a binary tree of height h carry the numbers 0 to 2^h - 1.  Those whose binary form has exactly
k ones are used, in increasing order: round t is the t-th of them, and the leaf after it, number i of rank t (counted
from 0), delimits the prefix 1..t.  For every one of i, at bit p say, take the subtree of the leaves that agree with i
above p and have a zero at p.  These subtrees hold exactly the leaves below i, so the prefix is their disjoint union.

Nodes.  With the ones of i at bits c_1 < ... < c_k, the subtree at bit c_j holds binom(c_j, j) rounds: it chooses j
ones among c_j free bits.  So t = binom(c_k, k) + ... + binom(c_1, 1), the representation of t by binomials, and the
prefix is built from the largest term down.  A term is 0 exactly if c_j = j - 1, that is, for the run of ones at the
low end of i.  Such a subtree holds no round: its sum is 0 in every stream and it needs neither noise nor storage.
What is left is this: node t covers the last non-zero term of t, the rounds (parent(t), t], where

    parent(t) = t - its last non-zero term,    noise(label, t) = noise(label, parent(t)) + Z(label, t),

so each round completes exactly one node, as in the Binary Mechanism.  A prefix consists of at most k nodes.

Sensitivity.  The round of leaf i is in the subtree at bit p if i has a zero there, and in no other subtree at p that
is ever used.  So a round is in at most h - k nodes, and rho = D0 (h - k) / (2 s2).

Choice of h and k.  The rounds 0..horizon need binom(h, k) leaves.  The largest variance of a count at a given rho is
proportional to k (h - k), which is made as small as possible; of equal products the one with fewer nodes per round is
taken.  No other choice of parents does better.  Say that a prefix has at most a nodes and a round is in at most b, and
let r be the last round whose parent is 0.  A later round v whose parent u is before r might as well have parent r: its
prefix had 2 nodes or more, and (r, v] is part of (u, v].  So the rounds from r on form a tree with root r and prefixes
of at most a - 1 nodes more, and those before r, all inside node r, are in at most b - 1 nodes besides.  Hence at most
f(a, b) = f(a - 1, b) + f(a, b - 1) = binom(a + b, a) prefixes exist, the empty one included.
"""

from bisect import bisect_right
from dataclasses import asdict
from functools import lru_cache
from math import comb
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.escapes import equal_share
from stream_dp.counters.protocol import Enumerated, EpochParameters
from stream_dp.counters.tree_mechanism import TreeMechanism
from stream_dp.privacy.thresholds import sum_tail_threshold


def tree_shape(horizon: int) -> tuple[int, int]:
    """The ones and the zeros of the leaves: the most nodes of a prefix, and the most that hold one round.

    >>> tree_shape(1), tree_shape(1023), tree_shape(65_535)
    ((1, 1), (8, 5), (11, 8))
    """
    product = 0
    while True:
        product += 1
        for zeros in range(1, product + 1):
            ones, rest = divmod(product, zeros)
            if not rest and comb(ones + zeros, ones) > horizon:
                return ones, zeros


class SmoothTree:
    """The nodes of the smooth binary counter with `ones` and `zeros` in each leaf."""

    def __init__(self, ones: int, zeros: int) -> None:
        bits = ones + zeros
        self._ones = ones
        self._terms = [[comb(bit, j) for bit in range(bits)] for j in range(ones + 1)]  # by j and bit
        self._tables = [np.array(terms) for terms in self._terms]

    def chain(self, round_number: int) -> list[int]:
        """The nodes whose union is rounds 1..`round_number`, latest first."""
        nodes, total = [], 0
        for j, bit in self._expansion(round_number):
            if self._terms[j][bit]:
                total += self._terms[j][bit]
                nodes.append(total)
        return nodes[::-1]

    def parents(self, first: int, last: int) -> list[int]:
        """For each round from `first` to `last`, the node before its own in its chain; 0 if there is none."""
        leaf = sum(1 << bit for _, bit in self._expansion(first - 1))
        parents = []
        for round_number in range(first, last + 1):
            # The next larger number with as many ones: carry out of the lowest run, and the rest of it goes to the end.
            lowest = leaf & -leaf
            carried = leaf + lowest
            trailing = ((leaf ^ carried) >> 2) // lowest
            leaf = carried | trailing
            bit = (carried & -carried).bit_length() - 1
            parents.append(round_number - self._terms[trailing.bit_length() + 1][bit])
        return parents

    def slot(self, node: int) -> int:
        """How many nodes come before `node` in its chain."""
        return len(self.chain(node)) - 1

    def prefix_nodes(self, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many nodes the prefix of each of `rounds` consists of."""
        rest, nodes = rounds.copy(), np.zeros(len(rounds), np.int64)
        for table in self._tables[:0:-1]:
            nodes += rest > 0
            rest -= table[table.searchsorted(rest, side="right") - 1]
        return nodes

    def shared_nodes(self, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
        """How many nodes the prefixes of two rounds have in common; they begin alike and never meet again."""
        rest, later_rest = np.broadcast_arrays(earlier, later)
        alike, nodes = np.ones(rest.shape, bool), np.zeros(rest.shape)
        for table in self._tables[:0:-1]:
            term = table[table.searchsorted(rest, side="right") - 1]
            later_term = table[table.searchsorted(later_rest, side="right") - 1]
            alike &= term == later_term
            nodes += alike & (term > 0)
            rest, later_rest = rest - term, later_rest - later_term
        return nodes

    def _expansion(self, rank: int) -> list[tuple[int, int]]:
        """The leaf of this rank, counted from 0: (j, bit) of its ones, from the highest to the lowest."""
        found = []
        for j in range(self._ones, 0, -1):
            bit = bisect_right(self._terms[j], rank) - 1
            rank -= self._terms[j][bit]
            found.append((j, bit))
        return found


@lru_cache(maxsize=16)
def smooth_tree(ones: int, zeros: int) -> SmoothTree:
    """The tree with so many `ones` and `zeros` in each leaf; it has no state."""
    return SmoothTree(ones, zeros)


class SmoothMechanism(TreeMechanism, frozen=True, tag="smooth"):
    """The smooth binary counter with its noise and thresholds fixed.

    A leaf has `ones` and `zeros`; `thresholds[m - 1]` is the least noisy count released in a round whose prefix is the
    union of m nodes, of which there are at most `ones`.
    """

    ones: int
    zeros: int
    thresholds: tuple[int, ...]

    golden_digest: ClassVar[str] = "2c8fb9a1164d7c4107b9b6c230156fae"
    enumerated: ClassVar[Enumerated] = Enumerated(rounds=3, noise=1.0, epsilon=1.0)

    @classmethod
    def tree(cls, horizon: int) -> SmoothTree:
        """See `TreeMechanism.tree`."""
        return smooth_tree(*tree_shape(horizon))

    @classmethod
    def most_nodes(cls, horizon: int) -> int:
        """See `TreeMechanism.most_nodes`."""
        return tree_shape(horizon)[0]

    @classmethod
    def of(cls, parameters: EpochParameters, sigma_squared: float) -> "SmoothMechanism":
        """See `DiscreteCounter.of`: equal shares, which are near the best also where labels are kept."""
        ones, zeros = tree_shape(parameters.horizon)
        share = equal_share(parameters)
        thresholds = tuple(sum_tail_threshold(sigma_squared, m + 1, share) for m in range(ones))
        return cls(
            **asdict(parameters), sigma_squared=sigma_squared, ones=ones, zeros=zeros, thresholds=thresholds
        )

    @staticmethod
    def nodes_per_event(horizon: int) -> int:
        """How many noisy sums one item of one event can change, each by 1."""
        return tree_shape(horizon)[1]

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        """The least noisy count that is released in each of `rounds`."""
        return np.array(self.thresholds, np.int32)[self.nodes(rounds) - 1]
