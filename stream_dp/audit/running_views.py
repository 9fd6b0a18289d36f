"""What an attacker looks at in all the releases of a running histogram."""

import numpy as np
from numpy.typing import NDArray

from stream_dp.audit.bounds import Views
from stream_dp.audit.running_replicas import Releases
from stream_dp.counters.binary import DyadicTree
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.blt_parameters import output_weights
from stream_dp.counters.tree import Tree

_MOST_ROUNDS_NAMED = 15  # a set of rounds is one number, bit by bit
_DYADIC = DyadicTree()


def views(releases: Releases, event_round: int, tree: Tree = _DYADIC) -> Views:
    """The sum statistic of the tree and others, given the round in which the neighbours differ."""
    shown, rounds = releases.shown, len(releases.shown)
    any_item: NDArray[np.bool_] = np.any(shown, axis=2)
    flat = releases.counts.sum(axis=2, dtype=np.int64)
    seen: dict[str, NDArray[np.int64]] = {
        "shift sum": shift_sum(releases, event_round, tree),
        "any label in any round": np.any(any_item, axis=0).astype(np.int64, copy=False),
        "rounds and labels shown": np.count_nonzero(shown, axis=(0, 2)),
        "sum of all counts": flat.sum(axis=0),
        "count in the last round": flat[-1],
        "count in the event's round": flat[event_round - 1],
        "step at the event's round": flat[event_round - 1]
        - (flat[event_round - 2] if event_round > 1 else 0),
    }
    if rounds <= _MOST_ROUNDS_NAMED:
        seen["rounds with a label"] = _bits(any_item)
    return seen


def shift_sum(releases: Releases, event_round: int, tree: Tree = _DYADIC) -> NDArray[np.int64]:
    """The noisy partial sums of all nodes that hold the event, added up: the likelihood ratio where all is shown.

    (For a counter whose releases are the sums of single nodes, that is; for another it is a statistic like others.)

    Node a is what round a adds to the prefix it builds on; a node that is not shown on both sides counts 0.
    """
    shown, counts = releases.shown, releases.counts
    total = np.zeros(counts.shape[1:], np.int64)
    parents = tree.parents(1, len(shown))
    for node in nodes_with(event_round, len(shown), tree):
        parent = parents[node - 1]
        if parent:
            total += np.where(shown[node - 1] & shown[parent - 1], counts[node - 1] - counts[parent - 1], 0)
        else:
            total += counts[node - 1]
    return total.sum(axis=1)


def blt_sum(releases: Releases, event_round: int, mechanism: BltMechanism) -> NDArray[np.int64]:
    """The likelihood ratio of a buffered linear Toeplitz counter, where all is shown, in steps of a fiftieth.

    With all counts y = B (C x + s z), up to rounding, its logarithm is the scalar product of B^-1 y and of C's column
    of the event, over s^2, and a constant; a count that is not shown is taken for 0.
    """
    rounds = np.arange(len(releases.counts))
    poles = 1 - np.array(mechanism.gaps.poles)
    b = poles ** rounds[:, None] @ np.array([float(weight) for weight in output_weights(mechanism.gaps)])
    lag = rounds[:, None] - rounds
    matrix = np.where(lag >= 0, b[np.maximum(lag, 0)], 0.0)
    column = np.linalg.solve(matrix, (rounds >= event_round - 1).astype(float))
    weights = np.linalg.solve(matrix.T, column) / mechanism.draw_sd**2
    ratio = np.tensordot(weights, releases.counts.sum(axis=2, dtype=np.int64), 1)
    return np.rint(50 * ratio).astype(np.int64)


def nodes_with(round_number: int, horizon: int, tree: Tree = _DYADIC) -> list[int]:
    """The nodes of rounds 1..horizon that hold the round.

    >>> nodes_with(1, 7), nodes_with(6, 7), nodes_with(7, 7)
    ([1, 2, 4], [6], [7])
    """
    parents = enumerate(tree.parents(round_number, horizon), round_number)
    return [node for node, parent in parents if parent < round_number]


def joint(releases: Releases, reach: int) -> Views:
    """Everything that one label shows, as one number: every round's count, held to 0 .. reach - 2, or not shown."""
    code = np.zeros(releases.shown.shape[1], np.int64)
    for shown, counts in zip(releases.shown[:, :, 0], releases.counts[:, :, 0], strict=True):
        middle = np.clip(counts.astype(np.int64) + reach // 2, 1, reach - 1)
        code = code * reach + np.where(shown, middle, 0)
    return {"all that is shown": code}


def _bits(table: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The rounds (rows) with True, round r as 2^(r - 1); shape (runs,)."""
    weights = 1 << np.arange(len(table), dtype=np.int64)
    return weights @ table
