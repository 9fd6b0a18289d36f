"""Is a vectorised run the same as many single ones?  Compared on the same bits, cell by cell."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.audit.one_shot_replicas import (
    PooledNoise,
    disjoint_baskets,
    disjoint_counts,
    one_by_one,
    per_replica,
)
from stream_dp.audit.running_replicas import Situation, noise_of, replicas, run_block
from stream_dp.audit.running_views import nodes_with, shift_sum, views
from stream_dp.audit.set_union_pairs import _mechanisms
from stream_dp.batch.histogram import LaplaceHistogram, laplace_histogram
from stream_dp.counters.binary import BinaryMechanism, chain
from stream_dp.counters.protocol import EpochParameters
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.privacy.discrete_gaussian import variance
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise
from stream_dp.privacy.one_shot_noise import OneShotNoise
from tests import naive
from tests.statistics import fits, uncorrelated

KEY = bytes(range(32))
RUNS, ITEMS = 5, 3


class SameBits(KeyedNoise):
    """Noise whose history is the number of rounds alone, so that runs over different labels can be compared."""

    def extend_histories(self, history: bytes, first: int, rounds: Sequence[object]) -> list[bytes]:
        numbers = range(first, first + len(rounds))
        return [super(SameBits, self).extend_histories(EMPTY_HISTORY, number, [[]])[0] for number in numbers]


def same_bits() -> SameBits:
    return SameBits(KEY, "audit", bytes(16))


def single(
    mechanism: BinaryMechanism, situation: Situation, known: list[int], replica: int
) -> dict[tuple[int, int], int]:
    """One replica alone, by the real histogram with its real bounds: (round, item) -> released count."""

    def named(items: Iterable[int]) -> list[str]:
        return [f"{replica * ITEMS + item:08d}" for item in items]

    labels = named(known)
    state = HistogramState.before_any_round(labels)
    histogram = RunningHistogram(mechanism, same_bits(), state)
    events = [named(situation.get(r, ())) for r in range(1, mechanism.horizon + 1)]
    return {
        (snapshot.round, int(label) - replica * ITEMS): int(count)
        for snapshot in histogram.observe(events)
        for label, count in zip(snapshot.labels, snapshot.counts, strict=True)
    }


SITUATIONS: list[tuple[Situation, list[int]]] = [
    ({1: [0]}, []),
    ({1: [0, 1], 2: [2, 0], 5: [1], 7: [0, 2]}, []),
    ({3: [1], 4: [1, 2], 13: [0]}, [0, 2]),
    ({}, [0, 1, 2]),
]


@pytest.mark.parametrize(("situation", "known"), SITUATIONS)
def test_replicas_are_single_runs_of_the_real_histogram(situation: Situation, known: list[int]) -> None:
    mechanism = BinaryMechanism.of(EpochParameters(15, 2, 0.2), 9.0)
    open_one = BinaryMechanism(15, 2, 9.0, 0.2, (0, 0, -3, -3))
    for tried in (mechanism, open_one):
        shown, counts = run_block(tried, situation, ITEMS, RUNS, same_bits(), known)
        for replica in range(RUNS):
            cells = np.argwhere(shown[:, replica])
            found = {(int(r) + 1, int(i)): int(counts[r, replica, i]) for r, i in cells}
            assert single(tried, situation, known, replica) == found
    assert shown.any()  # by the open one at least, so that something was compared
    assert len({counts[:, replica].tobytes() for replica in range(RUNS)}) == RUNS


def test_blocks_of_replicas_have_noise_of_their_own() -> None:
    mechanism = BinaryMechanism(1, 1, 9.0, 0.1, (-1000,))
    counts = replicas(mechanism, {1: [0]}, 1, 40_000, KEY).counts[0, :, 0] - 1
    first = run_block(mechanism, {1: [0]}, 1, 1 << 14, noise_of(KEY, 0))[1][0, :, 0] - 1
    assert counts[: 1 << 14].tolist() == first.tolist()
    assert fits(counts, naive.sum_probabilities(9.0, 1))
    assert uncorrelated(counts[: 1 << 14], counts[1 << 14 : 2 << 14], variance(9.0))
    assert not uncorrelated(first, first, variance(9.0))  # what one nonce for two blocks would look like


def test_a_replica_keeps_to_its_bound() -> None:
    with pytest.raises(ValueError, match="an event of a replica holds more than 1 items"):
        replicas(BinaryMechanism.of(EpochParameters(3, 1, 0.1), 9.0), {1: [0, 1]}, 2, 10, KEY)


def test_the_shift_sum_is_the_noise_of_the_nodes_that_hold_the_event() -> None:
    assert [nodes_with(t, 15) for t in (1, 6, 15)] == [
        [a for a in range(1, 16) if a - (a & -a) < t <= a] for t in (1, 6, 15)
    ]
    assert set(chain(7)) & set(nodes_with(6, 7)) == {6}
    open_one = BinaryMechanism(7, 1, 9.0, 0.1, (-1000,) * 3)
    event, nothing = (
        replicas(open_one, situation, 1, 30_000, KEY, known=[0]) for situation in ({1: [0]}, {})
    )
    law = naive.sum_probabilities(9.0, 3)
    assert fits(shift_sum(nothing, 1), law)
    assert fits(shift_sum(event, 1) - 3, law)
    assert not fits(shift_sum(event, 1), law)
    assert set(views(event, 1)["rounds with a label"].tolist()) == {2**7 - 1}


def test_pooled_noise_hands_out_the_real_draws_in_order_and_once() -> None:
    for draw in ("discrete_laplace", "discrete_gaussian", "gumbel", "gaussian"):
        pooled, size = PooledNoise(KEY), 1 << 15
        pieces = [getattr(pooled, draw)(2.0, 1 << 9) for _ in range(1 << 6)]
        real = getattr(OneShotNoise(KEY), draw)(2.0, size)
        assert np.concatenate(pieces).tolist() == real.tolist()
        assert getattr(pooled, draw)(2.0, 100).tolist() != real[:100].tolist()
        assert len(getattr(pooled, draw)(3.0, size + 1)) == size + 1


def test_single_runs_are_listed_one_after_the_other() -> None:
    found = one_by_one(lambda noise: [int(noise.discrete_laplace(2.0, 1)[0]), 7], 100, KEY)
    assert found[:, 0].tolist() == OneShotNoise(KEY).discrete_laplace(2.0, 1 << 15)[:100].tolist()
    assert set(found[:, 1]) == {7}


class Marked(OneShotNoise):
    """Choices that depend on the place inside a replica alone, so that all replicas must come out alike."""

    def __init__(self, users: int, items: int) -> None:
        super().__init__(KEY)
        self.size = users, items

    def order(self, identities: NDArray[np.int64]) -> NDArray[np.intp]:
        return np.lexsort((identities // self.size[0], (identities % self.size[0]) * 7 % 5))

    def sample_marks(
        self, stage: int, users: NDArray[np.int64], items: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        place = (users % self.size[0]) * 31 + (items % self.size[1]) * 17 + stage * 5
        return (place * 2654435761 % 2**61).astype(np.uint64) << np.uint64(3)

    def passes(self, chance: NDArray[np.float64], missing: NDArray[np.float64]) -> NDArray[np.bool_]:
        return chance > 0.02


@pytest.mark.parametrize("name", [name for name, *_ in _mechanisms()])
def test_what_set_union_does_to_a_replica_does_not_depend_on_the_others(name: str) -> None:
    [(run, parameters)] = [(run, parameters) for other, run, parameters, _ in _mechanisms() if other == name]
    users, items, runs = [[0, 1, 2], [0, 3], [0], [3, 4, 5], [], [0, 6], [1]], 7, 40
    alone, _ = per_replica(
        run(disjoint_baskets(users, items, 1), parameters, Marked(len(users), items)), items, 1
    )
    many, _ = per_replica(
        run(disjoint_baskets(users, items, runs), parameters, Marked(len(users), items)), items, runs
    )
    assert 0 < alone.sum() < items
    assert many.tolist() == [alone[0].tolist()] * runs


def test_histograms_side_by_side_get_the_draws_one_after_the_other() -> None:
    class Numbered(OneShotNoise):
        def discrete_laplace(self, scale: float, count: int) -> NDArray[np.int64]:
            return np.arange(count) * 5 % 11

    parameters = LaplaceHistogram(1.0, 0.01, 2)
    many = laplace_histogram(disjoint_counts([3, 0, 1], 6), parameters, Numbered(KEY))
    shown, counts = per_replica(many, 3, 6)
    noisy = np.zeros((6, 3), np.int64)
    noisy[:, [0, 2]] = np.array([3, 1]) + (np.arange(12) * 5 % 11).reshape(6, 2)
    expected = noisy >= parameters.tau
    assert (shown == expected).all()
    assert 0 < expected.sum() < 12
    assert (counts == np.where(expected, noisy, 0)).all()
