"""Does the smooth counter hold the nodes of its balanced tree, as few as can be, each with the one draw of its own?"""

from functools import cache
from itertools import pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings

from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.smooth import SmoothMechanism, smooth_tree, tree_shape
from stream_dp.counters.tree import TreeCounter
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian, variance
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.privacy.thresholds import sum_tail, sum_tail_threshold
from tests.counters.blocks import Arrivals, arrivals, feed, histories, ids
from tests.statistics import fits, law_of, rate_at_most, uncorrelated

NOISE = KeyedNoise(bytes(range(32)), "smooth", bytes(16))
GAUSSIAN = DiscreteGaussian(40.0)
HORIZONS = [1, 2, 3, 5, 6, 10, 30, 100, 460, 1023, 1024]


@cache
def nodes_by_hand(horizon: int) -> list[list[list[int]]]:
    """For each round from 0 on, the rounds in each subtree that holds the prefix, latest first; empty ones left out."""
    ones, zeros = tree_shape(horizon)
    leaves = [leaf for leaf in range(1 << (ones + zeros)) if leaf.bit_count() == ones][: horizon + 1]
    prefixes = []
    for following in leaves:
        subtrees = []
        for bit in range(ones + zeros):
            if following >> bit & 1:
                start = following >> (bit + 1) << (bit + 1)
                inside = [r for r, leaf in enumerate(leaves, 1) if start <= leaf < start + (1 << bit)]
                subtrees += [inside] if inside else []
        prefixes.append(subtrees)
    return prefixes


@pytest.mark.parametrize("horizon", HORIZONS)
def test_every_prefix_is_the_disjoint_union_of_the_subtrees_of_the_next_leaf(horizon: int) -> None:
    tree = smooth_tree(*tree_shape(horizon))
    for last, subtrees in enumerate(nodes_by_hand(horizon)):
        chain = tree.chain(last)
        assert [subtree[-1] for subtree in subtrees] == chain
        covered = [list(range(before + 1, node + 1)) for node, before in pairwise([*chain, 0])]
        assert subtrees == covered
        assert sorted(r for node in covered for r in node) == list(range(1, last + 1))


@pytest.mark.parametrize("horizon", HORIZONS)
def test_a_round_is_in_as_many_nodes_as_a_leaf_has_zeros(horizon: int) -> None:
    nodes = {subtree[-1]: subtree for prefix in nodes_by_hand(horizon) for subtree in prefix}
    assert sorted(nodes) == list(range(1, horizon + 1))  # each round completes one
    held = np.bincount([r for node in nodes.values() for r in node])
    assert SmoothMechanism.nodes_per_event(horizon) == held.max() == held[1]


@pytest.mark.parametrize("horizon", HORIZONS)
def test_parents_and_slots_follow_from_the_chains(horizon: int) -> None:
    ones, zeros = tree_shape(horizon)
    tree = smooth_tree(ones, zeros)
    chains = [tree.chain(last) for last in range(1, horizon + 1)]
    for first in {1, 2, horizon // 3 + 1, horizon}:
        expected = [[*chain, 0][1] for chain in chains[first - 1 :]]
        assert expected == tree.parents(first, horizon)
    for chain in chains:
        assert sorted(range(len(chain)), reverse=True) == [tree.slot(node) for node in chain]
    assert [len(chain) for chain in chains] == tree.prefix_nodes(np.arange(1, horizon + 1)).tolist()
    assert max(map(len, chains)) == ones


def test_rounds_far_out_are_reached_without_the_ones_before() -> None:
    horizon = 2**24
    tree = smooth_tree(*tree_shape(horizon))
    rounds = range(horizon - 4_000, horizon + 1)
    chains = [tree.chain(last) for last in rounds]
    assert [chain[1] for chain in chains] == tree.parents(rounds[0], horizon)
    assert [len(chain) for chain in chains] == tree.prefix_nodes(np.array(rounds)).tolist()
    assert chains[-1][0] == horizon


@cache
def most_prefixes(nodes: int, load: int) -> int:
    """The most prefixes, the empty one included, of any forest with so many nodes a prefix and nodes a round."""
    if not nodes or not load:
        return 1
    return most_prefixes(nodes - 1, load) + most_prefixes(nodes, load - 1)


@pytest.mark.parametrize("horizon", [*HORIZONS, 4095, 65_535, 2**20, 2**24])
def test_no_tree_has_a_smaller_product_of_nodes_and_load(horizon: int) -> None:
    ones, zeros = tree_shape(horizon)
    assert comb(ones + zeros, ones) == most_prefixes(ones, zeros) > horizon
    for nodes in range(1, ones * zeros + 1):
        for load in range(1, ones * zeros // nodes + 1):
            better = nodes * load < ones * zeros or load < zeros
            assert not (better and most_prefixes(nodes, load) > horizon)


def test_the_bound_on_prefixes_holds_for_every_choice_of_parents_up_to_7_rounds() -> None:
    """All 7! choices, each with its longest prefix and its fullest round."""
    found: dict[tuple[int, int], int] = {}

    def extend(parents: list[int], depths: list[int], held: list[int]) -> None:
        key = max(depths), max(held)
        found[key] = max(found.get(key, 0), len(parents))
        if len(parents) < 8:
            for parent in range(len(parents)):
                inside = [n + (r > parent) for r, n in enumerate([*held, 0])]
                extend([*parents, parent], [*depths, depths[parent] + 1], inside)

    extend([0], [0], [0])
    assert all(prefixes <= most_prefixes(*key) for key, prefixes in found.items())
    assert found[2, 2] == 6


@pytest.mark.parametrize(("horizon", "of_the_design"), [(2**10, 4.95), (2**16, 7.07), (2**20, 8.49)], ids=str)
def test_the_largest_deviation_is_below_the_design_table(horizon: int, of_the_design: float) -> None:
    """At rho = 1, D0 = 1.  The table's trees have as many zeros as ones; a free choice is 5 to 10% better."""
    ones, zeros = tree_shape(horizon)
    mechanism = SmoothMechanism.of(EpochParameters(horizon, 1, 1e-6), zeros / 2)
    assert mechanism.rho == 1
    sds = mechanism.sds(np.arange(1, horizon + 1))
    assert sds.max() == pytest.approx((ones * variance(zeros / 2)) ** 0.5)
    assert 0.89 * of_the_design < sds.max() < 0.96 * of_the_design
    assert sds.mean() < 0.96 * sds.max()


@pytest.mark.parametrize("horizon", [7, 1023])
def test_every_threshold_is_the_exact_tail_of_its_prefix(horizon: int) -> None:
    mechanism = SmoothMechanism.of(EpochParameters(horizon, 3, 1e-4), 30.0)
    tree = smooth_tree(mechanism.ones, mechanism.zeros)
    rounds = np.arange(1, horizon + 1)
    tails = [sum_tail_threshold(30.0, len(tree.chain(last)), 1e-4 / 3 / horizon) for last in rounds.tolist()]
    assert tails == mechanism.taus(rounds).tolist()
    assert [tails[0], tails[-1]] == [mechanism.tau(1), mechanism.tau(horizon)]


def test_an_escape_is_as_rare_as_its_budget_and_a_threshold_one_lower_is_not() -> None:
    """A label of true count 1, at a budget large enough to be spent in front of us."""
    mechanism = SmoothMechanism.of(EpochParameters(20, 1, 0.5), 12.0)
    rounds, labels = np.arange(1, 21), 40_000
    noise = feed(mechanism.counter(NOISE), ids(NOISE, labels), [1] * labels, [20])
    budget = 0.5 / 20
    for last, counts, tau in zip(rounds.tolist(), noise + 1, mechanism.taus(rounds).tolist(), strict=True):
        nodes = len(smooth_tree(mechanism.ones, mechanism.zeros).chain(last))
        assert sum_tail(12.0, nodes, tau - 1) <= budget < sum_tail(12.0, nodes, tau - 2)
        assert rate_at_most(budget, int((counts >= tau).sum()), labels)
        assert not rate_at_most(budget, int((counts >= tau - 2).sum()), labels)


@settings(max_examples=60)
@given(arrivals())
def test_noise_is_the_sum_of_single_draws_over_the_chain_however_the_stream_is_cut(stream: Arrivals) -> None:
    """Also for labels that come late, whose first nodes were completed without them."""
    rounds, first_seen, cuts = stream
    tree = smooth_tree(*tree_shape(89))
    identities = ids(NOISE, len(first_seen))
    tweaks = [NOISE.tweak(r, 0, history) for r, history in enumerate(histories(1, rounds), 1)]
    single = NOISE.draw(GAUSSIAN, identities, tweaks).astype(np.int64)
    expected = np.array(
        [single[[node - 1 for node in tree.chain(last)]].sum(axis=0) for last in range(1, rounds + 1)]
    )
    expected[np.arange(1, rounds + 1)[:, None] < first_seen] = 0
    counter = TreeCounter(tree, NOISE, GAUSSIAN)
    assert expected.tolist() == feed(counter, identities, first_seen, cuts).tolist()

    restored = TreeCounter(tree, NOISE, GAUSSIAN)
    restored.restore(counter.state(), counter.labels)
    further = [feed(some, identities, first_seen, [rounds + 9]).tolist() for some in (counter, restored)]
    assert further[0] == further[1]


def test_the_law_and_the_covariance_of_the_noise() -> None:
    """Rounds of one chain share its nodes; a counter that adds one draw too many, or shares none, is noticed."""
    mechanism = SmoothMechanism.of(EpochParameters(20, 1, 1e-6), 9.0)
    tree = smooth_tree(mechanism.ones, mechanism.zeros)
    labels = 30_000
    noise = feed(mechanism.counter(NOISE), ids(NOISE, labels), [1] * labels, [20]).astype(np.int64)

    def law(nodes: int) -> dict[int, float]:
        return law_of(lambda k: sum_tail(9.0, nodes, k) - sum_tail(9.0, nodes, k + 1), 60)

    for last in (1, 6, 17, 20):
        nodes = len(tree.chain(last))
        assert fits(noise[last - 1], law(nodes))
        assert not fits(noise[last - 1], law(nodes + 1))
    for early, late in ((1, 20), (6, 7), (16, 17), (10, 20)):
        common = set(tree.chain(early)) & set(tree.chain(late))
        shared = noise[max(common) - 1] if common else 0
        own = [noise[last - 1] - shared for last in (early, late)]
        larger = 9.0 * max(len(tree.chain(early)), len(tree.chain(late)))
        assert uncorrelated(own[0], own[1], variance=larger)
        assert not common or not uncorrelated(noise[early - 1], noise[late - 1], variance=larger)
        drift = mechanism.drifts(early, np.array([late]))[0]
        assert (noise[late - 1] - noise[early - 1]).std() == pytest.approx(drift, rel=0.02)
