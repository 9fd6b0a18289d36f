"""Counting what a round admits before it comes changes no release and no state: a million events, or one entry each."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.admitted import Admitted
from stream_dp.engine.counting import Histogram, histogram_of
from stream_dp.engine.histogram import RunningHistogram
from tests.engine.crafted import HORIZON, LABELS, noise
from tests.engine.test_kept_labels import kept

WINDOW = 5
some_rounds = st.lists(st.lists(st.sampled_from(LABELS[:4]), max_size=12), min_size=1, max_size=HORIZON)


WINDOWS = WindowMechanism.of(EpochParameters(WINDOW, 3, 0.3), 2.0)


def everything(histogram: Histogram, rounds: list[Admitted], cut: int) -> list[object]:
    """What is released, and what a checkpoint keeps."""
    found: list[object] = [
        (shown.round, shown.labels.tolist(), shown.counts.tolist())
        for part in (rounds[:cut], rounds[cut:])
        for block in histogram.blocks(part)
        for shown in block.snapshots()
    ]
    state = histogram.state()
    columns = [*state.counter.columns, *state.recent]
    kept_cells = [(each.name, each.cells[: len(state.labels)].tolist()) for each in columns]
    return [*found, histogram.history, list(state.labels), state.counts.tolist(), kept_cells]


@pytest.mark.parametrize("name", ["binary", "blt", "windows"])
@settings(max_examples=30)
@given(rounds=some_rounds, cut=st.integers(0, HORIZON))
def test_counted_rounds_are_those_that_come_one_by_one(name: str, rounds: list[list[str]], cut: int) -> None:
    def fresh() -> Histogram:
        if name == "windows":
            return histogram_of(WINDOWS, noise())
        return RunningHistogram(kept(name), noise())

    assert everything(fresh(), [Counter(each) for each in rounds], cut) == everything(fresh(), [*rounds], cut)


def test_a_round_of_many_events_costs_what_its_labels_cost() -> None:
    histogram = RunningHistogram(kept("binary"), noise())
    [block] = histogram.blocks([{LABELS[0]: 2_000_000_000, LABELS[1]: 1}], [bytes(32)])
    [shown] = block.snapshots()
    assert shown.labels[0] == LABELS[0]
    assert abs(int(shown.counts[0]) - 2_000_000_000) < 1_000
    assert histogram.state().counts.tolist() == [2_000_000_000, 1]
