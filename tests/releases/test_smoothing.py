"""Are smoothed counts nearer to the truth, whatever the counter, and do they follow labels that change?"""

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.intervals import errors, release_of
from benchmarks.noisy_paths import Paths
from stream_dp.counters import MECHANISMS
from stream_dp.releases.estimates.noise_shapes import noise_shape, noise_state
from stream_dp.releases.smoothing import Smoother
from tests.example_releases import release as plain_release
from tests.releases.estimates.labels import EPSILON, HORIZON, even_paths, mechanism


@pytest.mark.parametrize("name", MECHANISMS)
def test_smoothed_counts_are_nearer_to_the_truth(name: str) -> None:
    raw, smoothed = errors(mechanism(name), even_paths(mechanism(name), 60), EPSILON, 8)
    assert raw > 1.1 * smoothed


def test_a_filter_that_cannot_adapt_fails_where_labels_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels whose rate goes up by 0.1 half-way: the same bar that the filter meets catches an even rate."""
    paths = even_paths(mechanism("blt"), 60)
    rounds = np.arange(HORIZON)
    added = np.rint(np.maximum(0, rounds - HORIZON // 2) * 0.1).astype(np.int32)
    changed = Paths(paths.first, paths.true + added, paths.noisy + added)
    raw, smoothed = errors(mechanism("blt"), changed, EPSILON, 8)
    assert smoothed < raw
    monkeypatch.setattr("stream_dp.releases.smoothing._RATE_CHANGE", 0.0)
    _, stiff = errors(mechanism("blt"), changed, EPSILON, 8)
    assert stiff > 1.1 * raw


@pytest.mark.parametrize("mechanism_name", MECHANISMS)
def test_hidden_numbers_have_the_covariances_of_the_noise(mechanism_name: str) -> None:
    state, shape = noise_state(mechanism_name, 255), noise_shape(mechanism_name, 255)
    for before, after in [(1, 2), (5, 6), (7, 8), (96, 100), (100, 131), (127, 128), (128, 255)]:
        start, step = state.step(0, before).fresh, state.step(before, after)
        end = step.kept @ start @ step.kept.T + step.fresh
        np.testing.assert_allclose(end, state.step(0, after).fresh, rtol=1e-9, atol=1e-12)
        covariance = state.weights @ step.kept @ start @ state.weights
        expected = shape.covariances(np.array([before]), np.array([after]))[0]
        assert covariance == pytest.approx(expected, rel=1e-9)
        variance = shape.covariances(np.array([after]), np.array([after]))[0]
        assert state.weights @ end @ state.weights == pytest.approx(variance, rel=1e-9)


def test_labels_that_come_and_go_are_refused() -> None:
    made = plain_release(7, {"tea": 400})
    whole = release_of(mechanism("blt"), 7, EPSILON, 400)
    with pytest.raises(ValueError, match="where labels are kept"):
        Smoother().add(replace(whole, shown=made.shown))


def test_another_epoch_begins_anew() -> None:
    smoother, counter = Smoother(), mechanism("binary")
    for number in range(1, 100):
        smoother.add(release_of(counter, number, EPSILON, 500))
    following = replace(release_of(counter, 1, EPSILON, 60), nonce="11" * 16, epoch=2)
    assert smoother.add(following).histogram["label"] < 100
