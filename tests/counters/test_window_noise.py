"""How much noise a window that never ends has, beside the least that any counter can have."""

import numpy as np
import pytest

from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.window import WindowMechanism, least_sd, window_sds


@pytest.mark.parametrize(("window", "limit"), [(12, 1.41), (60, 1.87), (240, 2.27), (1440, 2.78)])
def test_the_noise_of_a_window_is_near_the_least_possible(window: int, limit: float) -> None:
    """At rho = 1 and one item, before three values are rounded."""
    block = WindowMechanism.of(EpochParameters(window, 1, 1e-6), 1.0).block
    largest = float(np.sqrt(np.max(window_sds(block)) ** 2 - 1 / 4))
    assert least_sd(window) == pytest.approx(limit, abs=0.02)
    assert limit < largest <= 1.4 * least_sd(window)


def test_an_hour_of_minutes_has_the_noise_and_the_threshold_that_it_should() -> None:
    mechanism, _ = calibrate(1.0, 1e-6, 60, 4, "window")
    rounds = np.arange(61, 121)
    assert np.max(mechanism.sds(rounds)) <= 32
    assert np.max(mechanism.taus(rounds)) <= 125
