"""Is the true delta of what is released, counted over every outcome of the noise, within the guarantee?"""

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray

from stream_dp.audit.exact import HIDDEN, guaranteed, law, neighbours, worst
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.protocol import Shown
from stream_dp.counters.smooth import SmoothMechanism
from stream_dp.histogram import ReleasedBlock, RunningHistogram
from stream_dp.privacy.thresholds import sum_tail_threshold

KINDS = [BinaryMechanism, SmoothMechanism]
RULES: list[Shown] = ["kept", "each-round"]


@pytest.mark.parametrize("shown", RULES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("horizon", "sigma_squared", "threshold_delta", "epsilon"),
    [(1, 1.0, 0.01, 1.0), (2, 1.0, 0.02, 0.5), (3, 0.5, 0.05, 2.0), (3, 4.0, 1e-3, 3.0)],
)
def test_no_neighbours_of_one_label_are_told_apart_better(
    kind: type[DiscreteCounter],
    shown: Shown,
    horizon: int,
    sigma_squared: float,
    threshold_delta: float,
    epsilon: float,
) -> None:
    mechanism = kind.of(horizon, 1, sigma_squared, threshold_delta, shown)
    delta, _ = worst(mechanism, epsilon)
    assert 0 < delta <= guaranteed(mechanism, epsilon)


@pytest.mark.parametrize("unit", ["event", "user"])
@pytest.mark.parametrize("shown", RULES)
def test_nor_those_of_two(shown: Shown, unit: str) -> None:
    """A user may bring each of the two items in a round of its own."""
    mechanism = BinaryMechanism.of(2, 2, 1.0, 0.02, shown)
    delta, chosen = worst(mechanism, 1.0, "user" if unit == "user" else "event")
    assert 0 < delta <= guaranteed(mechanism, 1.0)
    assert len(chosen) == 2


@pytest.mark.parametrize("shown", RULES)
def test_a_threshold_that_is_too_low_is_caught(shown: Shown) -> None:
    correct = BinaryMechanism.of(3, 1, 4.0, 1e-4, shown)
    low = tuple(tau - 3 for tau in (correct.tau(1), correct.tau(3)))
    delta, (pair,) = worst(structs.replace(correct, thresholds=low, thresholds_by_level=()), 5.0)
    assert worst(correct, 5.0)[0] <= guaranteed(correct, 5.0) < delta
    assert pair[0] == frozenset()  # a label that only the differing event holds


@pytest.mark.parametrize("shown", RULES)
def test_a_threshold_of_a_single_round_used_in_all_is_caught(shown: Shown) -> None:
    """The union over rounds dropped: each round spends all of the threshold's delta."""
    correct = BinaryMechanism.of(3, 1, 4.0, 0.02, shown)
    alone = tuple(sum_tail_threshold(4.0, m + 1, 0.02) for m in range(2))
    broken = structs.replace(correct, thresholds=alone, thresholds_by_level=())
    assert worst(correct, 5.0)[0] <= guaranteed(correct, 5.0) < worst(broken, 5.0)[0]


class KeepsTrueCounts(RunningHistogram):
    """Broken: a label is kept, too, from the round on in which its TRUE count reaches tau."""

    def _release(
        self,
        rounds: NDArray[np.int64],
        noisy: NDArray[np.int32],
        tau: NDArray[np.int32],
        heads: Sequence[bytes],
    ) -> ReleasedBlock:
        rows = np.flatnonzero(self._counts[: len(self._labels)] >= tau[0])
        self._keep(rows, np.full(len(rows), rounds[0]))
        self._visible.include(rows, self._labels)
        return super()._release(rounds, noisy, tau, heads)


def test_a_label_kept_for_its_true_count_is_caught() -> None:
    mechanism = BinaryMechanism.of(4, 1, 0.5, 0.05, "kept")
    assert mechanism.tau(4) <= 4  # else no true count of this horizon would reach it
    epsilon = 16.0
    assert worst(mechanism, epsilon)[0] <= guaranteed(mechanism, epsilon)
    assert worst(mechanism, epsilon, histogram=KeepsTrueCounts)[0] > guaranteed(mechanism, epsilon)


def test_a_law_is_one() -> None:
    """All that a label can show has probability 1 together; a label without an event shows nothing."""
    mechanism = BinaryMechanism.of(3, 1, 1.0, 0.05, "kept")
    found = law(mechanism, frozenset({1, 3}))
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-10)
    assert len(found.outcomes) > 100
    assert law(mechanism, frozenset()).outcomes.tolist() == [[HIDDEN] * 3]


def test_all_neighbours_are_looked_at() -> None:
    assert len(neighbours(3)) == 3 * 2**2
