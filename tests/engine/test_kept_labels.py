"""Does a label that reached its threshold once stay shown, with its noisy count, from that round on and no earlier?"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from tests.engine.crafted import HORIZON, LABELS, Releases, mechanism, noise

EVERYTHING = -(10**6)
some_rounds = st.lists(
    st.lists(st.sampled_from(LABELS), max_size=4, unique=True), min_size=1, max_size=HORIZON
)
some_cuts = st.lists(st.integers(0, HORIZON), max_size=6)


def kept(name: str, tau: int = 9) -> CalibratedCounter:
    return structs.replace(mechanism(name, tau), shown="kept")


def copied(state: HistogramState) -> HistogramState:
    """What a checkpoint would hold."""
    size = len(state.labels)
    columns = [replace(column, cells=column.cells[:size].copy()) for column in state.counter.columns]
    counter = replace(state.counter, columns=columns, tweaks=dict(state.counter.tweaks))
    since = None if state.shown_since is None else state.shown_since.copy()
    return HistogramState(state.history, list(state.labels), state.counts.copy(), counter, shown_since=since)


def releases(
    calibrated: CalibratedCounter,
    rounds: Sequence[Sequence[str]],
    cuts: Sequence[int] = (),
    every: int = 1,
) -> Releases:
    """Of rounds whose number is a multiple of `every`; a new process goes on from a checkpoint at each of the cuts."""
    found: Releases = {}
    first: dict[str, int] = {}
    histogram = RunningHistogram(calibrated, noise())
    cuts = sorted(cut for cut in cuts if cut < len(rounds))
    for start, end in zip([0, *cuts], [*cuts, len(rounds)], strict=True):
        histogram = RunningHistogram(calibrated, noise(), copied(histogram.state()))
        wanted = np.arange(start + 1, end + 1) % every == 0
        for block in histogram.blocks(rounds[start:end], wanted=wanted):
            for snapshot in block.snapshots():
                labels, counts = snapshot.labels.tolist(), snapshot.counts.tolist()
                for label in labels:
                    first.setdefault(label, snapshot.round)
                assert labels == sorted(labels, key=lambda label: (first[label], label))
                found[snapshot.round] = dict(zip(labels, counts, strict=True))
    return found


def shown_from_first_reach(calibrated: CalibratedCounter, noisy: Releases) -> Releases:
    """The rule as it is written, given the noisy counts of all admitted labels in the released rounds."""
    shown: set[str] = set()
    found: Releases = {}
    for number, counts in noisy.items():
        shown |= {label for label, count in counts.items() if count >= calibrated.tau(number)}
        found[number] = {label: count for label, count in counts.items() if label in shown}
    return found


@pytest.mark.parametrize("name", ["binary", "blt"])
@settings(max_examples=20)
@given(rounds=some_rounds, cuts=some_cuts, every=st.sampled_from([1, 1, 3]))
def test_releases_are_those_of_the_definition(
    name: str, rounds: list[list[str]], cuts: list[int], every: int
) -> None:
    calibrated = kept(name)
    noisy = releases(mechanism(name, EVERYTHING), rounds, (), every)
    assert shown_from_first_reach(calibrated, noisy) == releases(calibrated, rounds, cuts, every)


def test_the_examples_hold_labels_that_fall_below_their_threshold_again() -> None:
    """Else the tests above would pass for a histogram that keeps nothing."""
    rounds = [LABELS[i % 12 :][:2] + LABELS[:1] for i in range(HORIZON)]
    calibrated = kept("binary")
    shown = releases(calibrated, rounds)
    below = [
        label
        for number, counts in shown.items()
        for label, count in counts.items()
        if count < calibrated.tau(number)
    ]
    assert len(below) > 20
    assert shown != releases(mechanism("binary"), rounds)


def test_the_state_says_since_when_each_label_is_shown() -> None:
    rounds = [LABELS[i % 12 :][:1] + LABELS[:1] for i in range(HORIZON)]
    histogram = RunningHistogram(kept("blt"), noise())
    first: dict[str, int] = {}
    for snapshot in histogram.observe(rounds):
        for label in snapshot.labels.tolist():
            first.setdefault(label, snapshot.round)
    state = histogram.state()
    assert state.shown_since is not None
    since = dict(zip(state.labels, state.shown_since.tolist(), strict=True))
    assert {label: first.get(label, 0) for label in state.labels} == since
    assert 0 < len(first) < len(state.labels)


def test_a_state_without_its_flags_would_hide_what_was_shown() -> None:
    """The flags are state, and no cache of a process."""
    rounds = [[label] for label in LABELS for _ in range(3)] + [[]] * 27
    calibrated = kept("binary", 5)
    whole = releases(calibrated, rounds)
    histogram = RunningHistogram(calibrated, noise())
    histogram.observe(rounds[:36])
    state = copied(histogram.state())
    assert state.shown_since is not None
    state.shown_since[:] = 0
    forgetful = RunningHistogram(calibrated, noise(), state)
    after = {snapshot.round: snapshot.labels.tolist() for snapshot in forgetful.observe(rounds[36:])}
    assert [number for number in after if after[number] != [*whole[number]]]
