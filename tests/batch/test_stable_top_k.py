"""Stable top-k: the chosen rank, the test of the gap, completing a fixed k, and label votes."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from stream_dp.batch import laplace_tails
from stream_dp.batch.cost import Cost, epsilon_per_pick
from stream_dp.batch.gumbel_top_k import gumbel_offset
from stream_dp.batch.label_votes import LabelVotes, label_votes
from stream_dp.batch.largest_gap import (
    GaussianGap,
    LargestGap,
    Ranks,
    largest_gap,
    largest_gap_gaussian,
    noisy_max_epsilon,
)
from stream_dp.batch.ptr_top_k import GaussianPtr, LaplacePtr, ptr_top_k
from stream_dp.batch.stable_top_k import (
    GapTest,
    GaussianStableTopK,
    StableFixedK,
    StableTopK,
    stable_fixed_k,
    stable_top_k,
)
from stream_dp.privacy.accounting import zcdp_epsilon
from stream_dp.privacy.loss import Loss
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.thresholds import sum_tail
from tests.batch.evidence import (
    Run,
    breaks_privacy,
    counts_agree,
    noise,
    outcomes,
    outcomes_of_both,
    share_agrees,
)
from tests.shared import vectors


@pytest.mark.parametrize("case", vectors()["stable_top_k"])
def test_scales_and_offset_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    parameters = StableTopK(float(case["rho"]), float(case["delta"]), Ranks(5))
    assert float(case["gumbel_scale"]) == pytest.approx(parameters.scale, rel=1e-9)
    assert float(case["sigma"]) == pytest.approx(parameters.test.sigma, rel=1e-9)
    assert float(case["offset_tight"]) == pytest.approx(parameters.test.offset, rel=1e-9)
    assert parameters.test.offset < float(case["offset_subgaussian"])


def test_the_rank_has_the_law_of_the_exponential_mechanism() -> None:
    counts, source, trials = np.array([9, 8, 5, 4]), noise(1), 12_000  # gaps 1, 3, 1
    parameters = LargestGap(1.0, Ranks(3))

    def law(epsilon: float) -> dict[int, float]:
        weights = np.exp(epsilon * np.array([1, 3, 1]) / 2)
        return dict(zip((1, 2, 3), weights / weights.sum(), strict=True))

    seen = outcomes(lambda: largest_gap(counts, parameters, source).rank, trials)
    assert counts_agree(seen, law(1.0))
    assert not counts_agree(seen, law(1.15))
    assert parameters.cost == Cost(1 / 8, 0.0, (1.0, 0.0), loss=Loss())


def test_the_gaussian_rank_has_its_law() -> None:
    source, trials = noise(2), 12_000
    hits = sum(
        largest_gap_gaussian(np.array([9, 5, 4]), GaussianGap(4.0, 1e-6, Ranks(2)), source).rank == 1
        for _ in range(trials)
    )  # gaps 4, 1
    assert share_agrees(hits, trials, float(norm.cdf(3 / (4.0 * 2**0.5))))
    assert not share_agrees(hits, trials, float(norm.cdf(3 / (3.5 * 2**0.5))))


def test_the_epsilon_of_the_gaussian_rank_is_the_best_over_a_grid_of_orders() -> None:
    sigma, delta, m = 10.0, 1e-6, 50
    orders = 1 + np.geomspace(1e-2, 1e3, 200_000)
    renyi = 2 * orders / sigma**2 + np.log(m) / (orders - 1)
    converted = renyi + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    assert converted.min() == pytest.approx(noisy_max_epsilon(2 / sigma**2, delta, m), rel=1e-6)
    cost = GaussianGap(sigma, delta, Ranks(m)).cost
    assert cost.alone == (noisy_max_epsilon(2 / sigma**2, delta, m), delta)
    assert cost.rho == pytest.approx(cost.alone[0] ** 2 / 2)


@cache
def pass_chance(parameters: StableTopK, gap: int) -> float:
    margin = max(parameters.step, gap) - parameters.step
    return float(norm.cdf((margin - parameters.test.offset) / parameters.test.sigma))


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("gap", [0, 1, 2, 6])
def test_a_gap_passes_with_the_chance_of_its_noise(step: int, gap: int) -> None:
    parameters, source, trials = StableTopK(0.3, 0.05, Ranks(1), step), noise(10 * gap + step), 8_000
    counts = np.array([20 + gap, 20])
    passed = sum(not stable_top_k(counts, parameters, source).bottom for _ in range(trials))
    assert share_agrees(passed, trials, pass_chance(parameters, gap))
    if gap <= step:
        assert pass_chance(parameters, gap) == pytest.approx(0.05)
    assert not share_agrees(passed, trials, pass_chance(parameters, gap) * 0.7)


Law = dict[tuple[int, ...], float]


@cache
def stable_law(counts: tuple[int, ...], parameters: StableTopK) -> Law:
    """The chance of every set, by the mechanism's own scales: the empty one where the test fails."""
    ordered = sorted(range(len(counts)), key=lambda item: (-counts[item], item))
    heights = np.array([counts[item] for item in ordered] + [0])
    gaps = (heights[:-1] - heights[1:])[parameters.ranks.least - 1 : parameters.ranks.kbar]
    weights = np.exp(gaps / parameters.scale)
    law: Law = {(): 0.0}
    for place, chosen in enumerate(weights / weights.sum()):
        passed = float(chosen) * pass_chance(parameters, int(gaps[place]))
        law[tuple(sorted(ordered[: place + parameters.ranks.least]))] = passed
        law[()] += float(chosen) - passed
    return law


def largest_excess(parameters: StableTopK, epsilon: float) -> float:
    """The true delta at epsilon over all counts up to 4 of four items and every user who leaves them."""
    found = 0.0
    for larger in itertools.product(range(5), repeat=4):
        for held in itertools.product((0, 1), repeat=4):
            if all(count >= mine for count, mine in zip(larger, held, strict=True)):
                smaller = tuple(count - mine for count, mine in zip(larger, held, strict=True))
                laws = stable_law(larger, parameters), stable_law(smaller, parameters)
                for one, other in (laws, laws[::-1]):
                    apart = (
                        chance - math.exp(epsilon) * other.get(each, 0.0) for each, chance in one.items()
                    )
                    found = max(found, sum(max(0.0, each) for each in apart))
    return found


@pytest.mark.parametrize("least", [1, 2, 3])
def test_the_true_delta_over_any_range_of_k_is_within_the_cost(least: int) -> None:
    parameters = StableTopK(0.3, 0.02, Ranks(4, least))
    delta = 0.05
    epsilon = parameters.cost.epsilon_at(delta)
    assert largest_excess(parameters, epsilon) <= delta
    assert largest_excess(replace(parameters, test_delta=0.1), epsilon) > delta, (
        "a test that lets too much pass"
    )


def test_ranks_are_chosen_from_least_on() -> None:
    source, trials = noise(21), 6_000
    counts = np.array([90, 40, 38, 37, 31, 30])  # gaps 50, 2, 1, 6, 1
    weights = np.exp(np.array([1, 6, 1]) / 2)
    law = dict(zip((3, 4, 5), weights / weights.sum(), strict=True))
    seen = outcomes(lambda: largest_gap(counts, LargestGap(1.0, Ranks(5, 3)), source).rank, trials)
    assert counts_agree(seen, law)
    shifted = dict(zip((2, 3, 4), weights / weights.sum(), strict=True))
    assert not counts_agree(seen, shifted)
    assert largest_gap_gaussian(counts, GaussianGap(0.2, 1e-6, Ranks(5, 2)), source).rank == 4
    assert GaussianGap(4.0, 1e-6, Ranks(5, 5)).cost.rho < GaussianGap(4.0, 1e-6, Ranks(5)).cost.rho
    chosen = stable_top_k(np.array([900, 400, 380, 10, 9]), StableTopK(2.0, 1e-6, Ranks(5, 2)), source)
    assert chosen.items.tolist() == [0, 1, 2]
    for least, told in ((6, "lower it"), (0, "whole number")):
        with pytest.raises(ValueError, match=told):
            Ranks(5, least)


def test_a_range_or_a_penalty_finds_the_large_set_that_a_free_choice_passes_over() -> None:
    """Counts as public logs have them: they fall most at the very top, and clearly again far below."""
    counts = np.array([round(10_000 / rank) for rank in range(1, 61)] + [20] * 100)
    sizes = {
        name: {len(stable_top_k(counts, StableTopK(0.5, 1e-6, ranks), noise(run)).items) for run in range(5)}
        for name, ranks in {
            "free": Ranks(100),
            "range": Ranks(100, least=50),
            "penalty": Ranks(100, penalty=200.0, around=60),
        }.items()
    }
    assert sizes == {"free": {1}, "range": {60}, "penalty": {60}}


def test_a_penalty_prefers_ranks_near_a_public_one() -> None:
    source, trials = noise(22), 6_000
    counts = np.array([90, 40, 38, 31, 30])  # gaps 50, 2, 7, 1
    ranks = Ranks(4, penalty=20.0, around=4)
    weights = np.exp(np.array([50 - 60, 2 - 40, 7 - 20, 1]) / 8)
    law = dict(zip((1, 2, 3, 4), (weights / weights.sum()).tolist(), strict=True))
    seen = outcomes(lambda: largest_gap(counts, LargestGap(0.25, ranks), source).rank, trials)
    assert counts_agree(seen, law)
    assert not counts_agree(seen, dict(zip((4, 3, 2, 1), law.values(), strict=True)))
    assert largest_gap_gaussian(counts, GaussianGap(0.2, 1e-6, ranks), source).rank == 4
    assert LargestGap(1.0, ranks).cost == LargestGap(1.0, Ranks(4)).cost
    for penalty in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="penalty must be at least 0"):
            Ranks(4, penalty=penalty)


def test_the_gaussian_kind_has_its_law_and_pays_for_the_number_of_ranks() -> None:
    source, trials = noise(23), 8_000
    counts = np.array([40, 20])
    parameters = GaussianStableTopK(0.3, 0.05, 1e-6, Ranks(2))
    size = outcomes(lambda: len(stable_top_k(counts, parameters, source).items), trials)
    second = float(norm.cdf(0))  # both gaps are 20, so that either rank is chosen as often, and passes alike
    test = parameters.test
    passed = float(norm.cdf((20 - 1 - test.offset) / test.sigma))
    law = {0: 1 - passed, 1: passed * (1 - second), 2: passed * second}
    assert counts_agree(size, law)
    assert not counts_agree(size, law | {1: law[0], 0: law[1]})
    epsilons = [GaussianStableTopK(0.3, 0.05, 1e-6, Ranks(kbar)).cost.epsilon_at(0.1) for kbar in (1, 2, 50)]
    assert epsilons == sorted(set(epsilons))
    assert epsilons[0] == pytest.approx(zcdp_epsilon(0.3, 1e-6), rel=1e-6)


@pytest.mark.parametrize("kind", [LaplacePtr, GaussianPtr])
def test_a_tested_set_passes_with_the_chance_of_its_noise(kind: type[LaplacePtr | GaussianPtr]) -> None:
    parameters, source, trials = kind(0.8, 0.05, 2), noise(24), 2_000
    one = parameters.tau - 1
    for gap in (0, 1, one, one + 1):
        counts = np.array([20, 20 + gap, 30 + gap])
        runs = [ptr_top_k(counts, parameters, source) for _ in range(trials)]
        passed = [run.items.tolist() for run in runs if not run.bottom]
        assert all(items == [1, 2] for items in passed) or gap == 0
        chance = reach(kind, parameters.tau - max(1, gap))
        assert share_agrees(len(passed), trials, chance)
        assert not share_agrees(len(passed), trials, reach(kind, parameters.tau - max(1, gap) - 2))
        assert gap > 1 or chance <= 0.05


def reach(kind: type[LaplacePtr | GaussianPtr], x: int) -> float:
    """P(Z >= x) for the noise of epsilon 0.8."""
    if kind is GaussianPtr:
        return sum_tail(0.8**-2, 1, x)
    return laplace_tails.tail(1 / 0.8, x)


def stable_marks(
    run: Run, counts: NDArray[np.int64], parameters: Any, source: OneShotNoise
) -> tuple[int, ...]:
    result = run(counts, parameters, source)
    return (*result.items.tolist(), *([-1] if result.bottom else []))


@pytest.mark.parametrize(
    ("run", "parameters"),
    [(stable_top_k, StableTopK(0.3, 0.02, Ranks(3))), (stable_fixed_k, StableFixedK(0.3, 0.02, 2, 3))],
)
def test_neighbours_stay_within_the_cost_and_without_the_test_they_do_not(
    run: Run, parameters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = np.array([6, 3, 2, 1]), np.array([5, 2, 2, 0])
    source, trials, delta = noise(3), 4_000, 0.05
    epsilon = parameters.cost.epsilon_at(delta)

    def seen() -> tuple[Counter[tuple[int, ...]], Counter[tuple[int, ...]]]:
        return outcomes_of_both(
            lambda counts: stable_marks(run, counts, parameters, source), one, other, trials
        )

    assert not breaks_privacy(*seen(), epsilon, delta)
    monkeypatch.setattr(GapTest, "offset", property(lambda self: -50.0))
    one, other = np.array([2, 3, 0, 0]), np.array([3, 2, 0, 0])  # the first place changes hands
    assert breaks_privacy(*seen(), epsilon, delta)


def test_a_clear_set_is_released_without_order() -> None:
    counts = np.array([300, 400, 350, 2, 1, 0])
    parameters = StableTopK(2.0, 1e-6, Ranks(5))
    assert stable_top_k(counts, parameters, noise(4)).items.tolist() == [0, 1, 2]
    assert parameters.cost == Cost(2.0, 1e-6, loss=Loss())


def test_a_fixed_k_is_completed_or_cut_by_noisy_order() -> None:
    counts = np.array([500, 400, 10, 90, 60, 2])

    def items(k: int, penalty: float, values: np.ndarray = counts) -> list[int]:
        return stable_fixed_k(values, StableFixedK(20.0, 1e-6, k, 6, penalty), noise(5)).items.tolist()

    assert items(2, 1.0) == [0, 1]
    assert items(3, 0.0) == [0, 1, 3]  # two stable, one more by Gumbel noise
    assert items(1, 0.0) == [0]  # the better of the stable two
    flat = np.full(6, 100)
    bottom = stable_fixed_k(flat, StableFixedK(20.0, 1e-6, 2, 3, 0.0), noise(6))
    assert bottom.bottom
    assert not len(bottom.items)


def test_a_failed_test_falls_back_to_the_top_kbar_only() -> None:
    counts = np.array([500, 500, 500, 5, 5, 5, 5])  # with k = 2 forced, no gap after rank 2
    result = stable_fixed_k(counts, StableFixedK(20.0, 1e-6, 2, 3, 1e9), noise(7))
    assert set(result.items.tolist()) < {0, 1, 2}
    assert len(result.items) == 2


def test_what_completes_a_fixed_k_has_the_noise_of_half_of_rho() -> None:
    source, trials, rho = noise(10), 5_000, 0.5
    epsilon = epsilon_per_pick(rho / 2, 1)

    def first(counts: np.ndarray, penalty: float, rho: float = rho) -> int:
        items = stable_fixed_k(counts, StableFixedK(rho, 0.02, 1, 2, penalty), source).items
        return int(items[0]) if len(items) else -1

    chosen = np.array([202, 200])  # the gap after rank 2 is certain: one of a stable pair is chosen
    weights = np.exp(epsilon * np.array([2.0, 0.0]))
    law = dict(enumerate((weights / weights.sum()).tolist()))
    assert counts_agree(outcomes(lambda: first(chosen, 0.0), trials), law)
    assert not counts_agree(outcomes(lambda: first(chosen, 0.0, rho / 2), trials), law)

    # A single item of count 3 passes the test at rho / 2, or is let through by Gumbel noise.
    passed = pass_chance(StableTopK(rho / 2, 0.01, Ranks(1)), 3)
    after = 1 / (1 + np.exp(epsilon * (gumbel_offset(epsilon, 0.01, 1) - 3)))
    parameters = StableFixedK(rho, 0.02, 1, 1)
    hits = sum(len(stable_fixed_k(np.array([3]), parameters, source).items) for _ in range(trials))
    assert share_agrees(hits, trials, passed + (1 - passed) * after)
    whole = pass_chance(StableTopK(rho, 0.01, Ranks(1)), 3)  # all of rho for the test would be seen
    assert not share_agrees(hits, trials, whole + (1 - whole) * after)
    generous = 1 / (1 + np.exp(epsilon * (gumbel_offset(epsilon, 0.02, 1) - 3)))  # and all of delta
    assert not share_agrees(hits, trials, passed + (1 - passed) * generous)

    close = np.array(
        [42, 40, 20]
    )  # k = 1 is forced, and its gap of 2 seldom passes: else Gumbel noise decides
    scores = np.array([42, 40, 20 + gumbel_offset(epsilon, 0.01, 2)])
    weights = np.exp(epsilon * (scores - 42))
    passed = pass_chance(StableTopK(rho / 2, 0.01, Ranks(2)), 2)
    picked = weights / weights.sum() * (1 - passed)
    law = {0: picked[0] + passed, 1: picked[1], -1: picked[2]}
    assert counts_agree(outcomes(lambda: first(close, 1e9), trials), law)
    assert not counts_agree(outcomes(lambda: first(close, 1e9, rho / 2), trials), law)


def test_edges_of_the_input() -> None:
    runs: list[tuple[Run, Any]] = [
        (stable_top_k, StableTopK(1.0, 1e-6, Ranks(4))),
        (stable_fixed_k, StableFixedK(1.0, 1e-6, 2, 4)),
    ]
    for run, parameters in runs:
        for counts in (np.empty(0, np.int64), np.zeros(3, np.int64), np.full(8, 9)):
            result = run(counts, parameters, noise(8))
            assert result.bottom
            assert not len(result.items)
    with pytest.raises(ValueError, match="raise kbar"):
        StableFixedK(1.0, 1e-6, 5, 4)


def test_votes_compose_over_queries_and_the_unit_stands_in_the_result() -> None:
    tallies = np.array([[50, 48, 0, 0], [30, 30, 30, 30], [0, 0, 60, 0]])
    parameters = LabelVotes(0.9, 1e-6, 3, 3, "teacher")
    result = label_votes(tallies, parameters, noise(9))
    assert [answer.items.tolist() for answer in result.answers] == [[0, 1], [], [2]]
    assert [answer.bottom for answer in result.answers] == [False, True, False]
    assert (result.unit, result.cost.rho) == ("teacher", 3 * 0.9)
    assert result.cost.delta == pytest.approx(3e-6)


def test_a_training_record_needs_twice_the_noise_of_a_teacher() -> None:
    teacher = LabelVotes(0.5, 1e-6, 4, 1, "teacher").query
    record = LabelVotes(0.5, 1e-6, 4, 1, "record").query
    assert record.scale == pytest.approx(4 / (2 * 0.5**0.5))  # 4 / epsilon
    assert record.test.sigma**2 == pytest.approx(4 / 0.5)
    assert record.test.offset == pytest.approx(2 * teacher.test.offset)


def test_votes_of_another_shape_or_unit_are_refused() -> None:
    with pytest.raises(ValueError, match="unit must be 'teacher' or 'record', not 'user'"):
        LabelVotes(0.5, 1e-6, 4, 1, "user")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one row for each of the 2 queries"):
        label_votes(np.zeros((3, 4), np.int64), LabelVotes(0.5, 1e-6, 4, 2, "record"), noise())
