"""What the newest records of the events topic would be as events.  PRIVATE: it counts reasons, and shows no content."""

from collections import Counter
from dataclasses import dataclass

from kafka.errors import KafkaError

from stream_dp.cli.checklist.finding import Finding, not_passed
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import require_kafka, require_topic
from stream_dp.cli.registry import decoding
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.events.bounding import Bound, EventBound, UserBound
from stream_dp.events.event import BadRecord
from stream_dp.kafka import log
from stream_dp.operations.bad_minutes import kind_of
from stream_dp.planning.public_records import newest_records


@dataclass(frozen=True)
class Sample:
    """How many of `records` hold items, hold none because `where` leaves them out, and are no events, by reason."""

    records: int
    events: int
    filtered: int
    reasons: dict[str, int]


def sampled(settings: Settings, number: int) -> tuple[Sample | None, Finding]:
    """What the newest records are, and in a sentence; no sample where the topic cannot be read."""
    try:
        require_kafka(settings.kafka)
        require_topic(settings.kafka_address, settings.events)
        taken = take_sample(settings, number)
    except (Mistake, KafkaError, SettingsError) as error:
        return None, not_passed("sample", error)
    counts = [f"{taken.records:,} newest records of {settings.events}", f"{taken.events:,} are events"]
    if taken.filtered:
        counts.append(f"{taken.filtered:,} are left out by where")
    counts += [f"{count:,} are not events: {reason}" for reason, count in taken.reasons.items()]
    if taken.records and not taken.events:
        counts.append("correct format, items and where in [events], or nothing will ever be counted")
        return taken, Finding("sample", "failed", "; ".join(counts))
    return taken, Finding(
        "sample", "warning" if taken.reasons or not taken.records else "ok", "; ".join(counts)
    )


def take_sample(settings: Settings, number: int) -> Sample:
    """Decode the newest `number` records, of each partition as many.

    Raises KafkaError, `SettingsError`, or `Mistake` for a registry that cannot be asked.
    """
    reasons: Counter[str] = Counter()
    records = events = filtered = 0
    kafka, topic = settings.kafka_address, settings.events
    newest = newest_records(kafka, topic, log.partitions_of(kafka, topic), number)
    with decoding(settings.mapping) as decode:
        bound = _bound(settings)
        for record in newest:
            records += 1
            try:
                event = decode(record)
                bound.admit(event)
            except BadRecord as bad:
                reasons[kind_of(str(bad))] += 1
            else:
                events += bool(event.items)
                filtered += not event.items
    return Sample(records, events, filtered, dict(reasons.most_common()))


def _bound(settings: Settings) -> Bound:
    """One that remembers nothing beyond this sample."""
    if settings.unit == "user":
        return UserBound(settings.items_per_unit, bytes(32), bytes(16))
    return EventBound(settings.items_per_unit)
