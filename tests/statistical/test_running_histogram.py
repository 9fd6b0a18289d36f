"""Do the releases themselves, over many keys, have the law and the escape rate that the guarantee rests on?

Whole histograms run here, from events to snapshots.  Each claim is paired with broken mechanisms that must fail.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from stream_dp.counters.binary import BinaryMechanism, chain
from stream_dp.counters.protocol import EpochParameters
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.engine.released_block import Snapshot
from stream_dp.privacy.discrete_gaussian import variance
from stream_dp.privacy.keyed_noise import KeyedNoise
from tests import naive
from tests.statistics import fits, rate_at_most, uncorrelated

HORIZON = 15
SIGMA_SQUARED = 4.0
THRESHOLD_DELTA = 0.05
KEYS = 50
LABELS = sorted(f"label {i:03d}" for i in range(500))
SIGMA_OFF = SIGMA_SQUARED / 2  # the standard deviation is off by sqrt(2)


def mechanism(
    sigma_squared: float = SIGMA_SQUARED, threshold_delta: float = THRESHOLD_DELTA
) -> BinaryMechanism:
    """Calibrated for one item an event, while one run tries 500 labels at once.

    The labels' noise is independent, so each of them is a trial of a stream of its own.
    """
    return BinaryMechanism.of(EpochParameters(HORIZON, 1, threshold_delta), sigma_squared)


def everything_known(sigma_squared: float) -> BinaryMechanism:
    """No threshold at all: the noise of every label is in the open."""
    return replace(mechanism(sigma_squared), thresholds=(-(10**6),) * 4)


def snapshots(run: BinaryMechanism, key: int, epoch: int, events: list[list[str]]) -> list[Snapshot]:
    noise = KeyedNoise(key.to_bytes(32, "big"), "statistics", epoch.to_bytes(16, "big"))
    return RunningHistogram(run, noise).observe(events)


def errors(run: BinaryMechanism, key: int, epoch: int) -> NDArray[np.int64]:
    """Released count minus true count, shape (rounds, labels), of a stream with everybody in its odd rounds."""
    events = [LABELS if round_number % 2 else [] for round_number in range(1, HORIZON + 1)]
    table = np.empty((HORIZON, len(LABELS)), np.int64)
    for row, snapshot in enumerate(snapshots(run, key, epoch, events)):
        in_order = np.argsort(snapshot.labels)
        assert snapshot.labels[in_order].tolist() == LABELS
        table[row] = snapshot.counts[in_order] - (row // 2 + 1)
    return table


@lru_cache
def many_errors(sigma_squared: float = SIGMA_SQUARED) -> NDArray[np.int64]:
    """The errors under many keys, shape (keys, rounds, labels)."""
    return np.array([errors(everything_known(sigma_squared), key, 0) for key in range(KEYS)])


@lru_cache
def redrawn_errors() -> NDArray[np.int64]:
    """A broken mechanism: every round draws the noise of all its nodes anew."""
    run = everything_known(SIGMA_SQUARED)
    return np.array(
        [[errors(run, key, epoch)[epoch] for epoch in range(HORIZON)] for key in range(KEYS // 4)]
    )


@pytest.mark.parametrize("round_number", range(1, HORIZON + 1))
def test_a_released_count_has_the_law_of_a_sum_over_its_chain(round_number: int) -> None:
    law = naive.sum_probabilities(SIGMA_SQUARED, len(chain(round_number)))
    assert fits(many_errors()[:, round_number - 1], law)
    assert not fits(many_errors(SIGMA_OFF)[:, round_number - 1], law)
    sd = mechanism().sd(round_number)
    assert sd**2 == pytest.approx(sum(k * k * probability for k, probability in law.items()), rel=1e-12)


def own_noise(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """What each round adds to the error of the prefix it builds on: the noise of the one node it completes."""
    parents = [r & (r - 1) for r in range(1, HORIZON + 1)]
    padded = np.concatenate([np.zeros_like(table[:, :1]), table], axis=1)
    return table - padded[:, parents]


@pytest.mark.parametrize("round_number", [3, 5, 7, 10, 14, 15])
def test_each_round_adds_one_draw_for_ever(round_number: int) -> None:
    law = naive.sum_probabilities(SIGMA_SQUARED, 1)
    assert fits(own_noise(many_errors())[:, round_number - 1], law)
    assert not fits(own_noise(redrawn_errors())[:, round_number - 1], law)


def test_noise_redrawn_for_a_round_is_invisible_in_that_round_alone() -> None:
    """Why the test above looks at two rounds together."""
    assert fits(redrawn_errors()[:, 6], naive.sum_probabilities(SIGMA_SQUARED, 3))


def nodes_are_independent(table: NDArray[np.int64]) -> bool:
    z, unit = own_noise(table), variance(SIGMA_SQUARED)
    return all(uncorrelated(z[:, a], z[:, b], unit) for a in range(HORIZON) for b in range(a))


def test_nodes_have_independent_noise() -> None:
    assert nodes_are_independent(many_errors())
    assert not nodes_are_independent(redrawn_errors())


def test_labels_and_keys_have_independent_noise() -> None:
    z, unit = own_noise(many_errors()), variance(SIGMA_SQUARED)
    for gap in (1, 2, 10, 250):
        assert uncorrelated(z[..., gap:], z[..., :-gap], unit)
    for gap in (1, 2, 32):
        assert uncorrelated(z[gap:], z[:-gap], unit)
    one_key_for_two = np.concatenate([z[:1], z[:1]])
    assert not uncorrelated(one_key_for_two[1:], one_key_for_two[:-1], unit)


@lru_cache
def escapes(run: BinaryMechanism, first_seen: int) -> NDArray[np.int64]:
    """How often a label with one count, from round `first_seen` on, was released, shape (rounds + 1,).

    Entry r is the number of labels released in round r; entry 0 of those released in any round at all.
    """
    events = [LABELS if r == first_seen else [] for r in range(1, HORIZON + 1)]
    number = np.zeros(HORIZON + 1, np.int64)
    for key in range(KEYS):
        released = snapshots(run, key, 0, events)
        number[0] += len({label for snapshot in released for label in snapshot.labels})
        number[1:] += [len(snapshot.labels) for snapshot in released]
    return number


def escapes_as_claimed(run: BinaryMechanism, first_seen: int) -> bool:
    """In every round at most d / L of the trials, and over all rounds at most d."""
    number, trials = escapes(run, first_seen), KEYS * len(LABELS)
    every_round = all(rate_at_most(THRESHOLD_DELTA / HORIZON, int(n), trials) for n in number[1:])
    return every_round and rate_at_most(THRESHOLD_DELTA, int(number[0]), trials)


@pytest.mark.parametrize("first_seen", [1, 2, 7, 8, 15])
def test_a_new_label_escapes_no_more_often_than_its_budget(first_seen: int) -> None:
    assert escapes_as_claimed(mechanism(), first_seen)
    assert escapes(mechanism(), first_seen)[0] > 0  # seen at all, so that there is something to bound


def without_union_over_rounds() -> BinaryMechanism:
    return mechanism(threshold_delta=THRESHOLD_DELTA * HORIZON)


def released_above_the_tie() -> BinaryMechanism:
    """Every threshold lower by one: the tail at the tie is not counted."""
    return replace(mechanism(), thresholds=tuple(tau - 1 for tau in mechanism().thresholds))


def calibrated_for_less_noise() -> BinaryMechanism:
    """Thresholds of a standard deviation that is too small by sqrt(2)."""
    return replace(mechanism(SIGMA_OFF), sigma_squared=SIGMA_SQUARED)


@pytest.mark.parametrize(
    "broken", [without_union_over_rounds, released_above_the_tie, calibrated_for_less_noise]
)
def test_a_wrong_threshold_lets_too_many_labels_escape(broken: Callable[[], BinaryMechanism]) -> None:
    assert not escapes_as_claimed(broken(), first_seen=1)


def test_a_threshold_without_the_union_over_rounds_exceeds_the_whole_budget() -> None:
    """Not only in single rounds: over the epoch, too."""
    number = int(escapes(without_union_over_rounds(), 1)[0])
    assert not rate_at_most(THRESHOLD_DELTA, number, KEYS * len(LABELS))
