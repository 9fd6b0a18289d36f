"""Are the covariances those of the sums that the counters really add up?"""

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.counters import MECHANISMS
from stream_dp.counters.binary import chain
from stream_dp.counters.blt_parameters import best_gaps, output_weights
from stream_dp.counters.calibration import calibrate
from stream_dp.releases.estimates.noise_shapes import noise_shape

HORIZON = 63


def chains(find: object) -> NDArray[np.float64]:
    """Row t holds what the noise of round t + 1 takes of the draw of each node."""
    rows = np.zeros((HORIZON, HORIZON))
    for row, number in enumerate(range(1, HORIZON + 1)):
        rows[row, np.array(find(number)) - 1] = 1  # type: ignore[operator]
    return rows


def toeplitz() -> NDArray[np.float64]:
    gaps = best_gaps(HORIZON)
    poles = 1 - np.array(gaps.poles)
    weights = np.array([float(weight) for weight in output_weights(gaps)])
    b = (poles[:, None] ** np.arange(HORIZON)).T @ weights
    lags = np.arange(HORIZON)[:, None] - np.arange(HORIZON)
    return np.where(lags >= 0, b[np.abs(lags)], 0.0)


ROWS = {
    "binary": lambda: chains(chain),
    "blt": toeplitz,
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_covariances_are_those_of_the_sums(mechanism: str) -> None:
    rows = ROWS[mechanism]()
    rounds = np.arange(1, HORIZON + 1)
    earlier, later = np.minimum(rounds[:, None], rounds), np.maximum(rounds[:, None], rounds)
    found = noise_shape(mechanism, HORIZON).covariances(earlier, later)
    np.testing.assert_allclose(found, rows @ rows.T, rtol=1e-9)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_standard_deviations_are_those_of_the_mechanism_up_to_a_factor(mechanism: str) -> None:
    calibrated, _ = calibrate(1.0, 1e-6, 4_095, 2, mechanism, shown="kept")
    rounds = np.arange(1, 4_096)
    ratio = noise_shape(mechanism, 4_095).sds(rounds) / calibrated.sds(rounds)
    np.testing.assert_allclose(ratio, ratio[-1], rtol=2e-3)


def test_other_mechanisms_are_refused() -> None:
    with pytest.raises(ValueError, match="no mechanism is called 'other'"):
        noise_shape("other", 63)
