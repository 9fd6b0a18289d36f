"""From what is public of a topic to the settings of a stream that reads it, and what they cost."""

import json
from math import ceil
from typing import Any

import msgspec

from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.planning.costs import costs_of
from stream_dp.planning.plan import Workload, plan
from stream_dp.planning.topic_survey import TopicSurvey

DAYS = 30
"""How long an epoch should last."""

_TICKS = (1.0, 10.0, 60.0, 600.0, 3_600.0)
_MOST_EVENTS = 2**20 - 1
_DAY_SECONDS = 86_400
_SHORTEST, _LONGEST = 2**10 - 1, 2**24 - 1


def horizon_for(rounds: int) -> int:
    """The cheap horizon, 2^k - 1, that holds so many rounds.

    >>> horizon_for(2_592_000)
    4194303
    """
    return min(_LONGEST, max(_SHORTEST, 2 ** rounds.bit_length() - 1))


def rounds_for(topic: TopicSurvey, tick_seconds: float | None) -> dict[str, Any]:
    """When rounds end, and how many there may be.

    Each event is a round where one partition brings few of them; else they end by a clock, as often as about one event
    comes in, or every `tick_seconds`.
    """
    if topic.partitions == 1 and tick_seconds is None and topic.a_day * DAYS <= _MOST_EVENTS:
        return {"rounds": "per-event", "horizon": horizon_for(max(2 * topic.a_day * DAYS, 2**16 - 1))}
    busy = (each for each in _TICKS if topic.a_day * each >= _DAY_SECONDS)
    seconds = tick_seconds or next(busy, _TICKS[-1] if topic.a_day else _TICKS[0])
    horizon = horizon_for(int(DAYS * _DAY_SECONDS / seconds))
    return {"rounds": "ticks", "tick_seconds": seconds, "horizon": horizon}


def host_of(topic: TopicSurvey, settings: Settings) -> str:
    """What it takes to count such a topic, as far as its events decide: of labels `stream-dp plan` knows."""
    a_second = max(1, topic.a_day) / _DAY_SECONDS
    a_round = max(1.0, a_second * settings.tick_seconds) if settings.rounds == "ticks" else 1.0
    work = Workload(1, 1, a_second, ceil(a_round), settings.items_per_unit, settings.horizon, at_tests=True)
    found = plan(work, costs_of("blt", settings.compression))
    if found.spark is None:
        share = found.needs["reading"] + found.needs["counting"]
        return f"one worker, busy for {max(share, 0.01):.0%} of the time"
    if settings.unit == "event" and settings.finds_at_tests:
        return f"{found.answer}: stream-dp plan says more"
    return 'more than one worker: what Spark takes is known for unit = "event" with tests for labels only'


def as_toml(settings: Settings, names: list[str]) -> str:
    """Those settings that are named, and the section `[events]`, as the text of a settings file."""
    told = msgspec.to_builtins(settings)
    lines = [f"{name} = {_value(told[name])}" for name in names]
    lines += ["", "[events]"]
    lines += [f"{name} = {_value(each)}" for name, each in section_of(settings).items()]
    return "\n".join(lines) + "\n"


def section_of(settings: Settings) -> dict[str, Any]:
    """What `[events]` names: the topic, its format, and whatever is not as it would be anyway."""
    default = msgspec.to_builtins(EventsSection())
    told = msgspec.to_builtins(settings.mapping or EventsSection())
    return {
        name: each
        for name, each in told.items()
        if each is not None and (name == "format" or each != default[name])
    }


def _value(content: Any) -> str:
    """A value as TOML writes it: texts are escaped as in JSON."""
    return json.dumps(content, ensure_ascii=False) if isinstance(content, str | bool) else repr(content)
