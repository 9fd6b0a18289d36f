"""What mechanisms let people see: the counts, the survey's statement, and how rounds are picked."""

from typing import Any

import numpy as np
import pytest

from stream_dp.counters import COMPARED, MECHANISMS
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.errors import Refused
from stream_dp.planning.comparison import (
    ROUNDS_LOOKED_AT,
    calibrate_each,
    compared_name,
    over_rounds,
    settings_of,
    spread,
    survey,
    survey_tau,
    visibility,
)
from stream_dp.privacy.keyed_noise import KeyedNoise
from tests.statistics import rate_at_most

HORIZON = 15
EVENLY = 255
LABELS = [f"label {i:04d}" for i in range(500)]


def test_the_worked_example_of_the_survey() -> None:
    """Threshold as stated, and with the noise of the exact conversion; the values were derived independently."""
    stated = survey(1, 1e-6, 65_535, 4)
    assert (stated.tau.mean, stated.tau.max) == (1256, 1256)
    binary, _ = calibrate(1, 1e-6, 65_535, 4, mechanism="binary")
    assert isinstance(binary, BinaryMechanism)
    assert survey_tau(binary.sigma_squared, 5e-7, 65_535, 4) == 1001
    assert stated.rho == pytest.approx(0.0166617, rel=1e-5)


def shown(name: str, count: int) -> float:
    """How often labels with this count were shown, over all rounds of the real mechanism."""
    mechanism, _ = calibrate(1.0, 0.01, HORIZON, 1, mechanism=name, shown="each-round")
    seen = []
    for last in range(
        1, HORIZON + 1
    ):  # a stream for each round, so that the label has all of its count by then
        noise = KeyedNoise(bytes(32), "comparison", last.to_bytes(16, "big"))
        rounds: list[list[str]] = [[] for _ in range(last - 1)] + [LABELS * count]
        seen.append(RunningHistogram(mechanism, noise).observe(rounds)[-1].labels.size)
    return sum(seen) / (len(LABELS) * HORIZON)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_least_counts_seen_are_those_of_the_real_mechanism(name: str) -> None:
    told = visibility(*calibrate(1.0, 0.01, HORIZON, 1, mechanism=name, shown="each-round"))
    for count, probability in ((told.seen_half, 0.5), (told.seen_mostly, 0.95)):
        trials = len(LABELS) * HORIZON
        hidden = round((1 - shown(name, count)) * trials)
        assert rate_at_most(1 - probability, hidden, trials)
        assert not rate_at_most(1 - probability, round((1 - shown(name, count - 3)) * trials), trials)


def kept_at_the_end(name: str, count: int) -> float:
    """How often labels with this count, spread evenly, were shown by the last round of the real mechanism."""
    mechanism, _ = calibrate(2.0, 0.01, EVENLY, 1, mechanism=name)
    places = set(np.ceil(np.arange(1, count + 1) * EVENLY / count).astype(int).tolist())
    rounds = [LABELS if number in places else [] for number in range(1, EVENLY + 1)]
    noise = KeyedNoise(bytes(32), "comparison", bytes(16))
    return RunningHistogram(mechanism, noise).observe(rounds)[-1].labels.size / len(LABELS)


@pytest.mark.parametrize("name", MECHANISMS)
def test_labels_that_are_kept_are_seen_at_least_as_often_as_is_said(name: str) -> None:
    told = visibility(*calibrate(2.0, 0.01, EVENLY, 1, mechanism=name))
    for count, probability in ((told.seen_half, 0.5), (told.seen_mostly, 0.95)):
        hidden = round((1 - kept_at_the_end(name, count)) * len(LABELS))
        assert rate_at_most(1 - probability, hidden, len(LABELS))
    assert kept_at_the_end(name, told.seen_half // 2) < 0.5
    assert told.seen_half < told.seen_mostly < EVENLY


def test_all_mechanisms_are_compared() -> None:
    calibrated, refused = calibrate_each(1, 1e-6, 1023, 4)
    assert [compared_name(**settings_of(mechanism)) for mechanism, _ in calibrated] == list(COMPARED)
    assert not refused


@pytest.mark.parametrize("name", MECHANISMS)
def test_rounds_spread_evenly_stand_for_all_of_them(name: str) -> None:
    mechanism, _ = calibrate(1, 1e-6, 2**18, 4, mechanism=name)
    everything = np.arange(1, 2**18 + 1)
    some = spread(1, 2**18, 2**14)
    assert len(np.unique(some)) == 2**14
    for value in (mechanism.taus, mechanism.sds):
        assert value(some).mean() == pytest.approx(value(everything).mean(), rel=3e-4)
    every_sixteenth = everything[15::16]  # rounds that favour a binary digit
    if name == "binary":
        assert mechanism.sds(every_sixteenth).mean() != pytest.approx(
            mechanism.sds(everything).mean(), rel=0.05
        )


def test_maxima_beyond_the_rounds_looked_at_are_those_of_the_last_rounds() -> None:
    mechanism, _ = calibrate(1, 1e-6, 2**22 - 1, 4, mechanism="binary", shown="each-round")
    assert isinstance(mechanism, BinaryMechanism)
    assert mechanism.horizon > ROUNDS_LOOKED_AT
    assert over_rounds(mechanism.taus, mechanism.horizon).max == mechanism.thresholds[-1]


def test_what_is_asked_for_beyond_what_can_be_promised_is_refused() -> None:
    with pytest.raises(Refused, match="epsilon"):
        calibrate_each(0, 1e-6, 15, 1)


def test_a_mechanism_that_refuses_a_promise_leaves_the_others_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_binary(*settings: Any, **more: Any) -> object:
        if "binary" in settings:
            raise ValueError("binary is out of reach")
        return calibrate(*settings, **more)

    monkeypatch.setattr("stream_dp.planning.comparison.calibrate", without_binary)
    calibrated, refused = calibrate_each(1, 1e-6, 7, 1)
    assert [compared_name(**settings_of(mechanism)) for mechanism, _ in calibrated] == [
        "blt every-round",
        "blt",
    ]
    assert refused == {"binary": "binary is out of reach"}
