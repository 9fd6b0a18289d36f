"""What a forecast of shown labels says is what mechanisms show of data that are as it takes them to be."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stream_dp.batch.two_stage import first_sigma
from stream_dp.jobs.fitted import EDGES, Fitted
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.jobs.prospect import Counting, Prospect
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.one_shot_noise import OneShotNoise

USERS, SIZE, LABELS, PLACES = 3_000, 30, 8_000, (30, 150)


def rows_of(steep: float) -> Rows:
    """Users of about 30 labels, chosen in proportion to 1 / rank^steep; names tell nothing about ranks."""
    draw = np.random.default_rng(3)
    sizes = np.minimum(draw.geometric(1 / SIZE, USERS), 300)
    chances = np.arange(1.0, LABELS + 1) ** -steep
    held = draw.choice(LABELS, int(sizes.sum()), p=chances / chances.sum())
    labels = pa.array([b"%05d" % number for number in range(LABELS)], pa.large_binary())
    return Rows(np.repeat(np.arange(USERS), sizes), draw.permutation(LABELS)[held], labels)


def prospect_of(rows: Rows) -> Prospect:
    largest = np.sort(rows.counts())[::-1]
    held = np.array(Fitted.held)
    return Prospect(
        rows.sizes(EDGES).astype(float), held, PLACES, largest[np.array(PLACES) - 1].astype(float)
    )


def shown(rows: Rows, mechanism: str, most: int) -> tuple[float, Counting]:
    calibrated = MECHANISMS["histogram"][mechanism].calibrate(epsilon=1.0, delta=1e-6, items_per_user=most)
    assert calibrated.needed is not None
    assert calibrated.sd is not None
    first_sd = first_sigma(calibrated.cost.loss.gaussian) if mechanism == "two-stage" else 0.0
    runs = [len(calibrated.run(rows, OneShotNoise(bytes([number] * 32))).items) for number in range(5)]
    return float(np.mean(runs)), Counting(calibrated.needed, calibrated.sd, most, first_sd)


@pytest.mark.parametrize("steep", [0.8, 1.0])
def test_a_forecast_is_near_what_is_shown_and_tells_which_bound_shows_most(steep: float) -> None:
    rows = rows_of(steep)
    prospect, found, told = prospect_of(rows), dict[Any, float](), dict[Any, float]()
    for mechanism, bounds in (("gaussian", (5, 30, 100)), ("two-stage", (5, 15, 30, 100))):
        for most in bounds:
            found[mechanism, most], counting = shown(rows, mechanism, most)
            told[mechanism, most] = prospect.labels(counting, 0)
    for each, labels in found.items():
        assert told[each] == pytest.approx(labels, rel=0.35), each
    assert found[max(told, key=lambda each: told[each])] >= 0.9 * max(found.values())


def test_of_a_top_k_no_more_than_k_are_found_and_whole_baskets_find_more_than_samples() -> None:
    prospect = prospect_of(rows_of(1.0))
    for k in (1, 10, 200):
        whole, sampled = (prospect.labels(Counting(100.0, 10.0, most), k) for most in (None, 2))
        assert 0 < sampled < whole <= k
    assert prospect.labels(Counting(100.0, 10.0), 200) <= prospect.labels(Counting(100.0, 10.0), 0)


@pytest.mark.parametrize("counts", [(-40.0, 30.0), (0.0, 0.0), (1e9, 1e9), (5.0, 900.0)])
def test_counts_that_noise_made_impossible_are_taken_as_near_ones(counts: tuple[float, float]) -> None:
    prospect = Prospect(np.array([50.0, 0.0]), np.array([1.0, 30.0]), PLACES, np.array(counts))
    for counting in (Counting(20.0, 5.0, 1), Counting(20.0, 5.0, 1, 4.0), Counting(20.0, 5.0)):
        assert 0 <= prospect.labels(counting, 0) < 5_001
