"""The one-shot histogram over unknown labels: thresholds, noise, and what a neighbour can tell."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest

from stream_dp.batch import laplace_tails
from stream_dp.batch.histogram import (
    GaussianHistogram,
    Histogram,
    LaplaceHistogram,
    gaussian_histogram,
    laplace_histogram,
)
from stream_dp.privacy.discrete_gaussian import pmf
from stream_dp.privacy.thresholds import sum_tail
from tests.batch import real_valued
from tests.batch.evidence import Run, counts_agree, noise, share_agrees
from tests.shared import vectors

BOTH = [(LaplaceHistogram, laplace_histogram), (GaussianHistogram, gaussian_histogram)]


@pytest.mark.parametrize("case", vectors()["unknown_domain_histogram"])
def test_continuous_thresholds_and_cost_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    settings = (float(case["eps"]), float(case["delta"]), case["l0"], int(case["linf"]))
    parameters = Histogram(*settings)
    assert float(case["laplace_scale"]) == pytest.approx(parameters.scale, rel=1e-9)
    assert float(case["laplace_threshold"]) == pytest.approx(
        real_valued.laplace_threshold(parameters), rel=1e-9
    )
    assert float(case["gaussian_threshold"]) == pytest.approx(
        real_valued.gaussian_threshold(parameters), rel=1e-9
    )
    assert float(case["rho"]) == pytest.approx(LaplaceHistogram(*settings).cost.rho, rel=1e-9)
    assert float(case["rho"]) == pytest.approx(GaussianHistogram(*settings).cost.rho, rel=1e-9)


@pytest.mark.parametrize("settings", [(1.0, 1e-6, 1, 1), (0.3, 1e-7, 8, 2), (4.0, 1e-3, 3, 1)])
def test_tau_is_the_least_integer_that_keeps_a_lone_item_within_its_delta(
    settings: tuple[float, float, int, int],
) -> None:
    chance, change = settings[1] / settings[2], settings[3]
    laplace, gaussian = LaplaceHistogram(*settings), GaussianHistogram(*settings)
    reach = laplace.tau - change
    assert laplace_tails.tail(laplace.scale, reach) <= chance < laplace_tails.tail(laplace.scale, reach - 1)
    reach = gaussian.tau - change
    assert sum_tail(gaussian.scale**2, 1, reach) <= chance < sum_tail(gaussian.scale**2, 1, reach - 1)


def laplace_law(scale: float, shift: int, tau: int) -> dict[int, float]:
    q = np.exp(-1 / scale)
    return {shift + x: float((1 - q) / (1 + q) * q ** abs(x)) for x in range(-80, 81) if shift + x >= tau}


def gaussian_law(scale: float, shift: int, tau: int) -> dict[int, float]:
    masses = pmf(scale**2)
    reach = min(len(masses) - 1, 80)
    return {shift + x: float(masses[abs(x)]) for x in range(-reach, reach + 1) if shift + x >= tau}


@pytest.mark.parametrize(("kind", "run", "law"), [(*BOTH[0], laplace_law), (*BOTH[1], gaussian_law)])
def test_released_counts_have_the_noise_the_cost_assumes(
    kind: type, run: Run, law: Callable[[float, int, int], dict[int, float]]
) -> None:
    items = 60_000
    parameters = kind(0.5, 1e-3, 4)
    counts = np.full(items, parameters.tau)

    def agrees(ran_with: Histogram) -> bool:
        released = run(counts, ran_with, noise(1))
        assert released.counts is not None
        values: Counter[Hashable] = Counter(released.counts[released.counts >= parameters.tau].tolist())
        values["suppressed"] = items - values.total()
        listed: dict[Hashable, float] = dict(law(parameters.scale, parameters.tau, parameters.tau).items())
        listed["suppressed"] = 1 - sum(listed.values())
        return counts_agree(values, listed)

    assert agrees(parameters)
    assert not agrees(kind(0.53, 1e-3, 4))  # noise 6% too small is seen


@pytest.mark.parametrize(("kind", "run"), BOTH)
def test_an_item_of_one_user_passes_with_the_delta_of_its_threshold(kind: type, run: Run) -> None:
    items = 200_000
    parameters = kind(1.0, 0.04, 4)
    tail = (
        laplace_tails.tail(1.0, parameters.tau - 1)
        if kind is LaplaceHistogram
        else sum_tail(1.0, 1, parameters.tau - 1)
    )
    passed = len(run(np.ones(items, np.int64), parameters, noise(2)).items)
    assert tail <= 0.01
    assert share_agrees(passed, items, tail)
    assert not share_agrees(passed, items, tail * 1.4)


def test_the_continuous_gaussian_quantile_would_exceed_delta_for_integers() -> None:
    parameters = GaussianHistogram(1.0, 1e-6, 1)
    at_quantile = int(np.ceil(real_valued.gaussian_threshold(parameters)))
    assert sum_tail(1.0, 1, at_quantile - 1) > 1e-6
    assert sum_tail(1.0, 1, parameters.tau - 1) <= 1e-6


@pytest.mark.parametrize(("kind", "run"), BOTH)
def test_only_held_items_are_released_sorted_by_count_then_number(kind: type, run: Run) -> None:
    counts = np.array([0, 500, 0, 900, 500, 1])
    result = run(counts, kind(10.0, 1e-9, 1), noise(3))
    assert set(result.items.tolist()) == {1, 3, 4}
    assert result.counts is not None
    keys = list(zip((-result.counts).tolist(), result.items.tolist(), strict=True))
    assert keys == sorted(keys)
    assert not len(run(np.zeros(5, np.int64), kind(1.0, 1e-6, 1), noise()).items)
    assert not len(run(np.empty(0, np.int64), kind(1.0, 1e-6, 1), noise()).items)


def test_impossible_parameters_are_refused_with_what_to_change() -> None:
    for wrong, message in [
        ((-1.0, 1e-6, 1), "epsilon must be a number above 0, not -1.0"),
        ((1e-9, 1e-6, 1), "epsilon per count must lie between 0.0001 and 10"),
        ((1.0, 0.0, 1), "threshold_delta must lie between"),
        ((1.0, 1e-6, 0), "items_per_user must be a whole number of at least 1, not 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            LaplaceHistogram(*wrong)
