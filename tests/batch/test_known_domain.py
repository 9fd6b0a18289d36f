"""Histograms over public bins: noise on every bin, the high-pass filter, and the sparse vector."""

from collections import Counter

import numpy as np
import pytest

from stream_dp.batch import laplace_tails
from stream_dp.batch.known_domain import KnownHistogram, SparseVector, known_histogram, sparse_vector
from tests.batch.evidence import breaks_privacy, counts_agree, noise, outcomes_of_both, share_agrees


def law(scale: float, shift: int) -> dict[int, float]:
    q = np.exp(-1 / scale)
    return {shift + x: float((1 - q) / (1 + q) * q ** abs(x)) for x in range(-120, 121)}


def test_every_bin_gets_noise_of_the_paid_scale() -> None:
    bins = 60_000

    def agrees(epsilon: float) -> bool:
        result = known_histogram(np.zeros(bins, np.int64), KnownHistogram(epsilon, bins), noise(1))
        assert result.items.tolist() == list(range(bins))
        assert result.counts is not None
        return counts_agree(Counter(result.counts.tolist()), law(2.0, 0))

    assert agrees(0.5)
    assert not agrees(0.53)


def test_the_high_pass_filter_zeroes_what_is_below_it_and_changes_nothing_else() -> None:
    counts = np.arange(200) % 40
    plain = known_histogram(counts, KnownHistogram(0.5, 200), noise(2))
    parameters = KnownHistogram(0.5, 200, eta=1.5)
    assert parameters.high_pass == pytest.approx(1.5 * np.log(200) / 0.5)
    filtered = known_histogram(counts, parameters, noise(2))
    assert plain.counts is not None
    assert filtered.counts is not None
    assert filtered.counts.tolist() == [c if c >= parameters.high_pass else 0 for c in plain.counts.tolist()]
    assert parameters.cost == KnownHistogram(0.5, 200).cost


def test_a_user_pays_for_every_bin_it_may_change() -> None:
    assert KnownHistogram(0.5, 10).cost.alone == (0.5, 0.0)
    assert KnownHistogram(0.5, 10, items_per_user=3).cost.alone == (1.5, 0.0)
    assert KnownHistogram(0.5, 10, items_per_user=3).cost.rho == pytest.approx(0.375)


def test_without_a_public_list_both_are_refused() -> None:
    with pytest.raises(ValueError, match="bins of a public list"):
        known_histogram(np.ones(3, np.int64), KnownHistogram(1.0, 4), noise())
    with pytest.raises(ValueError, match="bins of a public list"):
        sparse_vector(np.ones(3, np.int64), SparseVector(1.0, 4, 5, 1), noise())
    with pytest.raises(ValueError, match="bins must be a whole number"):
        KnownHistogram(1.0, 0)


def test_the_sparse_vector_splits_its_epsilon_as_its_cost_says() -> None:
    parameters = SparseVector(1.0, 10, 5, 8)
    on_threshold, on_query, on_count = parameters.scales
    assert 1 / on_threshold + 8 / on_query + 8 / on_count == pytest.approx(1.0)
    assert 8 / on_query == pytest.approx(8 ** (2 / 3) / on_threshold)


def test_the_sparse_vector_reaches_its_threshold_with_the_chance_of_its_noise() -> None:
    parameters = SparseVector(2.0, 1, 10, 1)
    on_threshold, on_query, _ = parameters.scales
    chance = sum(p * laplace_tails.tail(on_query, 10 + x - 9) for x, p in law(on_threshold, 0).items())
    source, trials = noise(3), 3_000
    hits = sum(len(sparse_vector(np.array([9]), parameters, source).items) for _ in range(trials))
    assert share_agrees(hits, trials, chance)
    broken = SparseVector(4.0, 1, 10, 1)
    assert not share_agrees(
        sum(len(sparse_vector(np.array([9]), broken, source).items) for _ in range(trials)), trials, chance
    )


def test_a_sparse_vector_whose_noise_cannot_be_drawn_is_refused_before_it_is_paid_for() -> None:
    SparseVector(1e-4, 10, 5, 1_000)
    with pytest.raises(ValueError, match=r"needs noise of scale 2e\+09, and at most 1e\+09 can be drawn"):
        SparseVector(1e-4, 10, 5, 100_000)


def test_the_sparse_vector_stops_after_its_limit_and_reports_fresh_noise() -> None:
    result = sparse_vector(np.full(50, 1000), SparseVector(5.0, 50, 10, 3), noise(4))
    assert result.items.tolist() == [0, 1, 2]
    assert result.counts is not None
    assert len(result.counts) == 3
    none = sparse_vector(np.zeros(50, np.int64), SparseVector(5.0, 50, 1000, 3), noise(5))
    assert not len(none.items)


def test_neighbours_of_the_sparse_vector_stay_within_epsilon_and_reused_noise_does_not() -> None:
    one, other = np.array([3, 3, 3, 3]), np.array([4, 4, 4, 4])
    parameters, source, trials = SparseVector(1.0, 4, 4, 1), noise(6), 1_500

    def found(counts: np.ndarray) -> tuple[int, ...]:
        return tuple(sparse_vector(counts, parameters, source).items.tolist())

    def without_noise(counts: np.ndarray) -> tuple[int, ...]:
        return tuple(np.flatnonzero(counts + source.discrete_laplace(0.2, 4) >= 4)[:1].tolist())

    seen = outcomes_of_both(found, one, other, trials)
    assert not breaks_privacy(*seen, parameters.epsilon, 0.0)
    broken = outcomes_of_both(without_noise, one, other, trials)
    assert breaks_privacy(*broken, parameters.epsilon, 0.0)
