"""Are tests, coefficients, noise and thresholds of discovery what an independent computation gives?"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_matrix import coefficients, variances_of_tests
from stream_dp.counters.discovery_schedule import FEWEST_ROUNDS, rounds_of_tests
from stream_dp.counters.noisiest_tests import noisiest_tests
from stream_dp.counters.protocol import EpochParameters
from stream_dp.privacy.accounting import gaussian_rho
from tests.shared import vectors

VECTORS = vectors("discovery")


def of(case: dict[str, object]) -> DiscoveryMechanism:
    """The mechanism of a case of the vectors."""
    items, horizon = int(str(case["items"])), int(str(case["horizon"]))
    parameters = EpochParameters(horizon, items, float(str(case["d"])), "kept")
    rho = gaussian_rho(float(str(case["epsilon"])), float(str(case["d0"])))
    return DiscoveryMechanism.of(parameters, rho, at_least=int(str(case["at_least"])))


def numbers(values: object) -> list[float]:
    assert isinstance(values, Sequence)
    return [float(each) for each in values]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"{case['horizon']}-{case['epsilon']:g}")
def test_the_default_is_the_one_that_was_computed_elsewhere(case: dict[str, object]) -> None:
    mechanism = of(case)
    assert list(mechanism.tests) == case["tests"]
    assert (2 * mechanism.rho) ** 0.5 == pytest.approx(float(str(case["mu"])), rel=1e-9)
    assert mechanism.test_sd == pytest.approx(float(str(case["sigma1"])), rel=1e-9)
    assert mechanism.deviations == pytest.approx(float(str(case["q"])), rel=1e-9)
    assert mechanism.test_sds == pytest.approx(numbers(case["sd_of_test"]), rel=1e-9)
    assert mechanism.test_taus.tolist() == case["tau"]


def test_so_are_coefficients_and_the_sensitivity() -> None:
    given_ones = numbers(VECTORS["coefficients"])
    assert [float(each) for each in coefficients(len(given_ones))] == pytest.approx(given_ones, rel=1e-15)
    for tests, squared in VECTORS["c1_squared_of_K"].items():
        assert variances_of_tests(int(tests))[-1] == pytest.approx(float(squared), rel=1e-11)
        assert variances_of_tests(int(tests))[-1] >= float(squared) * (1 - 1e-15)


def test_the_matrix_is_the_exact_root_of_running_sums() -> None:
    column = coefficients(40)
    assert all(each.denominator & each.denominator - 1 == 0 for each in column), "sums of them are exact"
    squared = [sum((column[j] * column[n - j] for j in range(n + 1)), Fraction(0)) for n in range(40)]
    assert squared == [1] * 40


@given(st.integers(1, 1 << 24), st.none() | st.integers(1, 1 << 24))
def test_tests_are_in_order_and_never_beyond_the_horizon(horizon: int, step: int | None) -> None:
    if step is not None and horizon // step > 1000:
        step = horizon // 1000
    tests = rounds_of_tests(horizon, step)
    assert all(before < after for before, after in pairwise((0, *tests)))
    assert not tests or tests[-1] <= horizon
    longest = -(-horizon // 16) if step is None else step
    assert all(after - before <= longest for before, after in pairwise((0, *tests)))
    assert all(each >= min(longest - 1, FEWEST_ROUNDS) for each in tests)
    assert horizon - (tests[-1] if tests else 0) < longest + 1


def test_a_label_with_the_least_count_escapes_as_rarely_as_it_must() -> None:
    for at_least in (1, 5):
        parameters = EpochParameters(32_767, 16, 5e-7, "kept")
        mechanism = DiscoveryMechanism.of(parameters, 0.026, at_least=at_least)
        reach = mechanism.test_taus - at_least - 0.5  # of a noise that is rounded to what reaches tau
        chances = ndtr(-reach / mechanism.test_sds)
        assert 0.5 * 5e-7 / 16 < chances.sum() <= 5e-7 / 16


def test_the_sd_of_a_count_is_that_of_its_test_and_of_its_age() -> None:
    mechanism = DiscoveryMechanism.of(EpochParameters(1000, 2, 1e-6, "kept"), 0.5)
    begins = mechanism.tests[2]
    rounds = np.array([begins, begins + 1, begins + 100])
    test, counts = mechanism.test_sds[2] ** 2 + 1 / 12, mechanism.counts.sds(np.array([1, 100])) ** 2
    assert mechanism.sds_since(3, rounds) == pytest.approx(np.sqrt([test, *(test + counts)]))
    assert mechanism.sds_since(0, rounds).tolist() == mechanism.counts.sds(rounds).tolist()


@settings(max_examples=30)
@given(st.integers(1, 3_000), st.integers(1, 400), st.lists(st.integers(1, 3_000), min_size=1, max_size=40))
def test_the_largest_sd_is_that_of_some_test_and_of_none_less(
    horizon: int, step: int, some: list[int]
) -> None:
    """In any rounds, in any order, whatever is larger: the noise of tests or that of later counts."""
    tests = rounds_of_tests(horizon, min(step, horizon), 1)
    mechanism = DiscoveryMechanism.of(EpochParameters(horizon, 2, 1e-6, "kept"), 0.5, tests)
    rounds = np.array([min(each, horizon) for each in some])
    for test_sd in (mechanism.test_sd, 0.2 * mechanism.test_sd, 5 * mechanism.test_sd):
        changed = structs.replace(mechanism, test_sd=test_sd)
        expected = changed.sds_since(0, rounds)
        for number, begins in enumerate(tests, 1):
            own = np.where(rounds >= begins, changed.sds_since(number, np.maximum(rounds, begins)), 0.0)
            expected = np.maximum(expected, own)
        assert changed.sds(rounds).tolist() == expected.tolist()
        distinct = np.unique(rounds)
        noisiest = noisiest_tests(distinct, np.array(tests), changed.sds_since)
        largest = np.maximum(changed.sds_since(0, distinct), changed.sds_since(noisiest, distinct))
        assert largest.tolist() == changed.sds(distinct).tolist(), "as where there are too many pairs for all"


def test_the_noisiest_of_many_tests_is_found_without_looking_at_all_pairs() -> None:
    rounds, tests = np.arange(1, 1 << 14), np.arange(1, 1 << 14, 4)
    asked = 0

    def sds_at(numbers: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.float64]:
        nonlocal asked
        asked += len(numbers)
        return np.log(9.0 + numbers) + np.log(1.0 + at - tests[numbers - 1])

    found = noisiest_tests(rounds, tests, sds_at)
    assert found[0] == 1
    assert np.all(np.diff(found) >= 0)
    assert 0 < found[-1] < len(tests)
    assert asked < 15 * (len(rounds) + len(tests))


def test_what_computed_noise_may_cost_is_a_thousandth_of_delta() -> None:
    mechanism = DiscoveryMechanism.of(EpochParameters(524_287, 16, 5e-7, "kept"), 0.026)
    assert mechanism.counts.failure_probability < mechanism.failure_probability < 1e-9
    assert mechanism.test_error < 1e-20
