"""What the last round has released follows from the state alone, whatever the counter and wherever a block is."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.config.settings import Settings
from stream_dp.counters import MECHANISMS
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases.release import decode_release
from tests.system.example_events import some_events

KEY = bytes(range(32))
ROUNDS = 110


def epoch_of(**changed: Any) -> Epoch:
    settings: dict[str, Any] = {
        "mechanism": "binary",
        "epsilon": 40.0,
        "delta": 0.4,
        "horizon": 1023,
        "items_per_event": 3,
    } | changed
    return replace(Epoch.open(Settings(stream="s", **settings), 1, 0), nonce=bytes(16))


def records() -> list[Record]:
    return [Record(n, 1000 * n, None, value) for n, value in enumerate(some_events(ROUNDS, seed=8))]


def restored(pipeline: Pipeline) -> Pipeline:
    """One that knows what a checkpoint keeps, and nothing else."""
    return Pipeline(pipeline.epoch, KEY, "s.events", pipeline.position, deepcopy(pipeline.state()))


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_restored_state_gives_the_release_of_its_own_round(name: str) -> None:
    """In every round, so also if a label has just come."""
    pipeline = Pipeline(epoch_of(mechanism=name, discover="every-round"), KEY, "s.events")
    shown = rounds_with_labels = noticed = 0
    for record in records():
        values = [part.value for part in pipeline.process([record]).releases]
        release = decode_release(values[0])
        assert restored(pipeline).last_release(release.previous) == values
        shown += len(release.labels)
        if release.labels:
            rounds_with_labels += 1
            damaged = restored(pipeline)
            damaged.state().counts[damaged.state().labels.index(release.labels[0])] ^= 1 << 10
            noticed += damaged.last_release(release.previous) != values
    assert shown > 15
    assert noticed == rounds_with_labels > 15


def test_a_round_that_was_passed_over_gives_what_it_would_have_released() -> None:
    """So do schedules not matter for the state, where each round shows its own labels."""
    all_rounds, some = (
        Pipeline(epoch_of(release=release, shown="each-round"), KEY, "s.events")
        for release in ("every-round", "every-9")
    )
    for record in records():
        values = [part.value for part in all_rounds.process([record]).releases]
        some.process([record])
        assert restored(some).last_release(some.round - 1) == values
