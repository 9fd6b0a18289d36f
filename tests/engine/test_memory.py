"""What a label takes that nobody sees: its text, and a fixed number of bytes beside it."""

import tracemalloc

import pytest

from stream_dp.counters.calibration import calibrate
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.engine.noise_table import Pruning
from stream_dp.planning.release_sizes import far_along
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise

LABELS, BLOCK = 49_000, 256  # just before the index doubles


@pytest.mark.parametrize("width", [12, 1_000])
def test_an_idle_label_takes_at_most_80_bytes_beside_its_text(width: int) -> None:
    """With pruning and the default mechanism, after 87,552 rounds: identity, index, count, column and noise.

    Text has an eighth of room to grow, as everything has.
    """
    mechanism, _ = calibrate(1.0, 1e-6, 2**20 - 1, 4)
    noise = KeyedNoise(bytes(KEY_BYTES), "memory", bytes(NONCE_BYTES))
    tracemalloc.start()
    try:
        names = [f"{number:0{width}d}" for number in range(LABELS)]
        state = far_along(mechanism, noise, names, 10)
        histogram = RunningHistogram(mechanism, noise, state, Pruning(BLOCK))
        del state, names
        labels = histogram.observe([["tea"]] * BLOCK)[-1].labels.tolist()
        taken, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(labels) == 10
    text = LABELS * width
    assert 50 * LABELS < taken - text <= 80 * LABELS + text // 8
    assert most > taken
