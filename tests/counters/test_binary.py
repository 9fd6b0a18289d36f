"""Does the binary counter hold the dyadic nodes of the design, each with the one draw that is its own?"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_dp.counters.binary import BinaryMechanism, DyadicTree, chain, levels
from stream_dp.counters.protocol import EpochParameters, Hits, grown
from stream_dp.counters.tree import TreeCounter
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise
from tests import naive
from tests.shared import vectors

NOISE = KeyedNoise(bytes(range(32)), "counter", bytes(16))
GAUSSIAN = DiscreteGaussian(40.0)


def tweaks(first: int, last: int) -> list[bytes]:
    """The tweaks of rounds first..last."""
    return NOISE.tweaks((round_number, 0, EMPTY_HISTORY) for round_number in range(first, last + 1))


def ids(labels: int) -> NDArray[np.uint64]:
    return NOISE.label_ids(b"%d" % i for i in range(labels))


def run(
    counter: TreeCounter, hits: NDArray[np.int64], cuts: Sequence[int], known: Sequence[int]
) -> NDArray[np.int32]:
    """Feed `hits` (rounds x labels) in blocks that end at `cuts`; before block i there are known[i] labels."""
    noise = np.zeros(hits.shape, np.int32)
    for (start, end), labels in zip(pairwise([0, *cuts]), known, strict=True):
        rounds, rows = np.nonzero(hits[start:end, :labels])
        first_seen = np.full(labels - counter.labels, start + 1)
        histories = [EMPTY_HISTORY] * (end - start)
        block = counter.advance(ids(labels), histories, Hits(rounds + start + 1, rows), first_seen)
        noise[start:end, :labels] = block
    return noise


@pytest.mark.parametrize(("round_number", "expected"), vectors()["chains"].items())
def test_a_chain_is_the_prefix_in_dyadic_nodes(round_number: str, expected: list[int]) -> None:
    assert expected == chain(int(round_number))


def test_the_chain_of_no_rounds_is_empty() -> None:
    assert chain(0) == []


def test_every_prefix_is_the_disjoint_union_of_its_chain() -> None:
    for last in range(1, 600):
        covered = [r for a in chain(last) for r in range(a - (a & -a) + 1, a + 1)]
        assert list(range(1, last + 1)) == sorted(covered)


@pytest.mark.parametrize("case", vectors()["nodes_containing_event"], ids=str)
def test_an_event_is_inside_the_nodes_of_the_vectors(case: dict[str, Any]) -> None:
    """The nodes that hold a round are those of some chain up to the horizon whose sums the round enters."""
    horizon, event_round = case["horizon"], case["event_round"]
    live = {a for last in range(1, horizon + 1) for a in chain(last)}
    assert case["nodes"] == sorted(a for a in live if a - (a & -a) < event_round <= a)
    assert len(case["nodes"]) <= levels(horizon)


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 8, 15, 16, 100, 1023, 1024])
def test_levels_are_reached_and_never_exceeded(horizon: int) -> None:
    held = [
        sum(a - (a & -a) < event_round <= a for a in range(1, horizon + 1))
        for event_round in range(1, horizon + 1)
    ]
    assert max(held) == held[0] == levels(horizon)


@pytest.mark.parametrize("case", vectors()["binary"], ids=lambda case: f"horizon {case['horizon']}")
def test_levels_rho_and_thresholds_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    mechanism = BinaryMechanism.of(
        EpochParameters(case["horizon"], case["items_per_event"], float(case["threshold_delta"])),
        case["sigma_squared"],
    )
    assert case["levels"] == levels(case["horizon"]) == len(mechanism.thresholds)
    assert float(case["rho"]) == pytest.approx(mechanism.rho, rel=1e-15)
    assert case["tau"] == {round_number: mechanism.tau(int(round_number)) for round_number in case["tau"]}


@pytest.mark.parametrize(
    ("horizon", "items_per_event", "sigma_squared", "threshold_delta"),
    [(1, 1, 0.05, 0.3), (7, 2, 0.3, 1e-3), (31, 4, 1.7, 1e-9), (64, 1, 9.0, 1e-6), (255, 3, 25.0, 0.9)],
)
def test_every_threshold_equals_an_exact_convolution_of_integers(
    horizon: int, items_per_event: int, sigma_squared: float, threshold_delta: float
) -> None:
    mechanism = BinaryMechanism.of(EpochParameters(horizon, items_per_event, threshold_delta), sigma_squared)
    expected = [
        naive.tau(round_number, horizon, items_per_event, sigma_squared, threshold_delta)
        for round_number in range(1, horizon + 1)
    ]
    assert expected == [mechanism.tau(round_number) for round_number in range(1, horizon + 1)]


@pytest.mark.parametrize("sigma_squared", [0.5, 4.0])
def test_the_standard_deviation_is_that_of_the_exact_law(sigma_squared: float) -> None:
    mechanism = BinaryMechanism.of(EpochParameters(255, 1, 1e-6), sigma_squared)
    for round_number in (1, 3, 7, 88):
        law = naive.sum_probabilities(sigma_squared, len(chain(round_number)))
        expected = sum(k * k * probability for k, probability in law.items()) ** 0.5
        assert expected == pytest.approx(mechanism.sd(round_number), rel=1e-12)


def test_noise_is_the_sum_of_single_draws_over_the_chain() -> None:
    rounds, labels = 70, 5
    hits = np.zeros((rounds, labels), np.int64)
    single = NOISE.draw(GAUSSIAN, ids(labels), tweaks(1, rounds)).astype(np.int64)
    expected = [sum(single[a - 1] for a in chain(last)).tolist() for last in range(1, rounds + 1)]
    for cuts in ([rounds], range(1, rounds + 1), [1, 2, 9, 32, 33, 63, 64, 65, rounds]):
        noise = run(TreeCounter(DyadicTree(), NOISE, GAUSSIAN), hits, cuts, [labels] * len(cuts))
        assert expected == noise.tolist()


@st.composite
def streams(draw: st.DrawFn) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """Hits (rounds x labels), where the blocks end, and how many labels are known in each."""
    rounds, labels = draw(st.integers(1, 80)), draw(st.integers(1, 6))
    cuts = sorted({*draw(st.lists(st.integers(1, rounds), max_size=8)), rounds})
    known = sorted(draw(st.lists(st.integers(0, labels), min_size=len(cuts), max_size=len(cuts))))
    hits = np.random.default_rng(draw(st.integers(0, 1000))).integers(0, 2, (rounds, labels))
    for start, end, most in zip([0, *cuts], cuts, known, strict=False):
        hits[start:end, most:] = 0
    return hits, cuts, known


@settings(max_examples=60)
@given(streams())
def test_live_nodes_are_the_chain_with_brute_force_sums_and_single_draws(
    stream: tuple[NDArray[np.int64], list[int], list[int]],
) -> None:
    """Labels that come late included: their noise is that of all rounds they have missed."""
    hits, cuts, known = stream
    counter = TreeCounter(DyadicTree(), NOISE, GAUSSIAN)
    noise = run(counter, hits, cuts, known)
    rounds, labels = len(hits), known[-1]
    single = NOISE.draw(GAUSSIAN, ids(labels), tweaks(1, rounds))
    assert chain(rounds) == [node.round for node in counter.live]
    noises = {
        column.version: column.cells for column in counter.state().columns if column.name.startswith("noise:")
    }
    for node in counter.live:
        start = node.round - (node.round & -node.round)
        assert node.sums is not None
        assert tweaks(node.round, node.round) == [node.tweak]
        assert hits[start : node.round, :labels].sum(axis=0).tolist() == node.sums[:labels].tolist()
        assert single[node.round - 1].tolist() == noises[node.round].tolist()
    for start, end, most in zip([0, *cuts], cuts, known, strict=False):
        for last in range(start + 1, end + 1):
            expected = [sum(int(single[a - 1, label]) for a in chain(last)) for label in range(most)]
            assert expected == noise[last - 1, :most].tolist()


def allocated(cells: NDArray[np.int32]) -> int:
    """Bytes kept alive by an array: a view keeps the whole of what it looks into."""
    return cells.nbytes if not isinstance(cells.base, np.ndarray) else allocated(cells.base)


def allocated_by(counter: TreeCounter) -> int:
    """Bytes kept alive by the live nodes."""
    arrays = [cells for node in counter.live for cells in (node.sums, node.prefix) if cells is not None]
    return sum(map(allocated, arrays))


@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_label_costs_at_most_16_bytes_a_live_level(step: int) -> None:
    """Measured after every growth, where slack is worst, and before the next: sums, noise and spare room."""
    counter = TreeCounter(DyadicTree(), NOISE, GAUSSIAN)
    all_ids = ids(400)
    none = Hits(np.empty(0, np.int64), np.empty(0, np.int64))
    counter.advance(all_ids[:1], [EMPTY_HISTORY] * 127, none, np.ones(1, np.int64))
    for labels in range(1 + step, 401, step):
        counter.advance(all_ids[:labels], [], none, np.full(step, 128))
        kept = allocated_by(counter)
        assert kept <= 16 * labels * len(counter.live)
    counter.advance(all_ids[: counter.labels], [EMPTY_HISTORY] * 4, none, np.empty(0, np.int64))
    kept = allocated_by(counter)
    assert kept <= 16 * counter.labels * len(counter.live)


@pytest.mark.parametrize("columns", [(), (2,)])
def test_growing_keeps_what_was_there_and_clears_the_rest(columns: tuple[int, ...]) -> None:
    cells = np.arange(1, 1 + 3 * max(1, *columns, 0), dtype=np.int32).reshape(3, *columns)
    assert grown(cells, 3) is cells
    larger = grown(cells, 4)
    assert larger.dtype == cells.dtype
    assert 4 <= len(larger) <= 8
    assert cells.tolist() == larger[:3].tolist()
    assert not larger[3:].any()
