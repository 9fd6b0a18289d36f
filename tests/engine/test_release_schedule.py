"""Are the rounds that are released those of the schedule, and the same bytes as if all were?"""

import json
import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.release_schedule import NEVER, ReleaseSchedule
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from tests.counters.blocks import as_lists

KEY = bytes(range(32))
ROUNDS = 90


_LINK = re.compile(rb'"previous":\d+,')
MECHANISMS = ["binary", "blt"]


@cache
def epoch(release: str, mechanism: str) -> Epoch:
    """Of the rule by which a round's release does not depend on which others there were."""
    promise: dict[str, Any] = {"epsilon": 30.0, "delta": 0.1, "horizon": 95, "shown": "each-round"}
    settings = Settings(stream="s", release=release, mechanism=mechanism, **promise)
    opened = Epoch.open(settings, 1, 0)
    return Epoch(1, bytes(16), 0, opened.privacy, opened.mechanism, opened.guarantee)


def records() -> list[Record]:
    """Events whose times run forwards, stand still, and once run backwards."""
    rng, at = random.Random(3), 10_000
    found = []
    for offset in range(ROUNDS):
        at += rng.choice([0, 1, 40, 90, 700]) if offset != 50 else -2_000
        found.append(Record(offset, at, None, b'{"items": ["a", "b", "c %d"]}' % (offset % 5)))
    return found


def run(release: str, mechanism: str, cuts: Sequence[int] = ()) -> tuple[dict[tuple[int, int], bytes], Any]:
    """The releases without their links, by round and part, and the state at the end, in plain values.

    At each cut the pipeline is made anew from what a checkpoint keeps.
    """
    of = epoch(release, mechanism)
    found: dict[tuple[int, int], bytes] = {}
    pipeline = Pipeline(of, KEY, "s.events")
    for start, end in zip([0, *cuts], [*cuts, ROUNDS], strict=True):
        output = pipeline.process(records()[start:end])
        found |= {(each.round, each.part): _LINK.sub(b"", each.value) for each in output.releases}
        pipeline = Pipeline(of, KEY, "s.events", pipeline.position, pipeline.state(), pipeline.intake.pairs)
    state = pipeline.state()
    return found, (state.history, state.labels, state.counts.tolist(), as_lists(state.counter))


def by_hand(release: str) -> set[int]:
    times = [record.timestamp for record in records()]
    if release.endswith("ms"):
        stretch = int(release[6:-2])
        stretches = [time // stretch for time in times]
        return {1 + i for i, each in enumerate(stretches) if i == 0 or each != stretches[i - 1]}
    every = 1 if release == "every-round" else int(release[6:])
    return {number for number in range(1, ROUNDS + 1) if number % every == 0}


def by_label(value: bytes) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """A release with its labels in one order."""
    told = json.loads(value)
    return told, sorted(zip(told.pop("labels"), told.pop("counts"), strict=True))


@hypothesis_settings(max_examples=60)
@given(
    st.sampled_from(
        ["every-round", "every-7", "every-90", "every-1000", "every-1ms", "every-100ms", "every-5000ms"]
    ),
    st.sampled_from(MECHANISMS),
    st.lists(st.integers(0, ROUNDS), max_size=5).map(sorted),
)
def test_releases_are_the_scheduled_rounds_of_all(release: str, mechanism: str, cuts: list[int]) -> None:
    found, left = run(release, mechanism, cuts)
    everything, state = run("every-round", mechanism)
    assert {number for number, _ in found} == by_hand(release)
    wanted = {place: value for place, value in everything.items() if place[0] in by_hand(release)}
    assert found.keys() == wanted.keys()
    for place, value in found.items():  # which round found a label, and so its place, depends on the schedule
        assert by_label(value) == by_label(wanted[place])
    assert left == state


def test_the_last_round_of_an_epoch_is_released() -> None:
    assert ReleaseSchedule(10).wanted(91, [0] * 5, NEVER, 95).tolist() == [False] * 4 + [True]


@pytest.mark.parametrize("release", ["every", "every-0", "every-ms", "every-1s", "10", ""])
def test_other_schedules_are_refused(release: str) -> None:
    with pytest.raises(SettingsError, match="release"):
        load_settings(environment={}, stream="s", release=release)
