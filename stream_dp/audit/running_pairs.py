"""Neighbouring streams for the running histogram.

`table`: the threshold is switched off and the labels are known from the start, so everything that noise must hide is
in the open: the mechanism V of the proof (docs/guarantee.md), whose epsilon is exact, so that bounds come near it.
`release`: the mechanism as calibrated, threshold and all, at a delta large enough to be seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from stream_dp.audit.bounds import Views
from stream_dp.audit.examine import LARGER, Pair
from stream_dp.audit.running_replicas import Releases, Situation, noise_of, replicas
from stream_dp.audit.running_views import blt_sum, joint, views
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.protocol import CalibratedCounter, EpochParameters
from stream_dp.counters.registry import DISCRETE
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.events.bounding import EventBound
from stream_dp.events.event import Event
from stream_dp.privacy.accounting import (
    discrete_gaussian_epsilon,
    discrete_gaussian_sigma_squared,
    gaussian_epsilon,
    gaussian_rho,
)
from stream_dp.privacy.shown import Shown

NAME = "running-histogram"
_EVERYTHING = -(1 << 20)  # a threshold below every noisy count


@dataclass(frozen=True)
class Neighbours:
    """Two streams over `items` items: `others` in both, and `event` in round `event_round` of the larger one."""

    event_round: int
    event: Sequence[int]
    others: Situation

    @property
    def items(self) -> int:
        """How many items the two streams hold together."""
        return 1 + max([*self.event, *(item for event in self.others.values() for item in event)])

    def situation(self, side: int) -> Situation:
        """The stream of that side."""
        return {**self.others, self.event_round: self.event} if side == LARGER else self.others


def pairs() -> list[Pair]:
    """All of them."""
    return [
        *_tables(),
        *_releases(),
        _overlong(),
        *_of_blt(),
        *_of_kept_labels(),
    ]


def _tables() -> list[Pair]:
    everywhere = {r: [0] for r in (2, 3, 5, 6)}
    return [
        table("table: event at the first round of 7", 7, Neighbours(1, [0], {}), runs=600_000),
        table("table: event at the first round of 63, in all 6 nodes", 63, Neighbours(1, [0], {}),
              delta=0.01, runs=60_000),
        table("table: event at the last round of 7", 7, Neighbours(7, [0], {}), runs=100_000),
        table("table: event in the middle, label present elsewhere", 7, Neighbours(4, [0], everywhere)),
        table("table: 4 items at once, 12 nodes", 7, Neighbours(1, [0, 1, 2, 3], {}), runs=100_000),
        table("table: a single round", 1, Neighbours(1, [0], {})),
        table("table: every outcome of 3 rounds", 3, Neighbours(1, [0], {}), epsilon=4, delta=0.01, joint_reach=16),
    ]  # fmt: skip


def _releases() -> list[Pair]:
    return [
        release("novel label at the first round of 7", 7, Neighbours(1, [0], {})),
        release("novel label at the first round of 15", 15, Neighbours(1, [0], {})),
        release("novel label at the last round of 7", 7, Neighbours(7, [0], {})),
        release("3 novel labels at once", 7, Neighbours(1, [0, 1, 2], {})),
        release("novel label that comes back", 7, Neighbours(1, [0], {r: [0] for r in (3, 5, 6, 7)}), epsilon=4),
        release("label shown before the event", 7, Neighbours(6, [0], {r: [0] for r in range(1, 6)}), epsilon=4),
        release("label present in all 15 rounds", 15, Neighbours(8, [0], {r: [0] for r in range(1, 16) if r != 8}),
                epsilon=4, runs=60_000),
        release("label present in all 63 rounds", 63, Neighbours(32, [0], {r: [0] for r in range(1, 64) if r != 32}),
                epsilon=2, runs=12_000),
    ]  # fmt: skip


def _of_blt() -> list[Pair]:
    """Labels that start late have a way of their own; an event moves the noise of all rounds from its own on."""
    again = {r: [0] for r in (10, 11, 13)}
    return [
        table("blt table: event at the first round of 7", 7, Neighbours(1, [0], {}), counter="blt"),
        table("blt table: event at the first round of 63", 63, Neighbours(1, [0], {}), counter="blt", delta=0.01,
              runs=60_000),
        table("blt table: 2 items in the middle, label present elsewhere", 15, Neighbours(5, [0, 1], again),
              counter="blt", runs=60_000),
        release("blt: novel label at the first round of 7", 7, Neighbours(1, [0], {}), counter="blt"),
        release("blt: late novel label that comes back", 15, Neighbours(7, [0], again), counter="blt", epsilon=4,
                runs=60_000),
        release("blt: 2 late novel labels", 15, Neighbours(12, [0, 1], {}), counter="blt", runs=60_000),
    ]  # fmt: skip


def _of_kept_labels() -> list[Pair]:
    """Labels that stay once they were shown; the pairs above show what each round reaches."""
    again = {r: [0] for r in (3, 5, 6, 7)}
    return [
        release("kept: novel label at the first round of 15", 15, Neighbours(1, [0], {}), shown="kept"),
        release("kept: 2 novel labels that come back", 7, Neighbours(2, [0, 1], again), shown="kept", epsilon=4,
                runs=60_000),
        release("kept: label shown before the event", 7, Neighbours(6, [0], {r: [0] for r in range(1, 6)}),
                shown="kept", epsilon=4),
        release("kept, blt: late novel label", 15, Neighbours(7, [0], {}), shown="kept", counter="blt", runs=60_000),
    ]  # fmt: skip


def table(
    name: str, horizon: int, neighbours: Neighbours, *,
    epsilon: float = 1.0, delta: float = 1e-3, runs: int = 120_000, joint_reach: int = 0, counter: str = "binary",
) -> Pair:  # fmt: skip
    """A pair in the open, at the least variance for (epsilon, delta)."""
    mechanism: CalibratedCounter
    if counter == "blt":
        mechanism, claimed = open_blt(horizon, len(neighbours.event), epsilon, delta)
    else:
        mechanism, claimed = open_table(horizon, len(neighbours.event), epsilon, delta, counter)

    def sample(side: int, wanted: int, key: bytes) -> Views:
        shown = open_releases(mechanism, neighbours, side, wanted, key)
        both = _views(mechanism, shown, neighbours.event_round)
        return {**both, **joint(shown, joint_reach)} if joint_reach else both

    return Pair(NAME, name, claimed, delta, sample, runs)


def open_table(
    horizon: int, items: int, epsilon: float, delta: float, counter: str = "binary"
) -> tuple[DiscreteCounter, float]:
    """The mechanism that hides nothing by thresholds, at the least variance, and its epsilon at `delta`."""
    kind = DISCRETE[counter]
    shifts = items * kind.nodes_per_event(horizon)
    sigma_squared = discrete_gaussian_sigma_squared(epsilon, delta, shifts)
    mechanism = kind.of(EpochParameters(horizon, items, delta), sigma_squared)
    claimed = discrete_gaussian_epsilon(sigma_squared, shifts, delta).epsilon
    everything = (_EVERYTHING,) * len(mechanism.thresholds)  # type: ignore[attr-defined]  # all others have them
    return structs.replace(mechanism, thresholds=everything), claimed


def open_blt(horizon: int, items: int, epsilon: float, delta: float) -> tuple[BltMechanism, float]:
    """A blt counter without a threshold, and the epsilon that its noise claims at `delta`."""
    rho = gaussian_rho(epsilon, delta)
    mechanism = BltMechanism.of(EpochParameters(horizon, items, delta), rho)
    return structs.replace(mechanism, deviations=float(_EVERYTHING)), gaussian_epsilon(rho, delta)


def _views(mechanism: CalibratedCounter, releases: Releases, event_round: int) -> Views:
    """With the likelihood ratio of the mechanism's table among them, or of the binary one's."""
    if isinstance(mechanism, BltMechanism):
        seen = {"likelihood ratio": blt_sum(releases, event_round, mechanism)}
        return {**views(releases, event_round), **seen}
    return views(releases, event_round)


def open_releases(
    mechanism: CalibratedCounter, neighbours: Neighbours, side: int, runs: int, key: bytes
) -> Releases:
    """Every noisy count of `runs` streams, of labels that are known before the first round."""
    known = range(neighbours.items)
    return replicas(mechanism, neighbours.situation(side), neighbours.items, runs, key, known=known)


def release(
    name: str, horizon: int, neighbours: Neighbours, *,
    epsilon: float = 2.0, delta: float = 0.02, runs: int = 120_000, counter: str = "binary",
    shown: Shown = "each-round",
) -> Pair:  # fmt: skip
    """A pair through the threshold, calibrated as a worker calibrates it."""
    mechanism, guarantee = calibrate(epsilon, delta, horizon, len(neighbours.event), counter, shown=shown)

    def sample(side: int, wanted: int, key: bytes) -> Views:
        found = replicas(mechanism, neighbours.situation(side), neighbours.items, wanted, key)
        return _views(mechanism, found, neighbours.event_round)

    return Pair(NAME, name, guarantee.epsilon, guarantee.delta, sample, runs)


def _overlong() -> Pair:
    """An event of 200 items where one counts.  The bound itself is tried, so every run is a single one."""
    mechanism, guarantee = calibrate(2.0, 0.05, 7, 1, shown="each-round")
    event = Event([f"item {i}" for i in range(200)])
    bound = EventBound(mechanism.items_per_event)

    def sample(side: int, wanted: int, key: bytes) -> Views:
        rounds = [bound.admit(event) if side == LARGER else []] + [[]] * (mechanism.horizon - 1)
        shown = []
        for run in range(wanted):
            block = RunningHistogram(mechanism, noise_of(key, run)).observe_block(rounds)
            shown.append((len(block.labels), int(block.sizes.sum())))
        labels, cells = np.array(shown, np.int64).reshape(-1, 2).T
        return {"labels shown": labels, "rounds and labels shown": cells}

    return Pair(NAME, "event of 200 items where 1 counts", guarantee.epsilon, guarantee.delta, sample, 2_000)
