"""Is the true delta of what is released, counted over every outcome of the noise, within the guarantee?"""

import json
from functools import cache

import numpy as np
import pytest
from msgspec import structs
from typer.testing import CliRunner

from stream_dp.audit.exact import HIDDEN, guaranteed, law, neighbours, worst
from stream_dp.audit.exact_cases import Case, KeepsTrueCounts, cases, counted
from stream_dp.audit.exact_noise import noise_of_rounds
from stream_dp.cli import app, audit_exact
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.protocol import EpochParameters
from stream_dp.privacy.shown import Shown
from stream_dp.privacy.thresholds import sum_tail_threshold

KINDS = [BinaryMechanism]
RULES: list[Shown] = ["kept", "each-round"]
counted_once = cache(counted)


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
    mechanism = kind.of(EpochParameters(horizon, 1, threshold_delta, shown), sigma_squared)
    delta, _ = worst(mechanism, epsilon)
    assert 0 < delta <= guaranteed(mechanism, epsilon)


@pytest.mark.parametrize("unit", ["event", "user"])
@pytest.mark.parametrize("shown", RULES)
def test_nor_those_of_two(shown: Shown, unit: str) -> None:
    """A user may bring each of the two items in a round of its own."""
    mechanism = BinaryMechanism.of(EpochParameters(2, 2, 0.02, shown), 1.0)
    delta, chosen = worst(mechanism, 1.0, "user" if unit == "user" else "event")
    assert 0 < delta <= guaranteed(mechanism, 1.0)
    assert len(chosen) == 2


@pytest.mark.parametrize("shown", RULES)
def test_a_threshold_that_is_too_low_is_caught(shown: Shown) -> None:
    correct = BinaryMechanism.of(EpochParameters(3, 1, 1e-4, shown), 4.0)
    low = tuple(tau - 3 for tau in (correct.tau(1), correct.tau(3)))
    delta, (pair,) = worst(structs.replace(correct, thresholds=low, thresholds_by_level=()), 5.0)
    assert worst(correct, 5.0)[0] <= guaranteed(correct, 5.0) < delta
    assert pair[0] == frozenset()  # a label that only the differing event holds


@pytest.mark.parametrize("shown", RULES)
def test_a_threshold_of_a_single_round_used_in_all_is_caught(shown: Shown) -> None:
    """The union over rounds dropped: each round spends all of the threshold's delta."""
    correct = BinaryMechanism.of(EpochParameters(3, 1, 0.02, shown), 4.0)
    alone = tuple(sum_tail_threshold(4.0, m + 1, 0.02) for m in range(2))
    broken = structs.replace(correct, thresholds=alone, thresholds_by_level=())
    assert worst(correct, 5.0)[0] <= guaranteed(correct, 5.0) < worst(broken, 5.0)[0]


def test_a_label_kept_for_its_true_count_is_caught() -> None:
    mechanism = BinaryMechanism.of(EpochParameters(4, 1, 0.05, "kept"), 0.5)
    assert mechanism.tau(4) <= 4  # else no true count of this horizon would reach it
    epsilon = 16.0
    assert worst(mechanism, epsilon)[0] <= guaranteed(mechanism, epsilon)
    assert worst(mechanism, epsilon, histogram=KeepsTrueCounts)[0] > guaranteed(mechanism, epsilon)


def test_a_law_is_one() -> None:
    """All that a label can show has probability 1 together; a label without an event shows nothing."""
    mechanism = BinaryMechanism.of(EpochParameters(3, 1, 0.05, "kept"), 1.0)
    found = law(mechanism, frozenset({1, 3}))
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-10)
    assert len(found.outcomes) > 100
    assert law(mechanism, frozenset()).outcomes.tolist() == [[HIDDEN] * 3]


@pytest.mark.parametrize("shown", RULES)
def test_so_it_is_of_the_counters_with_other_noise(shown: Shown) -> None:
    """Of blt the noise of all rounds is one Gaussian's."""
    mechanism = BltMechanism.of(EpochParameters(3, 1, 0.05, shown), 0.5)
    assert law(mechanism, frozenset({1})).probabilities.sum() == pytest.approx(1, abs=1e-9)
    outcomes, chances = noise_of_rounds(mechanism)
    rounds = np.arange(1, 4)
    assert chances @ outcomes.astype(float) ** 2 == pytest.approx(mechanism.sds(rounds) ** 2, rel=1e-3)


def test_every_counter_rule_and_unit_keeps_its_guarantee_and_broken_ones_do_not() -> None:
    everything = cases()
    named = {(case.mechanism.name, case.mechanism.shown, case.unit) for case in everything if not case.broken}
    assert len(named) == 2 * 2 * 2 + 1, "windows have one rule and one unit"
    found = [counted_once(case) for case in everything]
    assert not [each.report() for each in found if not each.as_expected]
    assert len({each.case.broken for each in found if each.exceeded}) == 5 + 4 + 6 + 3


def test_blt_with_too_little_noise_or_a_threshold_without_the_union_is_caught() -> None:
    correct = BltMechanism.of(EpochParameters(3, 1, 0.02, "kept"), 0.5)
    quiet = structs.replace(correct, draw_sd=correct.draw_sd / 3)
    low = structs.replace(correct, deviations=correct.deviations - 1.5)
    for broken, epsilon in ((quiet, 1.0), (low, 4.0)):
        assert worst(correct, epsilon)[0] <= guaranteed(correct, epsilon) < worst(broken, epsilon)[0]


def test_the_command_counts_exactly_and_fails_where_a_guarantee_is_exceeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_exact, "counted", counted_once)
    result = CliRunner().invoke(app, ["audit", "--exact", "--mechanism", "blt", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["good"]
    assert {(case["shown"], case["unit"]) for case in report["cases"]} == {
        (shown, unit) for shown in RULES for unit in ("event", "user")
    }
    assert all((case["delta"] <= case["guaranteed"]) != bool(case["broken"]) for case in report["cases"])
    assert {len(case["tests"]) for case in report["cases"] if case["tests"]} == {1, 2, 3}
    correct = BltMechanism.of(EpochParameters(2, 1, 0.02, "kept"), 0.5)
    silent = structs.replace(correct, draw_sd=correct.draw_sd / 2)
    monkeypatch.setattr(audit_exact, "cases", lambda names: [Case(silent, 1.0, correct=correct)])
    monkeypatch.setattr(audit_exact, "one_shot_cases", lambda names=(): [])
    result = CliRunner().invoke(app, ["audit", "--exact"])
    assert result.exit_code == 1
    assert "The audit FAILS: 1 of 1 guarantees exceeded" in result.stdout


def test_the_command_refuses_what_it_cannot_use() -> None:
    for options, sentence in (
        (["--seed", "01"], "leave --runs and --seed out"),
        (["--mechanism", "greedy"], "there is no mechanism 'greedy'"),
    ):
        result = CliRunner().invoke(app, ["audit", "--exact", *options])
        assert result.exit_code == 2
        assert sentence in result.stderr


def test_all_neighbours_are_looked_at() -> None:
    assert len(neighbours(3)) == 3 * 2**2
