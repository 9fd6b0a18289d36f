"""Whether Kafka answers, and whether each topic can serve."""

from collections.abc import Iterator
from contextlib import closing

from kafka.errors import KafkaError

from stream_dp.barriers.topic import check_barriers_topic, needs_barriers
from stream_dp.cli.checklist.finding import Finding, not_passed
from stream_dp.cli.checklist.rights import partitions_or_one
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import require_kafka
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.epochs.journal import check_journal
from stream_dp.epochs.registry import ledger_as_far_as_known
from stream_dp.kafka import log
from stream_dp.kafka.rights import rights_on
from stream_dp.kafka.time_limits import time_warnings
from stream_dp.planning.release_sizes import growth_of
from stream_dp.releases.lookup import newest_release
from stream_dp.releases.silence import silence
from stream_dp.releases.table_topic import check_table_topic
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.sinks.dead_letters import why_unwritable
from stream_dp.sinks.framing import LARGEST_BATCH


def topics(settings: Settings) -> Iterator[Finding]:
    """Whether Kafka answers, and whether each topic is there or may be made, and can be a log."""
    try:
        require_kafka(settings.kafka)
        existing = log.topics(settings.kafka_address)
    except (Mistake, KafkaError, SettingsError) as error:
        yield not_passed("kafka", error)
        return
    yield Finding("kafka", "ok", f"answers at {settings.kafka}")
    ledger = ledger_as_far_as_known(settings.kafka_address, settings.data_source)
    needed = [settings.events, settings.releases, settings.dead_letters, settings.epochs, ledger]
    if needs_barriers(settings, partitions_or_one(settings)):
        needed.append(settings.barriers)
    if settings.table in existing:
        needed.append(settings.table)
    for topic in dict.fromkeys(needed):
        if topic in existing:
            yield _topic(settings, topic, topic in (settings.epochs, ledger))
            if topic == settings.releases:
                yield from _growth(settings)
                yield from _labels(settings)
        elif rights_on(settings.kafka_address, topic) == set():
            yield Finding("topic", "failed", f"{topic}: this user may not see whether there is such a topic")
        elif topic == settings.events and not settings.owns_events:
            yield Finding(
                "topic",
                "failed",
                f"{topic} does not exist, and a worker makes no topic of others: correct topic in [events]",
            )
        elif settings.create_topics:
            yield Finding("topic", "ok", f"{topic} does not exist yet: the worker will make it")
        else:
            yield Finding("topic", "failed", f"{topic} does not exist: create it with 1 partition")


def _topic(settings: Settings, topic: str, is_journal: bool) -> Finding:
    """Whether a topic that is there can serve."""
    warnings: list[str] = []
    partitions = 1
    try:
        if topic == settings.dead_letters:
            return _dead_letters(settings)
        if is_journal:
            check_journal(settings.kafka_address, topic)
            warnings = time_warnings(settings, topic)
        elif topic == settings.barriers:
            warnings = check_barriers_topic(settings)
        elif topic == settings.table:
            check_table_topic(settings.kafka_address, topic)
            if warnings := time_warnings(settings, topic):
                return Finding("topic", "warning", "; ".join(warnings))
            return Finding("topic", "ok", f"{topic} has one partition and keeps the newest row of each label")
        else:
            largest_batch = LARGEST_BATCH if topic == settings.releases else 0
            days = settings.releases_retention_days if topic == settings.releases else None
            many = topic == settings.events
            warnings = log.check_topic(settings.kafka_address, topic, largest_batch, days, many)
            if many:
                partitions = log.partitions_of(settings.kafka_address, topic)
            if topic == settings.releases:
                warnings += time_warnings(settings, topic)
    except (log.LogRefused, KafkaError) as error:
        return not_passed("topic", error)
    if warnings:
        return Finding("topic", "warning", "; ".join(warnings))
    if topic == settings.releases and settings.releases_retention_days != log.FOR_EVER:
        kept = f"keeps releases for {settings.releases_retention_days} days"
    else:
        kept = "forgets nothing"
    return Finding("topic", "ok", f"{topic} has {log.partitions_text(partitions)} and {kept}")


def _growth(settings: Settings) -> Iterator[Finding]:
    """How many bytes a day the releases take, once there are some."""
    try:
        growth = growth_of(settings)
    except KafkaError as error:
        yield not_passed("size", error)
        return
    if growth is None:
        yield Finding(
            "size",
            "ok",
            f"{settings.releases} is too young to be measured; `stream-dp plan` says what to expect",
        )
    elif growth.is_much:
        advice = growth.advice(settings.compression)
        yield Finding("size", "warning", f"{settings.releases} grows by {growth}: {advice}")
    else:
        yield Finding("size", "ok", f"{settings.releases} grows by {growth}")


def _labels(settings: Settings) -> Iterator[Finding]:
    """Say so if a stream shows nothing after many rounds, which every reader of its releases can see."""
    try:
        with closing(ReleasesTopic(settings.kafka_address, settings.releases)) as topic:
            newest = newest_release(topic)
    except KafkaError as error:
        yield not_passed("labels", error)
        return
    if newest is not None and (told := silence(newest)):
        yield Finding("labels", "warning", f"{told}, or run `stream-dp check --sample 1000`")


def _dead_letters(settings: Settings) -> Finding:
    """Whether dead letters can be written.  Raises KafkaError."""
    reason = why_unwritable(settings)
    if reason is not None:
        return Finding("topic", "failed", f"dead letters cannot be written: {reason}")
    topic = settings.dead_letters
    return Finding("topic", "ok", f"{topic} can be written; it holds raw data: restrict who may read it")
