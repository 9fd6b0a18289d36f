"""Does the running histogram release exactly what a slow, label-at-a-time reading of the design releases?"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.protocol import EpochParameters
from stream_dp.engine.histogram import HistogramState, HorizonReached, RunningHistogram
from stream_dp.engine.released_block import Snapshot
from stream_dp.privacy.keyed_noise import KeyedNoise
from tests import naive
from tests.nodes import live_nodes
from tests.real_events import real_events
from tests.strategies import cut_streams, labels, streams

KEY = bytes(range(50, 82))
STREAM = "baskets"
NONCE = bytes(range(200, 216))
NO_THRESHOLD = -(10**6)

repeatable = settings(max_examples=60)


def keyed() -> KeyedNoise:
    return KeyedNoise(KEY, STREAM, NONCE)


def running(mechanism: BinaryMechanism, state: HistogramState | None = None) -> RunningHistogram:
    return RunningHistogram(mechanism, keyed(), state)


def crafted(threshold: int, horizon: int = 63) -> BinaryMechanism:
    """A mechanism with the same threshold in every round, whatever it protects."""
    return BinaryMechanism(horizon, 4, 4.0, 0.01, (threshold,) * horizon.bit_length())


def pairs(snapshots: Sequence[Snapshot]) -> list[naive.Release]:
    """Snapshots in the form of the slow implementation."""
    return [
        (snapshot.round, list(zip(snapshot.labels.tolist(), snapshot.counts.tolist(), strict=True)))
        for snapshot in snapshots
    ]


def slow(rounds: Sequence[Sequence[str]], threshold: Callable[[int], int]) -> naive.Run:
    return naive.naive_run(KEY, STREAM, NONCE, 4.0, threshold, rounds)


def frozen(state: HistogramState) -> HistogramState:
    """A copy that later events do not touch, as a checkpoint would keep it."""
    size = len(state.labels)
    columns = [replace(column, cells=column.cells[:size].copy()) for column in state.counter.columns]
    counter = replace(state.counter, columns=columns, tweaks=dict(state.counter.tweaks))
    return replace(state, labels=list(state.labels), counts=state.counts.copy(), counter=counter)


def plain(state: HistogramState) -> dict[str, Any]:
    """Everything a state means, free of arrays, spare room and the order in which labels came."""
    size = len(state.labels)
    return {
        "round": state.round,
        "history": state.history,
        "counts": dict(zip(state.labels, state.counts.tolist(), strict=True)),
        "tweaks": [(node.round, node.tweak) for node in live_nodes(state)],
        "table": {
            node.round: {
                label: (partial_sum, noise)
                for label, partial_sum, noise in zip(
                    state.labels, node.sums[:size].tolist(), node.noise[:size].tolist(), strict=True
                )
            }
            for node in live_nodes(state)
            if size
        },
    }


def same_table(run: naive.Run, state: HistogramState) -> bool:
    ours = plain(state)
    return (run.history, run.counts, run.table) == (ours["history"], ours["counts"], ours["table"])


@repeatable
@given(
    streams(),
    st.integers(1, 4),
    st.sampled_from([0.05, 0.5, 4.0]),
    st.sampled_from([1e-6, 0.1, 0.4]),
    st.integers(0, 30),
)
def test_releases_and_tables_equal_the_slow_implementation(
    events: list[list[str]], items_per_event: int, sigma_squared: float, threshold_delta: float, spare: int
) -> None:
    horizon = len(events) + spare + 1
    mechanism = BinaryMechanism.of(EpochParameters(horizon, items_per_event, threshold_delta), sigma_squared)
    histogram = running(mechanism)
    settled = (items_per_event, sigma_squared)
    expected = naive.naive_releases(KEY, STREAM, NONCE, horizon, *settled, threshold_delta, events)
    assert expected == pairs(histogram.observe(events))
    assert same_table(
        naive.naive_run(KEY, STREAM, NONCE, sigma_squared, lambda _: 0, events), histogram.state()
    )


@repeatable
@given(st.lists(st.lists(labels, max_size=6), max_size=30))
def test_any_unicode_may_be_a_label(events: list[list[str]]) -> None:
    histogram = running(crafted(NO_THRESHOLD))
    assert slow(events, lambda _: NO_THRESHOLD).releases == pairs(histogram.observe(events))


def test_a_thousand_real_events_equal_the_slow_implementation() -> None:
    events = [naive.first_distinct(event, 2) for event in real_events(1000)]
    settled = (1023, 2, 2.0, 0.5)
    horizon, items_per_event, sigma_squared, threshold_delta = settled
    parameters = EpochParameters(horizon, items_per_event, threshold_delta)
    snapshots = running(BinaryMechanism.of(parameters, sigma_squared)).observe(events)
    assert naive.naive_releases(KEY, STREAM, NONCE, *settled, events) == pairs(snapshots)
    assert len(snapshots[-1].labels) > 5  # something was released, so that there was something to compare


@repeatable
@given(cut_streams(), st.sampled_from([NO_THRESHOLD, 0, 3]))
def test_releases_do_not_depend_on_how_a_stream_is_cut(
    cut_stream: tuple[list[list[str]], list[list[list[str]]]], threshold: int
) -> None:
    events, blocks = cut_stream
    whole, in_blocks, one_by_one = (running(crafted(threshold)) for _ in range(3))
    expected = pairs(whole.observe(events))
    assert expected == pairs([snapshot for block in blocks for snapshot in in_blocks.observe(block)])
    assert expected == pairs([snapshot for event in events for snapshot in one_by_one.observe([event])])
    assert plain(whole.state()) == plain(in_blocks.state()) == plain(one_by_one.state())


def test_releases_do_not_depend_on_the_cuts_inside_a_large_stream() -> None:
    """Large enough for the histogram itself to cut it: more rounds times labels than it takes at once."""
    choice = np.random.default_rng(7)
    events = [[str(item) for item in choice.geometric(0.01, 5)] for _ in range(3000)]
    mechanism = BinaryMechanism.of(EpochParameters(4095, 4, 0.01), 4.0)
    whole, in_blocks = running(mechanism), running(mechanism)
    expected = pairs(whole.observe(events))
    assert expected == pairs([s for i in range(0, 3000, 37) for s in in_blocks.observe(events[i : i + 37])])
    assert plain(whole.state()) == plain(in_blocks.state())


@repeatable
@given(streams(), st.data())
def test_a_saved_state_continues_as_if_nothing_had_happened(
    events: list[list[str]], data: st.DataObject
) -> None:
    """Also when the states are saved again and again, and the first histogram goes on meanwhile."""
    original = running(crafted(2))
    expected = pairs(original.observe(events))
    done = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=3)))
    histogram, start, seen = running(crafted(2)), 0, []
    for end in [*done, len(events)]:
        seen += pairs(histogram.observe(events[start:end]))
        saved = frozen(histogram.state())
        assert (end, saved.history) == (histogram.round, histogram.history)
        histogram.observe([["something", "else"]] * min(3, histogram.rounds_left))
        histogram, start = running(crafted(2), saved), end
        assert plain(saved) == plain(histogram.state())
    assert expected == seen
    assert plain(original.state()) == plain(histogram.state())


def test_a_saved_state_of_a_read_only_buffer_can_be_continued() -> None:
    """What comes out of a database is a view of immutable bytes."""
    events = [["a"], ["b", "c"], ["a", "d"], [], ["e"], ["a", "f"], ["g"]]
    expected = pairs(running(crafted(NO_THRESHOLD)).observe(events))
    first = running(crafted(NO_THRESHOLD))
    first.observe(events[:3])
    saved = frozen(first.state())
    for column in saved.counter.columns:
        column.cells = np.frombuffer(column.cells.tobytes(), np.int32)
    assert expected[3:] == pairs(running(crafted(NO_THRESHOLD), saved).observe(events[3:]))


def test_a_label_counts_as_often_as_events_of_the_round_hold_it() -> None:
    histogram = running(crafted(NO_THRESHOLD))
    rounds = [["a", "b", "a"], ["b"], ["c", "c", "c", "a"]]
    assert slow(rounds, lambda _: NO_THRESHOLD).releases == pairs(histogram.observe(rounds))
    assert plain(histogram.state())["counts"] == {"a": 3, "b": 2, "c": 3}


def test_the_order_inside_a_round_means_nothing() -> None:
    one, other = running(crafted(NO_THRESHOLD)), running(crafted(NO_THRESHOLD))
    assert pairs(one.observe([["a", "b", "a"]])) == pairs(other.observe([["b", "a", "a"]]))
    assert plain(one.state()) == plain(other.state())


def test_a_block_of_long_rounds_keeps_to_its_size() -> None:
    """As many rounds as leave rounds times labels within bounds, were every label a new one; at least one."""
    histogram = running(crafted(NO_THRESHOLD))
    short, long = [["a"]] * 1000, [[str(n) for n in range(20_000)]] * 10
    assert histogram.block_rounds(short) == 362  # the largest n with n * n labels within 2^17
    assert histogram.block_rounds(long) == 2  # 2 * 40,000
    assert histogram.block_rounds([[str(n) for n in range(200_000)], []]) == 1
    histogram.observe(long[:1])
    assert histogram.block_rounds(short) == 6  # 6 * 20,006


def test_a_round_that_admits_nothing_is_a_round_like_any_other() -> None:
    histogram = running(crafted(NO_THRESHOLD))
    snapshots = histogram.observe([[], [], ["a"], [], []])
    assert [snapshot.round for snapshot in snapshots] == [1, 2, 3, 4, 5]
    assert [snapshot.labels.tolist() for snapshot in snapshots] == [[], [], ["a"], ["a"], ["a"]]
    assert len({int(snapshot.counts[0]) for snapshot in snapshots[2:]}) > 1  # each round has its own noise
    without = running(crafted(NO_THRESHOLD))
    without.observe([["a"]])
    assert without.history != histogram.history


def test_no_events_at_all_change_nothing() -> None:
    histogram = running(crafted(0))
    before = plain(histogram.state())
    assert histogram.observe([]) == []
    assert before == plain(histogram.state())


def test_a_count_equal_to_the_threshold_is_released_and_one_below_is_not() -> None:
    events = [["a", "b"], ["a"], ["c"], [], ["a", "c"]]
    everything = pairs(running(crafted(NO_THRESHOLD)).observe(events))
    for round_number, released in everything:
        for label, noisy in released:
            at_the_tie = pairs(running(crafted(noisy)).observe(events))[round_number - 1][1]
            one_above = pairs(running(crafted(noisy + 1)).observe(events))[round_number - 1][1]
            assert (label, noisy) in at_the_tie
            assert label not in dict(one_above)


def test_each_round_has_the_threshold_of_its_number_of_nodes() -> None:
    events = [["a"]] * 31
    everything = pairs(running(crafted(NO_THRESHOLD, horizon=31)).observe(events))
    thresholds = (9, 3, 20, 13, 26)
    mechanism = structs.replace(crafted(0, horizon=31), thresholds=thresholds)
    expected = [
        (r, [pair for pair in released if pair[1] >= thresholds[bin(r).count("1") - 1]])
        for r, released in everything
    ]
    assert expected == pairs(running(mechanism).observe(events))
    assert {0, 1} == {len(released) for _, released in expected}


@pytest.mark.parametrize("horizon", [1, 2, 7, 8])
def test_the_first_and_the_last_round_are_released(horizon: int) -> None:
    histogram = running(crafted(NO_THRESHOLD, horizon))
    snapshots = histogram.observe([["a"]] * horizon)
    assert (1, horizon) == (snapshots[0].round, snapshots[-1].round)
    assert all(snapshot.labels.tolist() == ["a"] for snapshot in snapshots)
    assert slow([["a"]] * horizon, lambda _: NO_THRESHOLD).releases == pairs(snapshots)
    assert histogram.rounds_left == 0


@pytest.mark.parametrize(("done", "asked"), [(0, 8), (7, 1), (5, 3)])
def test_a_round_beyond_the_horizon_is_refused_before_anything_changes(done: int, asked: int) -> None:
    histogram = running(crafted(NO_THRESHOLD, horizon=7))
    histogram.observe([["a"]] * done)
    before = plain(histogram.state())
    with pytest.raises(HorizonReached, match=f"{asked} more rounds .* only {7 - done} of the horizon of 7"):
        histogram.observe([["b"]] * asked)
    assert before == plain(histogram.state())
    assert histogram.rounds_left == 7 - done
    fresh = running(crafted(NO_THRESHOLD, horizon=7))
    rest = [["c"]] * (7 - done)
    assert pairs(fresh.observe([["a"]] * done + rest))[done:] == pairs(histogram.observe(rest))


@repeatable
@given(streams())
def test_a_label_is_never_released_before_it_was_admitted(events: list[list[str]]) -> None:
    """With no threshold at all, what is released is what was admitted so far, and nothing else."""
    snapshots = running(crafted(NO_THRESHOLD)).observe(events)
    known: set[str] = set()
    for snapshot, event in zip(snapshots, events, strict=True):
        known |= set(event)
        assert known == set(snapshot.labels.tolist())


def test_labels_stand_in_the_order_in_which_they_were_found_and_then_of_their_bytes() -> None:
    names = ["b", "a", "B", "é", "z", "\ue000", "\U0001f600", "", "\0", "aa", "\ud7ff"]
    noiseless = structs.replace(crafted(1), sigma_squared=0.02)  # all draws are 0, near enough
    histogram = running(noiseless)
    (first, second) = histogram.observe([["z", "m"], [*names, "z", "z"]])
    assert (first.labels.tolist(), first.counts.tolist()) == (["m", "z"], [1, 1])
    rest = sorted(set(names) - {"z"}, key=str.encode)
    assert (second.labels.tolist(), second.counts.tolist()) == (["m", "z", *rest], [1, 4, *[1] * len(rest)])
    again = running(noiseless, frozen(histogram.state()))
    assert again.observe([[]])[0].labels.tolist() == ["m", "z", *rest]


def test_another_key_stream_or_epoch_releases_other_counts() -> None:
    events = [["a", "b", "c", "d"]] * 20
    logs = [
        pairs(RunningHistogram(crafted(NO_THRESHOLD), noise).observe(events))
        for noise in (
            keyed(),
            KeyedNoise(bytes(32), STREAM, NONCE),
            KeyedNoise(KEY, "other", NONCE),
            KeyedNoise(KEY, STREAM, bytes(16)),
        )
    ]
    assert all(logs[0] != other for other in logs[1:])


def test_an_edit_of_the_log_changes_the_noise_from_there_on_and_not_before() -> None:
    events = [["a"], ["b"], ["a"], ["c"], ["a"], ["b"], ["a"], []]
    edited = [*events[:3], [], *events[4:]]
    logs = [dict(pairs(running(crafted(NO_THRESHOLD)).observe(log))) for log in (events, edited)]
    assert [logs[0][r] for r in (1, 2, 3)] == [logs[1][r] for r in (1, 2, 3)]
    noise = [[dict(log[r])["a"] for r in range(4, 9)] for log in logs]
    assert all(ours != theirs for ours, theirs in zip(*noise, strict=True))
