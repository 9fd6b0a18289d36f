"""Labels that skip rounds keep the noise of few nodes, and have the noise that they would have had."""

from copy import deepcopy

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.counters.binary import DyadicTree
from stream_dp.counters.protocol import Hits
from stream_dp.counters.tree import NoiseCells, Tree, TreeCounter
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian
from stream_dp.privacy.keyed_noise import KeyedNoise
from tests.counters.blocks import copied, histories, ids

NOISE = KeyedNoise(bytes(range(32)), "idle", bytes(16))
GAUSSIAN = DiscreteGaussian(40.0)
NONE = np.empty(0, np.int64)
NO_HITS = Hits(NONE, NONE)
BLOCK = 4
TREES: dict[str, Tree] = {"dyadic": DyadicTree()}


def single_draws(rounds: int, labels: int) -> NDArray[np.int64]:
    tweaks = [NOISE.tweak(number, 0, head) for number, head in enumerate(histories(1, rounds), 1)]
    return NOISE.draw(GAUSSIAN, ids(NOISE, labels), tweaks).astype(np.int64)


def skip_block(counter: TreeCounter, rows: NDArray[np.int64], identities: NDArray[np.uint64]) -> None:
    """Let the labels in `rows` pass through a block round by round, and the others skip it."""
    heads = histories(counter.round + 1, counter.round + BLOCK)
    active = counter.subset(rows)
    for head in heads:
        active.advance(identities[rows], [head], NO_HITS, NONE)
    counter.follow(active, rows, identities, heads[-1])


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("restored", [False, True])
def test_noise_is_the_sum_of_single_draws_over_the_chain(kind: str, restored: bool) -> None:
    """Over 130 blocks: carries swallow up to eight nodes, twice as many as keep the noise of their prefix."""
    blocks, labels, tree = 130, 12, TREES[kind]
    single = single_draws(blocks * BLOCK, labels)
    counter = TreeCounter(tree, NOISE, GAUSSIAN)
    identities = ids(NOISE, labels)
    most_live = 0
    for block in range(blocks):
        known = min(labels, 4 + block // 10)
        new = np.full(known - counter.labels, counter.round)
        counter.advance(identities[:known], [], NO_HITS, new)
        skip_block(counter, np.arange(block % 3, known, 5), identities[:known])
        if restored and block % 7 == 0:
            state, counter = copied(counter.state()), TreeCounter(tree, NOISE, GAUSSIAN)
            counter.restore(state, known)
        chain = tree.chain(counter.round)
        expected = single[[node - 1 for node in chain]].sum(axis=0)[:known]
        assert expected.tolist() == counter.current().tolist()
        noises = {c.version: c.cells[:] for c in counter.state().columns}
        assert [node.round for node in counter.live] == chain
        assert all(single[node - 1, :known].tolist() == noises[node].tolist() for node in chain)
        most_live = max(most_live, len(chain))
        if not restored:
            assert sum(node.prefix is not None for node in counter.live) <= 4
    assert most_live > 6


def test_cells_that_are_not_kept_stay_what_they_were() -> None:
    """What a checkpoint takes is of one moment, whatever happens before its cells are computed."""
    labels, counter = 9, TreeCounter(DyadicTree(), NOISE, GAUSSIAN)
    identities = ids(NOISE, labels)
    counter.advance(identities[:6], [], NO_HITS, np.zeros(6, np.int64))
    for _ in range(63):
        skip_block(counter, NONE, identities[:6])
    state = counter.state()
    assert all(isinstance(column.cells, NoiseCells) for column in state.columns[:-1])
    expected = deepcopy(state)
    counter.advance(identities, [], NO_HITS, np.full(3, counter.round))
    skip_block(counter, np.arange(labels), identities)
    for ours, theirs in zip(state.columns, expected.columns, strict=True):
        assert len(ours.cells) == 6
        assert ours.cells.tolist() == theirs.cells.tolist()
        assert ours.cells[2:5].tolist() == theirs.cells.tolist()[2:5]


def test_an_idle_label_costs_16_bytes_of_noise_however_many_nodes_are_live() -> None:
    labels, counter = 1_000, TreeCounter(DyadicTree(), NOISE, GAUSSIAN)
    identities = ids(NOISE, labels)
    counter.advance(identities, [], NO_HITS, np.zeros(labels, np.int64))
    for _ in range(255):
        skip_block(counter, np.arange(3), identities)
    assert len(counter.live) == 8
    kept = [node.prefix.nbytes for node in counter.live if node.prefix is not None]
    assert sum(kept) <= 16 * labels
    assert all(node.sums is None for node in counter.live)
