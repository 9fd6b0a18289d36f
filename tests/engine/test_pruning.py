"""Does a pruned histogram release what the definition says, label by label, and nothing else?"""

from collections.abc import Sequence
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.protocol import CalibratedCounter, Counter, EpochParameters, Hits, RunningCounter
from stream_dp.counters.registry import DISCRETE
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.engine.noise_table import Pruning
from stream_dp.engine.round_chain import chain_heads
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise

KEY, STREAM, NONCE = bytes(range(32)), "pruning", bytes(16)
LABELS = [f"label {i}" for i in range(12)]
HORIZON = 63
TREES = ["binary"]
"""The counters whose noise does not depend on when a label is first seen, so that a table of everything can tell it."""
Releases = dict[int, dict[str, int]]
NONE = np.empty(0, np.int64)
NO_HITS = Hits(NONE, NONE)


def noise() -> KeyedNoise:
    return KeyedNoise(KEY, STREAM, NONCE)


class Crafted(RunningCounter, frozen=True):
    """A real counter under thresholds of the test's own, low enough that labels come into reach and fall behind."""

    real: Any
    base: int

    @property
    def rho(self) -> float:
        return float(self.real.rho)

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        return (self.base + rounds % 3).astype(np.int32)

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.real.sds(rounds)

    def drifts(self, start: int, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.real.drifts(start, rounds)

    def counter(self, noise: KeyedNoise) -> Counter:
        return self.real.counter(noise)


SIGMA_SQUARED = {"binary": 1.0}


def mechanism(name: str, tau: int = 9) -> Crafted:
    if name == "blt":
        return Crafted(HORIZON, 4, BltMechanism.of(EpochParameters(HORIZON, 4, 0.01), 5.0), tau)
    return Crafted(HORIZON, 4, DISCRETE[name].of(EpochParameters(HORIZON, 4, 0.01), SIGMA_SQUARED[name]), tau)


def releases(
    histogram: RunningHistogram, rounds: Sequence[Sequence[str]], cuts: Sequence[int] = ()
) -> Releases:
    found: Releases = {}
    for start, end in zip([0, *cuts], [*cuts, len(rounds)], strict=True):
        for snapshot in histogram.observe(rounds[start:end]):
            found[snapshot.round] = dict(zip(snapshot.labels.tolist(), snapshot.counts.tolist(), strict=True))
    return found


def by_definition(
    calibrated: CalibratedCounter, rounds: Sequence[Sequence[str]], block: int, more_reach: int = 0
) -> Releases:
    """The rule as it is written, one label and one round at a time, each label with a counter of its own."""
    heads = chain_heads(noise(), EMPTY_HISTORY, 1, rounds)
    found: Releases = {number: {} for number in range(1, len(rounds) + 1)}
    for label in LABELS:
        ids = noise().label_ids([label.encode()])
        counter, count, seen, kept = calibrated.counter(noise()), 0, False, False
        for l0 in range(0, len(rounds), block):
            inside = np.arange(l0 + 1, min(l0 + block - 1, calibrated.horizon) + 1)
            drifts = calibrated.drifts(l0, inside).tolist()
            least = min(
                calibrated.tau(number) - (number - l0) - floor(4 * drift)
                for number, drift in zip(inside.tolist(), drifts, strict=True)
            )
            coming = rounds[l0 : l0 + block]
            if not counter.labels and any(label in admitted for admitted in coming):
                counter.advance(ids, [], NO_HITS, np.array([l0]))
            mine = ids[: counter.labels]
            active = np.flatnonzero((counter.current() + count >= least - more_reach) | kept)
            ahead = counter.subset(active)
            for number, admitted in enumerate(coming, l0 + 1):
                error = ahead.advance(mine[active], heads[number - 1 : number], NO_HITS, NONE)[0]
                if number == l0 + block:
                    counter.follow(ahead, active, mine, heads[number - 1])
                    error = counter.current()
                seen = seen or label in admitted
                count += list(admitted).count(label)
                reaches = bool(len(error) and seen and count + int(error[0]) >= calibrated.tau(number))
                kept = calibrated.shown == "kept" and (kept or reaches)
                if reaches or kept:
                    found[number][label] = count + int(error[0])
    return found


some_rounds = st.lists(
    st.lists(st.sampled_from(LABELS), max_size=4, unique=True), min_size=1, max_size=HORIZON
)
busy_rounds = st.lists(
    st.lists(st.sampled_from(LABELS[:3]), max_size=3, unique=True), min_size=20, max_size=HORIZON
)


@pytest.mark.parametrize("name", [*TREES, "blt"])
@hypothesis_settings(max_examples=25)
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
    assert pruned == unpruned  # four standard deviations: nothing is lost here
    assert pruned != by_definition(calibrated, rounds, 8, -30)
    assert unpruned == releases(RunningHistogram(calibrated, noise()), rounds)


def test_a_label_that_is_out_of_reach_waits_for_the_next_block() -> None:
    """With less reach than a block can add, a label that rises within it is shown in its last round and later."""
    quiet = Crafted(
        HORIZON, 4, DISCRETE["binary"].of(EpochParameters(HORIZON, 4, 0.01), 0.02), 10
    )  # all draws are 0, near enough
    table = RunningHistogram(quiet, noise(), pruning=Pruning(16, events_per_round=0))
    shown = releases(table, [["a"]] * 32)
    assert [r for r in shown if shown[r]] == list(range(16, 33))


def test_a_block_is_not_exceeded() -> None:
    histogram = RunningHistogram(mechanism("binary"), noise(), pruning=Pruning(4))
    with pytest.raises(ValueError, match="only 3"):
        histogram.observe_block([[]] * 5)


def test_only_active_labels_are_drawn_for() -> None:
    """A round's matrix is as wide as there are labels in reach."""
    calibrated = mechanism("binary", 60)
    known = HistogramState.before_any_round([f"idle {i}" for i in range(5_000)])
    histogram = RunningHistogram(calibrated, noise(), known, Pruning(8))
    histogram.observe([["busy"]] * 60)
    assert histogram._table.width < 10
    assert np.array_equal(histogram.state().counts[:5_000], np.zeros(5_000))
