"""Top-k with counts: the head, the offsets, the noise, and what a neighbour can tell."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from stream_dp.batch import laplace_tails
from stream_dp.batch.ranking import head
from stream_dp.batch.top_k import (
    GaussianTopK,
    LaplaceTopK,
    gaussian_top_k,
    laplace_top_k,
)
from stream_dp.privacy.discrete_gaussian import pmf
from stream_dp.privacy.thresholds import sum_tail
from tests.batch import real_valued
from tests.batch.evidence import Run, breaks_privacy, counts_agree, noise, outcomes_of_both, share_agrees
from tests.shared import vectors

BOTH = [(LaplaceTopK, laplace_top_k), (GaussianTopK, gaussian_top_k)]


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 35))
@settings(max_examples=200)
def test_the_head_is_that_of_a_sorted_list(counts: list[int], kbar: int) -> None:
    ranked = sorted((-count, item) for item, count in enumerate(counts) if count > 0)
    top = head(np.array(counts, np.int64), kbar)
    assert [item for _, item in ranked[:kbar]] == top.items.tolist()
    assert [-count for count, _ in ranked[:kbar]] == top.counts.tolist()
    assert (-ranked[kbar][0] if len(ranked) > kbar else 0) == top.next_count
    padded = [-count for count, _ in ranked] + [0] * (kbar + 1)
    assert [padded[j] - padded[j + 1] for j in range(kbar)] == top.gaps(kbar).tolist()
    assert [padded[j] for j in range(kbar)] == [top.at(j + 1) for j in range(kbar)]


@pytest.mark.parametrize("case", vectors()["top_k_laplace"])
def test_the_continuous_laplace_offset_is_that_of_the_vectors(case: dict[str, Any]) -> None:
    settings_ = (float(case["eps"]), float(case["delta"]), int(case["l0"]))
    assert float(case["offset"]) == pytest.approx(real_valued.laplace_offset(*settings_), rel=1e-9)
    assert real_valued.laplace_offset(*settings_) > float(case["paper_offset_with_eps"])


def test_the_continuous_gaussian_offset_solves_its_equation() -> None:
    offset = real_valued.gaussian_offset(0.5, 1e-6, 4, 3)
    assert norm.sf((offset - 1) / (2**0.5 / 0.5)) == pytest.approx(1e-6 / 3, rel=1e-9)


@pytest.mark.parametrize("settings_", [(1.0, 1e-6, 1, 10), (0.5, 1e-6, 10, 4), (3.0, 1e-4, 2, 2)])
def test_offsets_are_the_least_integers_within_delta(settings_: tuple[float, float, int, int]) -> None:
    chance = settings_[1] / min(settings_[2:])
    laplace, gaussian = LaplaceTopK(*settings_), GaussianTopK(*settings_)
    scale = 1 / laplace.epsilon
    assert laplace_tails.difference_tail(scale, laplace.offset - 1) <= chance
    assert laplace_tails.difference_tail(scale, laplace.offset - 2) > chance
    assert sum_tail(gaussian.sigma_squared, 2, gaussian.offset - 1) <= chance
    assert sum_tail(gaussian.sigma_squared, 2, gaussian.offset - 2) > chance


def test_the_posters_offset_lets_four_times_delta_through() -> None:
    epsilon, delta = 1.0, 1e-6
    posters = int(np.ceil(np.log(1 / delta) / epsilon))
    assert laplace_tails.difference_tail(1 / epsilon, posters) > 4 * delta
    reach = LaplaceTopK(epsilon, delta, 1, 1).offset - 1
    assert laplace_tails.difference_tail(1 / epsilon, reach) <= delta


@pytest.mark.parametrize(
    ("kind", "run", "tail"),
    [
        (LaplaceTopK, laplace_top_k, lambda reach: laplace_tails.difference_tail(1.0, reach)),
        (GaussianTopK, gaussian_top_k, lambda reach: sum_tail(1.0, 2, reach)),
    ],
)
def test_an_unmatched_item_passes_with_the_chance_of_the_noisy_threshold(
    kind: type, run: Run, tail: Callable[[int], float]
) -> None:
    parameters, source, trials = kind(1.0, 0.08, 1, 1), noise(1), 8_000
    counts = np.array([8, 7])  # the first may be one above the (kbar + 1)-th by one user alone
    passed = sum(len(run(counts, parameters, source).items) for _ in range(trials))
    chance = tail(parameters.offset - 1)
    assert chance <= 0.08
    assert share_agrees(passed, trials, chance)
    assert not share_agrees(passed, trials, tail(parameters.offset - 2))  # an offset one too small is seen


@pytest.mark.parametrize(("kind", "run"), BOTH)
def test_released_counts_have_the_noise_the_cost_assumes(kind: type, run: Run) -> None:
    items = 40_000
    counts = np.full(items, 10_000)

    def agrees(epsilon: float) -> bool:
        result = run(counts, kind(epsilon, 1e-3, 3, items), noise(2))
        assert result.counts is not None
        noisy = result.counts - 10_000
        q = np.exp(-0.5)
        law = {x: float((1 - q) / (1 + q) * q ** abs(x)) for x in range(-60, 61)}
        if kind is GaussianTopK:
            law = {x: float(pmf(4.0)[abs(x)]) for x in range(-20, 21)}
        return counts_agree(Counter(noisy.tolist()), law)

    assert agrees(0.5)
    assert not agrees(0.54)


@pytest.mark.parametrize(("kind", "run"), BOTH)
def test_neighbours_stay_within_the_cost_and_without_the_offset_they_do_not(
    kind: type, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters, source, trials = kind(1.0, 0.02, 2, 2), noise(3), 2_000
    one, other = np.array([5, 4, 4, 1]), np.array([5, 4, 3, 0])
    delta = 0.02 + 0.03
    epsilon = parameters.cost.epsilon_at(delta)

    def labels(counts: NDArray[np.int64]) -> tuple[int, ...]:
        return tuple(run(counts, parameters, source).items.tolist())

    assert not breaks_privacy(*outcomes_of_both(labels, one, other, trials), epsilon, delta)
    monkeypatch.setattr(kind, "offset", property(lambda self: -3))
    one, other = np.array([0, 0, 1, 1]), np.zeros(4, np.int64)
    assert breaks_privacy(*outcomes_of_both(labels, one, other, trials), epsilon, delta)


@pytest.mark.parametrize(("kind", "run"), BOTH)
def test_edges_of_the_input(kind: type, run: Run) -> None:
    parameters = kind(5.0, 1e-6, 1, 3)
    assert not len(run(np.empty(0, np.int64), parameters, noise()).items)
    assert not len(run(np.zeros(7, np.int64), parameters, noise()).items)
    few = run(np.array([0, 900, 800]), parameters, noise(4))  # fewer items than kbar
    assert few.items.tolist() == [1, 2]
    equal = run(np.full(9, 500), parameters, noise(5))  # no item stands out
    assert not len(equal.items)
    clear = run(np.array([900, 5, 700, 5, 800, 5]), parameters, noise(6))
    assert clear.items.tolist() == [0, 4, 2]
    assert run(np.array([900, 5]), kind(5.0, 1e-6, 9, 1), noise(7)).items.tolist() == [0]  # kbar below D0


@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.integers(1, 6), st.data())
@settings(max_examples=200)
def test_one_user_changes_at_most_so_many_noisy_values_as_items(
    counts: list[int], kbar: int, data: st.DataObject
) -> None:
    """What the cost rests on: match the items that leave the head with those that enter it, by rank."""
    held = [item for item, count in enumerate(counts) if count > 0]
    mine = data.draw(st.sets(st.sampled_from(held), max_size=4)) if held else set()
    with_user = np.array(counts, np.int64)
    without_user = with_user - np.isin(np.arange(len(counts)), list(mine))
    one, other = head(with_user, kbar), head(without_user, kbar)
    larger = dict(zip(one.items.tolist(), one.counts.tolist(), strict=True))
    smaller = dict(zip(other.items.tolist(), other.counts.tolist(), strict=True))
    changes = [larger[item] - smaller[item] for item in larger.keys() & smaller.keys()]
    leaving = [count for item, count in larger.items() if item not in smaller]
    entering = [count for item, count in smaller.items() if item not in larger]
    pads = [0] * (len(leaving) - len(entering))
    changes += [left - came for left, came in zip(leaving, entering + pads, strict=True)]
    changes.append(one.next_count - other.next_count)
    assert set(changes) <= {0, 1}
    assert sum(changes) <= len(mine)
    assert len(leaving) <= min(len(mine), kbar)
    assert all(count <= one.next_count + 1 for count in leaving)
    assert all(count <= other.next_count + 1 for count in entering)
