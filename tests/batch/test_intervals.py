"""Intervals of counts that were released because they are large hold the true count as often as they say."""

from typing import Any

import numpy as np
import pytest

from stream_dp.batch.histogram import (
    GaussianHistogram,
    LaplaceHistogram,
    gaussian_histogram,
    laplace_histogram,
)
from stream_dp.batch.intervals import interval_ends
from stream_dp.batch.result import Outcome
from stream_dp.batch.top_k import GaussianTopK, LaplaceTopK, gaussian_top_k, laplace_top_k
from stream_dp.privacy.one_shot_noise import OneShotNoise

GAUSSIAN, LAPLACE = GaussianHistogram(0.1, 1e-6, 10), LaplaceHistogram(0.2, 1e-6, 3)
RUNS = 30


def held(release: Any, parameters: Any, counts: Any, k: int | None = None) -> tuple[float, float]:
    """Which share of the true counts lies in count +- 1.96 sd, and in the interval."""
    naive, inside = [], []
    for number in range(RUNS):
        found: Outcome = release(counts, parameters, OneShotNoise(number.to_bytes(32, "big")))
        found = found if k is None else found.first(k)
        assert found.counts is not None
        assert found.sd is not None
        assert found.ends is not None
        true = counts[found.items]
        naive += (np.abs(found.counts - true) <= 1.96 * found.sd).tolist()
        inside += ((found.ends[0] <= true) & (true <= found.ends[1])).tolist()
    assert len(inside) > 300
    return float(np.mean(naive)), float(np.mean(inside))


@pytest.mark.parametrize(
    ("release", "parameters", "tau"),
    [(gaussian_histogram, GAUSSIAN, GAUSSIAN.tau), (laplace_histogram, LAPLACE, LAPLACE.tau)],
    ids=["gaussian", "laplace"],
)
def test_of_labels_near_the_threshold_intervals_hold_and_plain_ones_do_not(
    release: Any, parameters: Any, tau: int
) -> None:
    near = np.full(3_000, tau - int(parameters.sd))
    naive, inside = held(release, parameters, near)
    assert naive < 0.9
    assert inside >= 0.93
    spread = np.arange(tau // 2, 10 * tau)
    assert held(release, parameters, spread)[1] == pytest.approx(0.955, abs=0.02)


@pytest.mark.parametrize(
    ("release", "parameters"),
    [
        (gaussian_top_k, GaussianTopK(0.1, 1e-6, 10, 2_000)),
        (laplace_top_k, LaplaceTopK(0.2, 1e-6, 3, 2_000)),
    ],
    ids=["gaussian", "laplace"],
)
@pytest.mark.parametrize("k", [None, 50])
def test_of_a_top_whose_threshold_nobody_sees_they_hold_too(
    release: Any, parameters: Any, k: int | None
) -> None:
    tail = 400 // (1 + np.arange(2_000)) + np.linspace(60, 0, 2_000).astype(np.int64)
    naive, inside = held(release, parameters, tail, k)
    assert naive < 0.93
    assert inside >= 0.935


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_far_above_the_threshold_an_interval_is_the_plain_one_and_at_it_no_wider_than_all_noise(
    law: Any,
) -> None:
    counts, sd = np.array([100, 130, 300, 10_000]), 10.0
    plain = interval_ends(counts, sd, law, None)
    low, high = interval_ends(counts, sd, law, 100)
    assert high.tolist() == plain[1].tolist()
    assert abs(low[-1] - plain[0][-1]) <= 1
    assert (low <= plain[0]).all()
    assert low[0] == (40 if law == "normal" else 0)
    assert (np.diff(low) >= 0).all()
    assert [len(end) for end in interval_ends(counts[:0], sd, law, 100)] == [0, 0]


def test_what_is_cut_off_is_the_threshold_of_what_is_not() -> None:
    found = Outcome(np.arange(4), np.array([90, 80, 70, 60]), 5.0, least=50)
    assert (found.first(2).least, found.first(4).least, found.first(9).least) == (70, 50, 50)
