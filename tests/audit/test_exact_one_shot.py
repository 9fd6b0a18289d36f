"""One-shot mechanisms on small data: their true delta, counted, and laws that runs of the real program confirm."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from stream_dp.audit import one_shot_laws as laws
from stream_dp.audit.broken_two_rounds import Crowd, items_outside_the_sample
from stream_dp.audit.enumerated import REST, EveryNoise, Law, law_of
from stream_dp.audit.exact_one_shot import one_shot_cases, one_shot_counted
from stream_dp.audit.one_shot_case import OneShotCase
from stream_dp.batch import laplace_tails
from stream_dp.batch.baskets import baskets
from stream_dp.batch.gumbel_top_k import GumbelTopK, gumbel_top_k
from stream_dp.batch.largest_gap import GaussianGap, Ranks, largest_gap_gaussian
from stream_dp.batch.policy_set_union import LaplacePolicy, laplace_policy
from stream_dp.batch.stable_top_k import StableFixedK, stable_fixed_k
from stream_dp.batch.top_k import GaussianTopK, gaussian_top_k
from stream_dp.batch.two_rounds import TwoRounds
from stream_dp.cli import app, audit_exact
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.one_shot_noise import OneShotNoise
from tests.batch.evidence import counts_agree, noise

CASES = one_shot_cases()
TRIALS = 12_000


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{number} {case.name} {case.broken}" for number, case in enumerate(CASES)]
)
def test_guarantees_hold_and_broken_ones_do_not(case: OneShotCase) -> None:
    found = one_shot_counted(case)
    assert found.as_expected, found


def test_no_mechanism_is_left_out() -> None:
    every = {f"{job} {name}" for job, found in MECHANISMS.items() for name in found}
    counted = {case.name for case in CASES if not case.broken}
    assert counted == every
    assert len([case for case in CASES if case.broken]) == 35


def agree(run: Callable[[OneShotNoise], Any], law: Law[Any], other: Law[Any], trials: int = TRIALS) -> None:
    """Runs with real noise have this law, and not the other one."""
    seen = Counter(run(noise(number)) for number in range(trials))
    assert counts_agree(seen, law)
    assert not counts_agree(seen, other)


def test_the_law_of_integers_is_that_of_runs() -> None:
    counts = np.array([6, 5])

    def run(epsilon: float) -> Callable[[OneShotNoise], Any]:
        def once(source: OneShotNoise) -> Any:
            found = gaussian_top_k(counts, GaussianTopK(epsilon, 0.1, 1, 1), source)
            assert found.counts is not None
            return tuple(found.items.tolist()), tuple(found.counts.tolist())

        return once

    agree(run(0.9), law_of(run(0.9)), law_of(run(1.1)))


def test_the_law_of_coins_orders_and_samples_is_that_of_runs() -> None:
    pairs = np.array([(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 0)])
    held = baskets(pairs[:, 0].copy(), pairs[:, 1].copy(), 3)

    def run(limit: int) -> Callable[[OneShotNoise], Any]:
        return lambda source: tuple(
            laplace_policy(held, LaplacePolicy(1.0, 0.1, limit), source).items.tolist()
        )

    agree(run(2), law_of(run(2)), law_of(run(1)))


def test_the_law_of_items_from_outside_the_sample_is_that_of_runs() -> None:
    crowd, parameters, other = Crowd(4, 2), TwoRounds(6.0, 0.05, 1), TwoRounds(2.0, 0.05, 1)
    common, run = 8, items_outside_the_sample(parameters)
    users, items = np.repeat(np.arange(4), 3), np.array([0, 1, 8, 2, 3, 8, 4, 5, 8, 6, 7, 8])
    labels = pa.array([b"%d" % number for number in range(9)], pa.large_binary())
    rows, joined = Rows(users, items, labels), Rows(np.append(users, 4), np.append(items, common), labels)
    agree(
        lambda source: common in run(rows, source),
        crowd.law_outside_the_sample(parameters, joined=False),
        crowd.law_outside_the_sample(other, joined=False),
        trials=2_000,
    )
    agree(
        lambda source: common in run(joined, source),
        crowd.law_outside_the_sample(parameters, joined=True),
        crowd.law_outside_the_sample(parameters, joined=False),
        trials=2_000,
    )


def test_the_laws_of_orders_are_those_of_runs() -> None:
    counts = np.array([6, 3, 7, 5])
    top, fixed, rank = (
        GumbelTopK(0.8, 0.1, 2, 3),
        StableFixedK(1.0, 0.1, 2, 3),
        GaussianGap(2.0, 0.01, Ranks(3)),
    )

    def marks(items: Any, bottom: bool) -> tuple[int, ...]:
        return (*items.tolist(), *([laws.BOTTOM] if bottom else []))

    def by_gumbel(source: OneShotNoise) -> Any:
        found = gumbel_top_k(counts, top, source)
        return marks(found.items, found.bottom)

    def by_set(source: OneShotNoise) -> Any:
        found = stable_fixed_k(counts, fixed, source)
        return marks(found.items, found.bottom)

    agree(by_gumbel, laws.gumbel(counts, top), laws.gumbel(counts, GumbelTopK(0.9, 0.1, 2, 3)))
    agree(
        by_set,
        laws.stable_fixed_k(counts, fixed),
        laws.stable_fixed_k(counts, StableFixedK(1.5, 0.1, 2, 3)),
    )
    agree(
        lambda source: largest_gap_gaussian(counts, rank, source).rank,
        laws.gaussian_gap(counts, rank),
        laws.gaussian_gap(counts, GaussianGap(1.7, 0.01, Ranks(3))),
    )


def test_every_value_comes_once_and_all_of_them_are_the_law() -> None:
    source, chances = EveryNoise(), list[float]()
    while source.begin():
        first = source.discrete_laplace(0.3, 1)[0]
        if first > 0:
            source.order(np.arange(3))
        source.passes(np.array([0.25]), np.array([0.75]))
        chances.append(source.chance)
    reach = laplace_tails.tail_point(0.3, REST)
    assert sum(chances) == pytest.approx(1.0, abs=1e-7)
    assert len(chances) == 2 * (1 + reach + 6 * reach)


def test_the_command_counts_them_and_fails_where_a_guarantee_is_exceeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = CliRunner().invoke(app, ["audit", "--exact", "--mechanism", "top-k gap", "--json"])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert (told["good"], told["cases"], len(told["one_shot"])) == (True, [], 5)
    shown = CliRunner().invoke(app, ["audit", "--exact", "--mechanism", "top-k stable"])
    assert "0 of 3 guarantees exceeded, 1 of 1 broken mechanisms caught" in shown.stdout
    wrong = OneShotCase("top-k gap", 1.0, 0.1, lambda: 0.2)
    monkeypatch.setattr(audit_exact, "one_shot_cases", lambda names=(): [wrong])
    ran = CliRunner().invoke(app, ["audit", "--exact", "--mechanism", "top-k gap"])
    assert ran.exit_code == 1
    assert "The audit FAILS: 1 of 1 guarantees exceeded" in ran.stdout
