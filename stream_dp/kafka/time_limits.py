"""Whether a topic would refuse what a worker writes because of its timestamp.

A record of releases, epochs or charges has the time of the log, which is that of the event that closed a round.  It may
be written much later, after an outage or where old events are counted, and Kafka can be told to refuse what is old, or
what is from the future.
"""

from stream_dp.config.connections import Kafka
from stream_dp.config.settings import Settings
from stream_dp.events.rounds import TICKS
from stream_dp.kafka import log
from stream_dp.kafka.rights import NotPermitted

_TYPE = "message.timestamp.type"
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_BOTH = "message.timestamp.difference.max.ms"  # of Kafka up to 3.x
_UNLIMITED = 2**63 - 1


LIMITS = _TYPE, _BEFORE, _AFTER, _BOTH
"""The settings that `time_warnings` looks at."""


def time_warnings(settings: Settings, topic: str, found: log.Described | None = None) -> list[str]:
    """What to change so that `topic`, of this stream, takes every record whatever its time.  Raises KafkaError.

    `found`: how the topic was described just now, with its `LIMITS`; None asks for that.
    """
    kafka = settings.kafka_address
    limits = _limits(kafka, topic, found)
    if limits is None:
        return []
    warnings = [_too_old(kafka, topic, name, limits[name]) for name in (_BEFORE, _BOTH) if name in limits]
    if _AFTER in limits and limits[_AFTER] < _furthest_event(settings):
        warnings.append(_too_new(kafka, topic, limits[_AFTER], settings.events))
    return warnings


def _furthest_event(settings: Settings) -> int:
    """How far in the future, in milliseconds, the time of a round may lie."""
    if settings.rounds == TICKS:
        return 0  # it is that of a clock, and not of an event
    try:
        limits = _limits(settings.kafka_address, settings.events)
    except NotPermitted:
        return 0  # this user reads releases only: the operator's `stream-dp check` tells it
    if limits is None:
        return 0
    return min(limits.get(name, _UNLIMITED) for name in (_AFTER, _BOTH))


def _limits(kafka: Kafka, topic: str, found: log.Described | None = None) -> dict[str, int] | None:
    """The limits that a topic has, in milliseconds by name.

    None where the broker itself gives the times, and where there is no such topic yet.
    """
    described = found or log.describe(kafka, topic, *LIMITS)
    if described is None or described.settings.get(_TYPE) == "LogAppendTime":
        return None
    told = described.settings
    return {name: int(told[name]) for name in LIMITS[1:] if int(told.get(name, _UNLIMITED)) < _UNLIMITED}


def _too_old(kafka: Kafka, topic: str, name: str, limit: int) -> str:
    return (
        f"the topic {topic!r} has {name}={limit} and refuses older records, and what is written there is as old as its "
        f"event: what is written after an outage, or again, could be refused; {_command(kafka, topic, name)}"
    )


def _too_new(kafka: Kafka, topic: str, limit: int, events: str) -> str:
    return (
        f"the topic {topic!r} has {_AFTER}={limit} and refuses records from further in the future, and the topic "
        f"{events!r} takes them: one such event would stop the stream; {_command(kafka, topic, _AFTER)}"
    )


def _command(kafka: Kafka, topic: str, name: str) -> str:
    return (
        f"run kafka-configs.sh --bootstrap-server {kafka} --alter --entity-type topics --entity-name {topic} "
        f"--add-config {name}={_UNLIMITED}"
    )
