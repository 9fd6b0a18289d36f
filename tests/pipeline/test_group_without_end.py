"""Partitions that are counted apart, in streams without end: windows, and days of users.  See test_group.py."""

import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from stream_dp.config.days import days_of
from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.config.times import milliseconds
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import beginning
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases.release import decode_release
from tests.pipeline.pieces import KEY, TOPIC
from tests.pipeline.test_group import compare_at_any_pace, log_of

PARTITIONS, HOUR = 4, 3_600_000
WINDOW: dict[str, Any] = {"mechanism": "window", "window": 5, "epsilon": 20.0, "delta": 0.2}
ZONE = "Europe/Berlin"
FIRST = days_of(ZONE).at(milliseconds(datetime(2026, 3, 28, 12, tzinfo=UTC)))
"""The next day has 23 hours."""


def epoch(partitions: int = PARTITIONS, **changed: Any) -> Epoch:
    own: dict[str, Any] = {
        "stream": "s",
        "epsilon": 30.0,
        "delta": 1e-2,
        "rounds": "ticks",
        "mechanism": "binary",
    }
    further = (0,) * (partitions - 1)
    first_day = changed.pop("first_day", 0)
    opened = Epoch.open(Settings(**{**own, **changed}), 1, 0, further_offsets=further, first_day=first_day)
    return replace(opened, nonce=bytes(16), after_barrier=beginning("c", 0, 0, *further))


def epoch_of_days(**changed: Any) -> Epoch:
    unit = {"unit": "user-day", "items_per_user": 2, "time_zone": ZONE, "horizon": 63}
    return epoch(mapping=EventsSection(partitioner="murmur2"), **{**unit, **changed})


def dues(seed: int) -> list[int]:
    """Three days, some of whose midnights no barrier tells; the rest of the day before them is not counted."""
    rng = random.Random(seed)
    begins = [days_of(ZONE).begins(FIRST + day) for day in range(-1, 4)]
    found = {each + hour * HOUR for each in begins[:-1] for hour in rng.sample(range(1, 23), 5)}
    return sorted(found | {each for each in begins if rng.random() < 0.6})


def refilled(entries: list[LogEntry], users: int, seed: int) -> list[LogEntry]:
    """The same log in which a few users bring the same few items again and again."""
    rng = random.Random(seed)

    def value() -> bytes:
        items = rng.sample(["tea", "milk", "bread", "salt"], 2)
        return b'{"items": ["%s", "%s"], "user": "u%d"}' % (
            items[0].encode(),
            items[1].encode(),
            rng.randrange(users),
        )

    return [each._replace(value=value()) if isinstance(each, Record) else each for each in entries]


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("added", [0, 1])
def test_windows_of_a_group_are_those_of_one_worker(members: int, added: int) -> None:
    for seed in range(3):
        of = epoch(PARTITIONS - added, **WINDOW)
        entries = log_of(of, seed, added, dues=range(1_000, 24_000, 1_000))
        expected = compare_at_any_pace(of, entries, PARTITIONS, members, seed)
        assert any(decode_release(each.value).labels for each in expected)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("mechanism", [{}, WINDOW], ids=["running", "window"])
@pytest.mark.parametrize("release", ["every-round", "every-14400000ms"])
def test_days_of_a_group_are_those_of_one_worker(
    members: int, mechanism: dict[str, Any], release: str
) -> None:
    left_out = 0
    for seed in range(6):
        of = epoch_of_days(first_day=FIRST, release=release, **mechanism)
        entries = refilled(log_of(of, seed, users=9, dues=dues(seed)), 9, seed)
        compare_at_any_pace(of, entries, PARTITIONS, members, seed)
        whole = Pipeline(of, KEY, TOPIC)
        whole.process(entries)
        assert whole.position.barrier is not None
        before_first = sum(due <= days_of(ZONE).begins(FIRST) for due in dues(seed))
        left_out += whole.position.barrier.number - whole.round > before_first
    assert left_out > 0, "some midnights fell into a round"


@pytest.mark.parametrize("release", ["every-round", "every-14400000ms"])
def test_days_are_released_the_same_however_the_log_is_cut(release: str) -> None:
    """Also where a batch ends with a round that is not counted, and what is saved then is taken up."""
    for seed in range(6):
        of = epoch_of_days(release=release)
        entries = refilled(log_of(of, seed, users=9, dues=dues(seed)), 9, seed)
        expected = Pipeline(of, KEY, TOPIC).process(entries).releases
        for cut in (1, 7):
            pipeline, found = Pipeline(of, KEY, TOPIC), []
            for start in range(0, len(entries), cut):
                found += pipeline.process(entries[start : start + cut]).releases
                place = pipeline.position, pipeline.histogram.state(), bytes(pipeline.intake.pairs)
                if pipeline.intake.offsets == pipeline.position.offsets:
                    pipeline = Pipeline(of, KEY, TOPIC, *place)
            assert found == expected
