"""A pipeline that is restored with what an earlier one knew of labels is the one that is restored without it."""

import random
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Output, Pipeline, Position

KEY = bytes(range(32))
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"mechanism": name} for name in ("binary", "blt")},
    "kept": {"mechanism": "binary", "shown": "kept"},
    "found at tests": {"mechanism": "blt", "discover": "every-9"},
    "user": {"mechanism": "binary", "unit": "user", "items_per_user": 8},
}
Saved = tuple[Position, HistogramState, bytearray]


def epoch(name: str, **changed: object) -> Epoch:
    fixed: dict[str, Any] = {
        "stream": "earlier",
        "epsilon": 30.0,
        "delta": 0.1,
        "horizon": 127,
        "mechanism": "binary",
        "items_per_event": 3,
    }
    return Epoch.open(Settings(**{**fixed, **KINDS[name], **changed}), 1, 0)


def records(seed: int) -> list[Record]:
    """Events in which labels go on to appear for the first time."""
    draw = random.Random(seed)
    return [
        Record(
            offset,
            1,
            b"user %d" % draw.randrange(9),
            msgspec.json.encode({"items": ["tea", f"{seed}/{draw.randrange(1 + offset)}"]}),
        )
        for offset in range(100)
    ]


def saved(pipeline: Pipeline) -> Saved:
    """What a checkpoint keeps, which nobody else touches."""
    return deepcopy((pipeline.position, pipeline.state(), pipeline.intake.pairs))


def parts(output: Output) -> list[bytes]:
    return [release.value for release in output.releases]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("before", "after"), [(0, 40), (20, 40), (40, 40)])
def test_what_it_releases_does_not_depend_on_the_earlier_one(name: str, before: int, after: int) -> None:
    events, of = records(1), epoch(name)
    one = Pipeline(of, KEY, "events")
    one.process(events[:before])
    earlier = Pipeline(of, KEY, "events", *saved(one))
    one.process(events[before:after])
    at = saved(one)
    without = Pipeline(of, KEY, "events", *deepcopy(at))
    with_it = Pipeline(of, KEY, "events", *deepcopy(at), earlier)
    known = earlier.histogram.state().labels
    assert with_it.histogram.state().labels is known, "nothing was taken over, so this tests nothing"
    expected = parts(one.process(events[after:]))
    assert parts(without.process(events[after:])) == expected
    assert parts(with_it.process(events[after:])) == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize("other", ["log", "epoch", "key"])
def test_nothing_is_taken_over_of_another_one(other: str) -> None:
    of = epoch("binary")
    one = Pipeline(of, KEY, "events")
    one.process(records(1)[:40])
    strange = Pipeline(
        epoch("binary") if other == "epoch" else of, KEY[::-1] if other == "key" else KEY, "events"
    )
    strange.process(records(2 if other == "log" else 1)[:40])
    again = Pipeline(of, KEY, "events", *saved(one), strange)
    assert again.histogram.state().labels is not strange.histogram.state().labels
    rest = records(1)[40:]
    assert parts(again.process(rest)) == parts(one.process(rest))
