"""What a label takes that nobody sees: its text, and a fixed number of bytes beside it."""

import tracemalloc
from collections.abc import Iterable

import pytest

from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discovery_schedule import rounds_of_tests
from stream_dp.engine.counting import Histogram, histogram_of
from stream_dp.engine.histogram import HistogramState
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise

LABELS, HORIZON = 49_000, 2**20 - 1  # just before the index doubles


def filled(names: Iterable[str]) -> Histogram:
    """After the first test, which has found ten of these labels."""
    tests = rounds_of_tests(HORIZON)
    mechanism, _ = calibrate(1.0, 1e-6, HORIZON, 4, "blt", tests=tests)
    state = HistogramState.before_any_round(list(names))
    state.counts[:10] = 1_000_000
    histogram = histogram_of(mechanism, KeyedNoise(bytes(KEY_BYTES), "memory", bytes(NONCE_BYTES)), state)
    for block in histogram.blocks([[]] * tests[0]):
        shown = block.labels.tolist()
    assert len(shown) == 10
    return histogram


@pytest.mark.parametrize("width", [12, 1_000])
def test_a_label_that_is_not_shown_takes_at_most_60_bytes_beside_its_text(width: int) -> None:
    """Found at tests: identity, index, count, and what bounds the noise of its next test; labels share no beginning.

    Text has an eighth of room to grow, as everything has.
    """
    filled("abcdefghijkl")  # compiled loops take memory, too
    tracemalloc.start()
    try:
        histogram = filled(f"{number:0{width}d}"[::-1] for number in range(LABELS))
        taken, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(histogram.state().labels) == LABELS
    text = LABELS * width
    assert 30 * LABELS < taken - text <= 60 * LABELS + text // 8
    assert most > taken
