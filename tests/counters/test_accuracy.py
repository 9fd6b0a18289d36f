"""What the mechanisms must reach, in fast versions: `make bench-accuracy` measures the same at length."""

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.labels_seen import contestants, retail_log
from benchmarks.noise_and_thresholds import (
    escape_rate,
    measured,
    measured_late,
    square_root,
    standard,
    started_noise,
    without_union,
)
from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.planning.comparison import over_rounds
from tests.shared import RETAIL
from tests.statistics import rate_at_most

needs_retail = pytest.mark.skipif(not RETAIL.exists(), reason="the invoices do not lie beside this checkout")


def test_the_square_root_factorisation_is_the_reference_that_it_should_be() -> None:
    """At rho = 1; the expected values were computed independently."""
    for horizon, most, mean in ((2**10, 2.31, 2.20), (2**16, 3.25, 3.13), (2**20, 3.87, 3.76)):
        assert [round(value, 2) for value in square_root(horizon)] == [most, mean]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("binary", {2**10: (7.42, 5.17), 2**16: (11.66, 8.18), 2**20: (14.49, 10.18)}),
    ],
)
def test_the_noise_of_trees_is_what_it_should_be(name: str, expected: dict[int, tuple[float, float]]) -> None:
    """At rho = 1; the expected values were computed independently."""
    for horizon, values in expected.items():
        assert standard(name, horizon) == pytest.approx(values, rel=3e-3)


@pytest.mark.parametrize("horizon", [2**4, 2**7, 2**10 - 1, 2**10, 2**13, 2**16, 2**18, 2**20])
def test_blt_is_within_two_percent_of_the_square_root_factorisation(horizon: int) -> None:
    most, mean = standard("blt", horizon)
    reference = square_root(horizon)
    assert reference[0] * 0.99 < most <= reference[0] * 1.02
    assert mean <= reference[1] * 1.02


@pytest.mark.parametrize("name", MECHANISMS)
def test_measured_noise_is_within_a_percent_of_theory(name: str) -> None:
    """Of labels that are there from the start, and of labels that come late into a long stream."""
    mechanism, _ = calibrate(1.0, 1e-6, 63, 1, mechanism=name)
    sd = over_rounds(mechanism.sds, 63)
    assert measured(mechanism, 100_000) == pytest.approx((sd.max, sd.mean), rel=0.01)
    mechanism, _ = calibrate(1.0, 1e-6, 4095, 1, mechanism=name)
    most, mean, stated = measured_late(mechanism, 20_000, 8)
    assert (most, mean) == pytest.approx((over_rounds(mechanism.sds, 4095).max, stated), rel=0.01)


@pytest.mark.parametrize("name", MECHANISMS)
def test_noise_that_is_two_percent_off_would_be_noticed(name: str) -> None:
    mechanism, _ = calibrate(1.0, 1e-6, 63, 1, mechanism=name)
    other, _ = calibrate(1.02, 1e-6, 63, 1, mechanism=name)
    sd = over_rounds(mechanism.sds, 63)
    assert measured(other, 100_000) != pytest.approx((sd.max, sd.mean), rel=0.01)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("delta", [0.2, 0.02])
def test_a_new_label_escapes_no_more_often_than_the_threshold_may_let_it(name: str, delta: float) -> None:
    mechanism, guarantee = calibrate(1.0, delta, 63, 1, mechanism=name)
    labels, budget = 20_000, guarantee.threshold_delta
    rate, most = escape_rate(mechanism, labels, mechanism.taus)
    assert 0 < rate <= most <= budget
    broken, _ = escape_rate(mechanism, labels, without_union(mechanism, budget))
    assert not rate_at_most(budget, round(broken * labels), labels)


RUNS = 10


def visible(mechanism: CalibratedCounter, counts: NDArray[np.int64]) -> float:
    """How many labels with these counts the true counter shows in the round after the last invoice: mean over runs.

    All of them start in that round, which gives their noise the law that it has anyway and takes no time.
    """
    last = len(retail_log().events)
    [(_, noise)] = started_noise(mechanism, [last], RUNS * len(counts))
    return float(np.sum(counts + noise.reshape(RUNS, -1) >= mechanism.tau(last))) / RUNS


@needs_retail
def test_many_more_labels_are_seen_than_by_the_surveys_statement() -> None:
    admitted = [label for labels in retail_log().admitted(16) for label in labels]
    counts = np.unique(admitted, return_counts=True)[1].astype(np.int64)
    at_4, at_1 = (
        {
            name: visible(mechanism, counts)
            for (name, rule), mechanism in contestants(epsilon, 32_767, 16).items()
            if rule == "each-round"
        }
        for epsilon in (4.0, 1.0)
    )
    assert at_4["survey"] < at_4["binary"] < at_4["blt"]
    assert (at_4["blt"], at_4["survey"]) == pytest.approx((420, 15), rel=0.1)  # expected independently
    assert at_4["blt"] >= 20 * at_4["survey"]
    assert at_1["survey"] < 0.5
    assert at_1["blt"] >= 25
