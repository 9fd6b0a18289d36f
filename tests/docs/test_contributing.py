"""The worked examples of CONTRIBUTING.md work."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import stream_dp
from stream_dp.audit.exact import guaranteed, worst
from stream_dp.audit.exact_one_shot import one_shot_cases, one_shot_counted
from stream_dp.cli.one_shot import command
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.golden import check_golden_noise
from stream_dp.counters.protocol import EpochParameters
from stream_dp.counters.registry import COUNTERS
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.releases.estimates.noise_shapes import noise_shape, noise_state
from tests.docs.shown import blocks

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
HORIZON = 90
EVENTS = [["often", f"label {i % 5}"] for i in range(HORIZON)]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page defines, registered as it says."""
    monkeypatch.setitem(MECHANISMS, "histogram", {**MECHANISMS["histogram"]})
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks(PAGE, "python"):
        exec(block, names)
    monkeypatch.setitem(COUNTERS, "blocks", names["BlocksMechanism"])
    return names


def test_the_library_the_command_and_the_audit_know_the_one_shot_mechanism(example: dict[str, Any]) -> None:
    sales = {"user": list(range(300)), "item": ["tea"] * 299 + ["secret"]}
    found = stream_dp.histogram(sales, epsilon=2, mechanism="magnitudes", items_per_user=1)
    assert (found.labels, found.counts, found.parameters["items_per_user"]) == (["tea"], [256], 1)
    app = typer.Typer()
    app.command()(command("histogram"))
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert all(name in told for name in MECHANISMS["histogram"])
    [case] = one_shot_cases(["histogram magnitudes"])
    assert one_shot_counted(case).as_expected


def test_one_event_changes_two_nodes_at_most(example: dict[str, Any]) -> None:
    for size in (2, 3, 10):
        tree = example["BlockTree"](size)
        parents = [0, *tree.parents(1, HORIZON)]
        nodes = {tuple(range(parents[node] + 1, node + 1)) for node in range(1, HORIZON + 1)}
        touched = [sum(each in node for node in nodes) for each in range(1, HORIZON + 1)]
        assert max(touched) == example["BlocksMechanism"].nodes_per_event(HORIZON) == 2
        for last in range(1, HORIZON + 1):
            chain = tree.chain(last)
            assert [parents[node] for node in chain] == [*chain[1:], 0]
            assert len({tree.slot(node) for node in chain}) == len(chain)
            shared = [len({*chain} & {*tree.chain(each)}) for each in range(1, last + 1)]
            assert tree.shared_nodes(np.arange(1, last + 1), np.array([last])).tolist() == shared


def test_its_releases_do_not_depend_on_blocks_and_its_noise_is_as_it_says(example: dict[str, Any]) -> None:
    mechanism: Any
    mechanism, guarantee = calibrate(20.0, 1e-3, HORIZON, 2, "blocks")
    assert guarantee.epsilon == 20.0
    rounds = np.arange(1, HORIZON + 1)
    assert mechanism.nodes(rounds).max() <= mechanism.most_nodes(HORIZON)
    noise = KeyedNoise(bytes(32), "example", bytes(16))
    whole = list(RunningHistogram(mechanism, noise).observe(EVENTS))
    cut = RunningHistogram(mechanism, noise)
    parts = [each for start in range(0, HORIZON, 7) for each in cut.observe(EVENTS[start : start + 7])]
    assert [(each.round, each.counts.tolist()) for each in whole] == [
        (each.round, each.counts.tolist()) for each in parts
    ]
    errors = [each.counts[each.labels.tolist().index("often")] - each.round for each in whole[40:]]
    assert max(map(abs, errors)) < 6 * mechanism.sds(rounds).max()
    assert len(set(errors)) > 5


def test_all_that_reads_the_declaration_knows_it(example: dict[str, Any]) -> None:
    """Start, readers and audit."""
    check_golden_noise("blocks")
    covariances = noise_shape("blocks", HORIZON).covariances
    state, spread = noise_state("blocks", HORIZON), np.zeros((1, 1))
    spread = np.zeros((len(state.weights),) * 2)
    for before, after in pairwise((0, 3, 9, 10, 44, 90)):
        step = state.step(before, after)
        spread = step.kept @ spread @ step.kept.T + step.fresh
        now = np.array([after])
        assert state.weights @ spread @ state.weights == covariances(now, now)[0]
    kind: Any = example["BlocksMechanism"]
    rounds, sigma_squared, epsilon = kind.enumerated
    counter = kind.of(EpochParameters(rounds, 1, 0.02, "kept"), sigma_squared)
    assert worst(counter, epsilon)[0] <= guaranteed(counter, epsilon)
