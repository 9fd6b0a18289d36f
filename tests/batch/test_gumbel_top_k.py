"""Labels by Gumbel noise: the exponential mechanism's law, the bottom mark, and pay-what-you-get."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.batch.cost import Cost
from stream_dp.batch.gumbel_top_k import (
    GumbelTopK,
    KnownTopK,
    PayWhatYouGet,
    gumbel_offset,
    gumbel_top_k,
    known_top_k,
    pay_what_you_get,
)
from stream_dp.privacy.loss import Loss
from stream_dp.privacy.one_shot_noise import OneShotNoise
from tests.batch.evidence import breaks_privacy, counts_agree, noise, outcomes, outcomes_of_both
from tests.shared import vectors

BOTTOM = -1


@pytest.mark.parametrize("case", vectors()["top_k_gumbel"])
def test_the_offset_is_that_of_the_vectors(case: dict[str, Any]) -> None:
    computed = gumbel_offset(float(case["eps"]), float(case["delta"]), case["kbar"])
    assert float(case["offset"]) == pytest.approx(computed, rel=1e-9)


def marks(counts: NDArray[np.int64], parameters: GumbelTopK, source: OneShotNoise) -> tuple[int, ...]:
    result = gumbel_top_k(counts, parameters, source)
    return (*result.items.tolist(), *([BOTTOM] if result.bottom else []))


def peeling(scores: dict[int, float], epsilon: float, k: int) -> dict[tuple[int, ...], float]:
    """The law of k draws of the exponential mechanism without replacement, ended by the bottom mark."""
    law: dict[tuple[int, ...], float] = {}

    def draw(before: tuple[int, ...], chance: float) -> None:
        left = {item: np.exp(epsilon * score) for item, score in scores.items() if item not in before}
        for item, weight in left.items():
            now = chance * weight / sum(left.values())
            if item == BOTTOM or len(before) + 1 == k:
                law[(*before, item)] = now
            else:
                draw((*before, item), now)

    draw((), 1.0)
    return law


def test_the_order_is_that_of_repeated_exponential_mechanisms() -> None:
    counts, trials = np.array([6, 3, 7, 5, 1]), 12_000
    parameters, source = GumbelTopK(0.8, 0.1, 2, 3), noise(1)
    scores = {2: 7.0, 0: 6.0, 3: 5.0, BOTTOM: 3 + parameters.offset}
    seen = outcomes(lambda: marks(counts, parameters, source), trials)
    assert counts_agree(seen, peeling(scores, 0.8, 2))
    assert not counts_agree(seen, peeling(scores, 0.9, 2))


def test_a_quiet_threshold_would_be_seen() -> None:
    source, parameters = noise(2), GumbelTopK(0.8, 0.1, 1, 1)
    counts, trials = np.array([6, 3]), 8_000

    def without_threshold_noise() -> tuple[int, ...]:
        passed = 6 + source.gumbel(1 / 0.8, 1)[0] > 3 + parameters.offset
        return (0,) if passed else (BOTTOM,)

    law = peeling({0: 6.0, BOTTOM: 3 + parameters.offset}, 0.8, 1)
    assert counts_agree(outcomes(lambda: marks(counts, parameters, source), trials), law)
    assert not counts_agree(outcomes(without_threshold_noise, trials), law)


def test_neighbours_stay_within_the_cost_and_without_the_offset_they_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parameters, source, trials = GumbelTopK(1.0, 0.02, 2, 3), noise(3), 5_000
    one, other = np.array([5, 4, 4, 1]), np.array([4, 3, 3, 0])
    epsilon = parameters.cost.epsilon_at(0.02)

    def seen() -> tuple[Counter[tuple[int, ...]], Counter[tuple[int, ...]]]:
        return outcomes_of_both(lambda counts: marks(counts, parameters, source), one, other, trials)

    assert not breaks_privacy(*seen(), epsilon, 0.02)
    monkeypatch.setattr(GumbelTopK, "offset", property(lambda self: -5.0))
    one, other = np.array([0, 0, 1]), np.array([0, 0, 0])
    assert breaks_privacy(*seen(), epsilon, 0.02)


def test_public_bins_are_picked_by_repeated_exponential_mechanisms_and_none_is_missing() -> None:
    counts, parameters, source = np.array([3, 0, 5, 4]), KnownTopK(0.7, 4, 2), noise(6)
    seen = outcomes(lambda: tuple(known_top_k(counts, parameters, source).items.tolist()), 12_000)
    scores = dict(enumerate(counts.astype(float).tolist()))
    assert counts_agree(seen, peeling(scores, 0.7, 2))
    assert not counts_agree(seen, peeling(scores, 0.8, 2))
    assert sorted(known_top_k(np.zeros(4, np.int64), KnownTopK(0.7, 4, 4), source).items) == [0, 1, 2, 3]
    assert parameters.cost == Cost(2 * 0.7**2 / 8, 0.0, (1.4, 0.0), loss=Loss())
    with pytest.raises(ValueError, match="asks for more than the 4 bins"):
        KnownTopK(0.7, 4, 5)
    with pytest.raises(ValueError, match="one count for each of the 4 public bins"):
        known_top_k(np.zeros(3, np.int64), parameters, source)


def test_edges_of_the_input() -> None:
    parameters = GumbelTopK(5.0, 1e-6, 2, 4)
    empty = gumbel_top_k(np.zeros(3, np.int64), parameters, noise())
    assert (len(empty.items), empty.bottom) == (0, True)
    short = gumbel_top_k(np.array([0, 500]), parameters, noise())
    assert (short.items.tolist(), short.bottom) == ([1], True)
    full = gumbel_top_k(np.array([500, 300, 400, 1, 1, 1]), parameters, noise())
    assert (full.items.tolist(), full.bottom) == ([0, 2], False)
    equal = gumbel_top_k(np.full(10, 300), parameters, noise())
    assert (len(equal.items), equal.bottom) == (0, True)
    assert parameters.cost == Cost(2 * 25 / 8, 1e-6, (10.0, 1e-6), loss=Loss())


def test_k_beyond_kbar_is_refused() -> None:
    with pytest.raises(ValueError, match="raise kbar"):
        GumbelTopK(1.0, 1e-6, 5, 4)
    with pytest.raises(ValueError, match="k must be a whole number of at least 1, not 0"):
        GumbelTopK(1.0, 1e-6, 0, 4)


def test_a_budget_pays_for_marks_returned_and_stops() -> None:
    budget = PayWhatYouGet(5.0, 1e-6, marks=4, queries=3)
    assert budget.cost == Cost(4 * 25 / 8, 3e-6, (20.0, 3e-6), loss=Loss())
    clear, nothing = np.array([900, 800, 700, 1]), np.zeros(4, np.int64)
    first, left = pay_what_you_get(clear, budget, 2, 3, noise(1))
    assert (len(first.items), left.marks, left.queries) == (2, 2, 2)
    second, left = pay_what_you_get(nothing, left, 2, 3, noise(2))
    assert second.bottom  # the bottom mark is paid too
    assert (left.marks, left.queries) == (1, 1)
    with pytest.raises(ValueError, match="1 marks left: ask for k = 1"):
        left.query(2, 3)
    third, left = pay_what_you_get(clear, left, 1, 3, noise(3))
    assert (left.marks, left.queries) == (0, 0)
    with pytest.raises(ValueError, match="no queries left"):
        left.query(1, 3)
    assert sum(len(each.items) + each.bottom for each in (first, second, third)) == budget.marks


def test_every_sequence_of_queries_stays_within_the_budget() -> None:
    for seed in range(20):
        budget = left = PayWhatYouGet(1.0, 1e-3, marks=7, queries=4)
        used, random = 0, np.random.default_rng(seed)
        while left.queries and left.marks:
            result, left = pay_what_you_get(
                random.integers(0, 30, 12), left, min(3, left.marks), 6, noise(seed)
            )
            used += len(result.items) + result.bottom
            assert used == budget.marks - left.marks
