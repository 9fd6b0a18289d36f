"""The worked example of CONTRIBUTING.md is a counter that works."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.counters import DISCRETE, calibration
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.privacy.keyed_noise import KeyedNoise
from tests.docs.shown import blocks

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
HORIZON = 90
EVENTS = [["often", f"label {i % 5}"] for i in range(HORIZON)]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page defines, registered as it says."""
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks(PAGE, "python"):
        exec(block, names)
    monkeypatch.setitem(DISCRETE, "blocks", names["BlockMechanism"])
    monkeypatch.setattr(calibration, "MECHANISMS", ("blocks",))
    return names


def test_one_event_changes_two_nodes_at_most(example: dict[str, Any]) -> None:
    for size in (2, 3, 10):
        tree = example["BlockTree"](size)
        parents = [0, *tree.parents(1, HORIZON)]
        nodes = {tuple(range(parents[node] + 1, node + 1)) for node in range(1, HORIZON + 1)}
        touched = [sum(each in node for node in nodes) for each in range(1, HORIZON + 1)]
        assert max(touched) == example["BlockMechanism"].nodes_per_event(HORIZON) == 2
        for last in range(1, HORIZON + 1):
            chain = tree.chain(last)
            assert [parents[node] for node in chain] == [*chain[1:], 0]
            assert len({tree.slot(node) for node in chain}) == len(chain)


def test_its_releases_do_not_depend_on_blocks_and_its_noise_is_as_it_says(example: dict[str, Any]) -> None:
    mechanism: Any
    mechanism, guarantee = calibrate(20.0, 1e-3, HORIZON, 2, "blocks")
    assert guarantee.epsilon == 20.0
    rounds = np.arange(1, HORIZON + 1)
    tree = example["BlockTree"](example["block_size"](HORIZON))
    assert [len(tree.chain(each)) for each in rounds.tolist()] == mechanism.nodes(rounds).tolist()
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
    for start in (3, 20, 40):
        chains = [set(tree.chain(each)) ^ set(tree.chain(start)) for each in range(start, HORIZON + 1)]
        expected = [len(each) for each in chains]
        drifts = (
            mechanism.drifts(start, np.arange(start, HORIZON + 1)) ** 2
            / mechanism.drifts(start, np.array([start + 1])) ** 2
        )
        assert drifts == pytest.approx(np.array(expected) / expected[1])
