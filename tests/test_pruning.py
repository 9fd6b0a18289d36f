"""Does a pruned histogram release what the definition says, label by label, and nothing else?"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import structs

from stream_dp.counters import DISCRETE
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.histogram import HistogramState, RunningHistogram
from stream_dp.noise_table import Pruning
from stream_dp.privacy.keyed_noise import KeyedNoise

KEY, STREAM, NONCE = bytes(range(32)), "pruning", bytes(16)
LABELS = [f"label {i}" for i in range(12)]
HORIZON = 63
Releases = dict[int, dict[str, int]]


def noise() -> KeyedNoise:
    return KeyedNoise(KEY, STREAM, NONCE)


def mechanism(name: str, tau: int = 9) -> CalibratedCounter:
    """Little noise and low thresholds, so that labels come into reach, are seen, and fall behind again."""
    calibrated = DISCRETE[name].of(HORIZON, 4, 1.0, 0.01)
    return structs.replace(
        calibrated, thresholds=tuple(tau + m % 3 for m in range(len(calibrated.thresholds)))
    )


def releases(
    histogram: RunningHistogram, rounds: Sequence[Sequence[str]], cuts: Sequence[int] = ()
) -> Releases:
    found: Releases = {}
    for start, end in zip([0, *cuts], [*cuts, len(rounds)], strict=True):
        for snapshot in histogram.observe(rounds[start:end]):
            found[snapshot.round] = dict(zip(snapshot.labels.tolist(), snapshot.counts.tolist(), strict=True))
    return found


def by_definition(
    calibrated: CalibratedCounter, rounds: Sequence[Sequence[str]], block: int, reach: float | None = None
) -> Releases:
    """Every label's noisy count in every round, from one that hides nothing, and then the rule as it is written."""
    if reach is None:
        reach = block + ceil(4 * calibrated.drift(block))
    open_one = structs.replace(calibrated, thresholds=(-(10**6),) * len(calibrated.thresholds))
    everything = releases(
        RunningHistogram(open_one, noise(), HistogramState.before_any_round(LABELS)), rounds
    )
    seen: set[str] = set()
    found: Releases = {}
    for l0 in range(0, len(rounds), block):
        inside = range(l0 + 1, min(l0 + block, calibrated.horizon) + 1)
        least = min(calibrated.tau(round_number) for round_number in inside)
        before = everything.get(l0, dict.fromkeys(LABELS, 0))
        active = {label for label in LABELS if before[label] + reach >= least}
        for round_number in inside:
            if round_number > len(rounds):
                break
            seen.update(rounds[round_number - 1])
            found[round_number] = {
                label: count
                for label, count in everything[round_number].items()
                if label in active & seen and count >= calibrated.tau(round_number)
            }
    return found


some_rounds = st.lists(
    st.lists(st.sampled_from(LABELS), max_size=4, unique=True), min_size=1, max_size=HORIZON
)
busy_rounds = st.lists(
    st.lists(st.sampled_from(LABELS[:3]), max_size=3, unique=True), min_size=20, max_size=HORIZON
)


@pytest.mark.parametrize("name", DISCRETE)
@hypothesis_settings(deadline=None, derandomize=True, max_examples=40)
@given(
    rounds=some_rounds | busy_rounds,
    bits=st.integers(1, 5),
    cuts=st.lists(st.integers(0, HORIZON), max_size=6),
)
def test_releases_are_those_of_the_definition(
    name: str, rounds: list[list[str]], bits: int, cuts: list[int]
) -> None:
    calibrated = mechanism(name, 9 + (1 << bits))
    pruned = RunningHistogram(calibrated, noise(), pruning=Pruning(1 << bits))
    cuts = sorted(cut for cut in cuts if cut < len(rounds))
    assert by_definition(calibrated, rounds, 1 << bits) == releases(pruned, rounds, cuts)


def test_the_definition_prunes_what_the_examples_show() -> None:
    """Else the tests above would pass for a histogram that prunes nothing, or that shows nothing."""
    calibrated = mechanism("binary", 17)
    rounds = [LABELS[i % 12 :][:1] + LABELS[:2] for i in range(HORIZON)]
    pruned, unpruned = by_definition(calibrated, rounds, 8), by_definition(calibrated, rounds, 8, 10**6)
    assert sum(map(len, pruned.values())) > 50
    assert pruned == by_definition(calibrated, rounds, 8, 10**3)
    assert pruned != by_definition(calibrated, rounds, 8, -2)
    assert unpruned == releases(RunningHistogram(calibrated, noise()), rounds)


def test_a_label_that_is_out_of_reach_waits_for_the_next_block() -> None:
    """With less reach than a block can add, a label that rises within it is shown from the next block on."""
    quiet = structs.replace(mechanism("binary", 10), sigma_squared=0.01)  # all draws are 0, near enough
    table = RunningHistogram(quiet, noise(), pruning=Pruning(16))
    table._table._reach = 4  # type: ignore[attr-defined, union-attr]
    shown = releases(table, [["a"]] * 32)
    assert [r for r in shown if shown[r]] == list(range(17, 33))


def test_a_block_is_not_exceeded() -> None:
    histogram = RunningHistogram(mechanism("binary"), noise(), pruning=Pruning(4))
    with pytest.raises(ValueError, match="4 left"):
        histogram.observe_block([[]] * 5)


def test_only_active_labels_are_drawn_for() -> None:
    """A round's matrix is as wide as there are labels in reach."""
    calibrated = structs.replace(mechanism("binary", 60), sigma_squared=1.0)
    known = HistogramState.before_any_round([f"idle {i}" for i in range(5_000)])
    histogram = RunningHistogram(calibrated, noise(), replace(known), Pruning(8))
    histogram.observe([["busy"]] * 60)
    assert histogram._table.width < 10
    assert np.array_equal(histogram.state().counts[:5_000], np.zeros(5_000))
