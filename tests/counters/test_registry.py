"""What every calibrated counter owes its users, by name."""

import msgspec
import numpy as np
import pytest

from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate, coupling_delta
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.registry import DISCRETE, Mechanism
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.privacy.accounting import discrete_gaussian_delta
from stream_dp.privacy.keyed_noise import KeyedNoise

EVENTS = [[f"label {i % 7}", f"label {i * i % 11}", "often"] for i in range(200)]


def shown(mechanism: Mechanism, key: int, cuts: list[int]) -> list[tuple[int, list[str], list[int]]]:
    """All releases of the events, observed in blocks that end at `cuts`."""
    noise = KeyedNoise(bytes([key]) * 32, "registry", bytes(16))
    histogram = RunningHistogram(mechanism, noise)
    snapshots = [
        snapshot
        for start, end in zip([0, *cuts], [*cuts, len(EVENTS)], strict=True)
        for snapshot in histogram.observe(EVENTS[start:end])
    ]
    return [(each.round, each.labels.tolist(), each.counts.tolist()) for each in snapshots]


@pytest.mark.parametrize("name", MECHANISMS)
def test_releases_are_a_function_of_the_key_and_the_events(name: str) -> None:
    mechanism, _ = calibrate(20.0, 1e-3, 511, 3, name)
    once = shown(mechanism, 1, [])
    assert once == shown(mechanism, 1, [1, 2, 50, 51, 128, 199])
    assert once != shown(mechanism, 2, [])
    assert sum(len(labels) for _, labels, _ in once) > 100


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_stored_mechanism_comes_back_as_it_was(name: str) -> None:
    mechanism, _ = calibrate(1.0, 1e-6, 65_535, 4, name)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(mechanism), type=Mechanism) == mechanism
    assert msgspec.json.decode(msgspec.json.encode(mechanism), type=Mechanism) == mechanism
    assert (mechanism.name, mechanism.horizon, mechanism.items_per_event) == (name, 65_535, 4)


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize(
    ("epsilon", "delta", "horizon", "items"),
    [(1.0, 1e-6, 65_535, 4), (0.5, 1e-9, 100, 1), (20.0, 1e-3, 511, 3)],
)
def test_the_noise_is_the_least_that_keeps_the_promise(
    name: str, epsilon: float, delta: float, horizon: int, items: int
) -> None:
    """By the exact divergence, at what delta has left for it; or else the least that the counter can take."""
    mechanism, guarantee = calibrate(epsilon, delta, horizon, items, name)
    assert isinstance(mechanism, DiscreteCounter)
    kind = DISCRETE[name]
    shifts = items * kind.nodes_per_event(horizon)
    left = delta / 2 - coupling_delta(horizon, items, mechanism=name)
    assert discrete_gaussian_delta(mechanism.sigma_squared, shifts, epsilon) <= left <= delta / 2
    if mechanism.sigma_squared > kind.least_sigma_squared:
        assert discrete_gaussian_delta(mechanism.sigma_squared * 0.999, shifts, epsilon) > left
    assert guarantee.rho == mechanism.rho == shifts / (2 * mechanism.sigma_squared)
    assert (guarantee.epsilon, guarantee.delta, guarantee.threshold_delta) == (epsilon, delta, delta / 2)


@pytest.mark.parametrize("name", MECHANISMS)
def test_better_counters_show_what_the_binary_mechanism_hides(name: str) -> None:
    rounds = np.arange(1, 65_536)
    binary, _ = calibrate(1.0, 1e-6, 65_535, 4)
    mechanism, _ = calibrate(1.0, 1e-6, 65_535, 4, name)
    factor = {"binary": 1.0}.get(name, 0.79)
    assert mechanism.taus(rounds).mean() <= factor * binary.taus(rounds).mean()
    assert mechanism.sds(rounds).mean() <= factor * binary.sds(rounds).mean()
    assert mechanism.sds(rounds).max() <= factor * binary.sds(rounds).max()
