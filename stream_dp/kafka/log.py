"""Kafka topics seen from outside the hot loop, with kafka-python: making them, checking them, reading ranges.

The events topic is part of the state: what a worker has applied must stay there to be read again.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)

from stream_dp.config.connections import Kafka
from stream_dp.config.times import milliseconds
from stream_dp.errors import Refused
from stream_dp.events.record import Record
from stream_dp.kafka.clients import admin_client, borrowed, consumer_client
from stream_dp.kafka.ends import ends_of, ends_of_all
from stream_dp.kafka.rights import NotPermitted, Right, naming
from stream_dp.privacy.vector import Vector, at

_POLL_MILLISECONDS = 500
_RECORDS_AT_ONCE = 500
_GIVE_UP_SECONDS, _STALLED_SECONDS = 30.0, 5.0
_POSITION_MILLISECONDS = 5_000
_CREATE_SECONDS, _LOOK_AGAIN_SECONDS = 30.0, 0.05
_NOT_THERE = tuple(
    error.errno for error in (UnknownTopicOrPartitionError, TopicAuthorizationFailedError, InvalidTopicError)
)


FOR_EVER = -1
"""As a number of days."""

LOG = {"cleanup.policy": "delete"}
"""How a topic is made whose every record counts."""


class LogRefused(Refused):
    """A topic cannot serve as the log of a stream; the message says what to change."""


class NoLeader(KafkaError):
    """No broker that is up leads a partition, which goes on when one does; the message names it."""


class _Stalled(Exception):
    """A client reads nothing where there are records.

    One of kafka-python 3.0.12 sometimes never asks who leads a topic that it has just been given, and waits for ever.
    A new one finds it at once.
    """


@dataclass(frozen=True)
class Offsets:
    """The records a partition holds: from `first` to before `end`."""

    first: int
    end: int

    def __contains__(self, offset: int) -> bool:
        return self.first <= offset < self.end


def create_topics(
    kafka: Kafka,
    *topics: str,
    partitions: int = 1,
    retention_days: int = FOR_EVER,
    configs: Mapping[str, str] = LOG,
) -> None:
    """Create those of `topics` that do not exist, with so many partitions each.

    Their records are kept for so many days, or forever, unless `configs` say otherwise.

    Raises KafkaTimeoutError if the broker takes the requests and does not list the topics in 30 s.
    """
    options = {
        "num_partitions": partitions,
        "replication_factor": -1,
        "configs": {**_retention(retention_days), **configs},
    }
    with borrowed(admin_client, kafka) as admin:
        deadline = time.monotonic() + _CREATE_SECONDS
        while lacking := set(topics) - _listed(admin, topics):
            if time.monotonic() > deadline:
                names = ", ".join(sorted(lacking))
                raise KafkaTimeoutError(
                    f"{names} cannot be created: Kafka does not list what it was asked for; give this user the "
                    f"right to create and describe topics, or create them with {partitions_text(partitions)} each"
                )
            try:
                for topic in sorted(lacking):  # one at a time, so that a refusal is about this one
                    with naming("CREATE", topic):
                        admin.create_topics({topic: options}, wait_for_metadata=True)
            except TopicAlreadyExistsError:  # somebody else makes them too: look again for what is left
                time.sleep(_LOOK_AGAIN_SECONDS)


def _retention(days: int) -> dict[str, str]:
    """The settings of a topic that keeps its records for so many days."""
    return {"retention.ms": str(days if days == FOR_EVER else days * 86_400_000), "retention.bytes": "-1"}


def read_only_consumer(kafka: Kafka, **settings: Any) -> KafkaConsumer:
    """A consumer without a group, of committed records, that commits nothing and makes no topics.

    `settings` are kafka-python's; what is no longer kept is passed over unless they say otherwise.
    Raises KafkaError if no broker answers in time.
    """
    consumer = consumer_client(
        kafka,
        **{"auto_offset_reset": "earliest"} | settings,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    # kafka-python 3.0.12 accepts this one and does not pass it on: every reader would wait a tenth of a second for the
    # topic's metadata.
    consumer._manager.cluster.config["retry_backoff_ms"] = consumer.config["retry_backoff_ms"]
    return consumer


def partitions_text(number: int) -> str:
    """A number of partitions in words."""
    return "one partition" if number == 1 else f"{number} partitions"


@dataclass(frozen=True)
class Described:
    """A topic as its broker tells it; `settings` are those that were asked for and that this user may see."""

    partitions: int
    settings: dict[str, str]


CHECKED = "cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes"
"""The settings that `check_topic` looks at."""


def describe(kafka: Kafka, topic: str, *settings: str) -> Described | None:
    """The topic and some of its settings; None if there is no such topic.

    Raises `NotPermitted` where this user may not see it, or its settings: nobody could tell whether it forgets.
    """
    return describe_all(kafka, [topic], *settings).get(topic)


def describe_all(kafka: Kafka, topics: Sequence[str], *settings: str) -> dict[str, Described]:
    """See `describe`: each of these topics that there is, by name, in two requests for all of them."""
    with borrowed(admin_client, kafka) as admin:
        told = {
            each["name"]: each
            for each in admin.describe_topics(list(topics))
            if each["error_code"] != UnknownTopicOrPartitionError.errno
        }
        for topic, each in told.items():
            if each["error_code"] == TopicAuthorizationFailedError.errno:
                raise NotPermitted(Right(topic, "DESCRIBE"))
            rights = each["authorized_operations"]
            if settings and rights and "DESCRIBE_CONFIGS" not in rights:
                raise NotPermitted(Right(topic, "DESCRIBE_CONFIGS"))
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(settings)) for topic in told]
        found = admin.describe_configs(asked, config_filter="all")["topic"] if settings and told else {}
    return {
        topic: Described(
            len(each["partitions"]),
            {name: str(value["value"]) for name, value in found.get(topic, {}).items() if name in settings},
        )
        for topic, each in told.items()
    }


def check_topic(
    kafka: Kafka,
    topic: str,
    largest_batch: int = 0,
    retention_days: int | None = None,
    many_partitions: bool = False,
    found: Described | None = None,
) -> list[str]:
    """Raise `LogRefused` unless `topic` can be a log and takes batches of `largest_batch` bytes.

    It has one partition, unless it may have `many_partitions`.  `found`: how it was described just now, with what is
    `CHECKED`; None asks for that.

    Returns warnings about what it may lose; with `retention_days`, about any other retention than that.
    """
    found = found or describe(kafka, topic, *CHECKED)
    if found is None:
        raise missing(topic, many_partitions)
    if found.partitions > 1 and not many_partitions:
        raise LogRefused(
            f"the topic {topic!r} has {partitions_text(found.partitions)}, so its records have no single order: use a "
            "topic with one partition"
        )
    values = found.settings
    if values.get("cleanup.policy", "delete") != "delete":
        raise LogRefused(
            f"the topic {topic!r} has cleanup.policy={values['cleanup.policy']}, which removes records that were "
            "counted: set it to delete"
        )
    if int(values.get("max.message.bytes", largest_batch)) < largest_batch:
        raise LogRefused(
            f"the topic {topic!r} has max.message.bytes={values['max.message.bytes']}: "
            f"set it to at least {largest_batch}"
        )
    if retention_days is not None:
        wanted = _retention(retention_days)
        differing = [
            f"{name}={values[name]}" for name in wanted if values.get(name, wanted[name]) != wanted[name]
        ]
        if not differing:
            return []
        told = ",".join(f"{name}={value}" for name, value in wanted.items())
        return [
            f"the topic {topic!r} has {', '.join(differing)}, and the setting releases_retention_days is "
            f"{retention_days}: change the setting, or run kafka-configs.sh --bootstrap-server {kafka} --alter "
            f"--entity-type topics --entity-name {topic} --add-config {told}"
        ]
    limited = [f"{name}={values[name]}" for name in CHECKED[1:3] if values.get(name, "-1") != "-1"]
    if limited:
        return [
            f"the topic {topic!r} forgets old records ({', '.join(limited)}): once it does, lost state cannot be "
            "rebuilt from it"
        ]
    return []


def missing(topic: str, many_partitions: bool = False) -> LogRefused:
    """What to say where there is no such topic; see `check_topic`."""
    having = "" if many_partitions else " with one partition"
    return LogRefused(f"the topic {topic!r} does not exist: create it{having}")


def topics(kafka: Kafka) -> set[str]:
    """The names of all topics, however many the broker has; see `existing`."""
    with borrowed(admin_client, kafka) as admin:
        return set(admin.list_topics())


def existing(kafka: Kafka, *topics: str) -> set[str]:
    """Which of these topics exist, as far as this user may see them."""
    with borrowed(admin_client, kafka) as admin:
        return _listed(admin, topics)


def _listed(admin: KafkaAdminClient, topics: Collection[str]) -> set[str]:
    told = admin.describe_topics(list(topics))
    return {each["name"] for each in told if each["error_code"] not in _NOT_THERE}


def partitions_of(kafka: Kafka, topic: str) -> int:
    """How many partitions the topic has."""
    with borrowed(admin_client, kafka) as admin:
        return len(admin.describe_topics([topic])[0]["partitions"])


def identity(kafka: Kafka, topic: str) -> str:
    """What the broker knows the topic by: something else once it is deleted and re-created.

    Empty if the broker is too old to have such a thing.
    """
    with borrowed(admin_client, kafka) as admin:
        return str(admin.describe_topics([topic])[0].get("topic_id") or "")


def replicas_of(kafka: Kafka, topic: str) -> int:
    """How many brokers keep each record of the topic."""
    with borrowed(admin_client, kafka) as admin:
        return len(admin.describe_topics([topic])[0]["partitions"][0]["replica_nodes"])


def offsets(kafka: Kafka, topic: str, partition: int = 0) -> Offsets:
    """The range of offsets that a partition of `topic` holds now.  Raises `NoLeader`, or another KafkaError."""
    with _led(f"partition {partition} of the topic {topic!r}"), borrowed(admin_client, kafka) as admin:
        return Offsets(*ends_of(admin, topic, partition))


@contextmanager
def _led(what: str) -> Iterator[None]:
    """Raise `NoLeader` where kafka-python looks for a leader and finds the number -1, or nobody who will be it."""
    try:
        yield
    except (UnknownBrokerIdError, NotLeaderForPartitionError, LeaderNotAvailableError):
        raise NoLeader(
            f"{what} has no leader: the broker that has it is down, or comes back just now"
        ) from None


def offsets_of_all(kafka: Kafka, topic: str) -> list[Offsets]:
    """The range of offsets that each partition of `topic` holds now, in the order of their numbers."""
    with _led(f"a partition of the topic {topic!r}"), borrowed(admin_client, kafka) as admin:
        return [Offsets(*each) for each in ends_of_all(admin, topic)]


def within(wanted: Vector, held: Sequence[Offsets]) -> Vector:
    """`wanted` for each partition as far as it holds that; one that is not named is wanted from its beginning."""
    return tuple(
        max(min(at(wanted, number), offsets.end), offsets.first) for number, offsets in enumerate(held)
    )


def offset_at(kafka: Kafka, topic: str, moment: datetime, partition: int = 0) -> int | None:
    """The first offset of a partition whose record is not from before `moment`; None if none is."""
    place = TopicPartition(topic, partition)
    with borrowed(_range_reader, kafka) as consumer:
        # kafka-python refuses times before 1970, and no record is from before
        found = consumer.offsets_for_times({place: max(0, milliseconds(moment))})[place]
    return None if found is None else int(found.offset)


def read(kafka: Kafka, topic: str, start: int, end: int, partition: int = 0) -> Iterator[Record]:
    """The records of a partition of `topic` with offsets from `start` to before `end`, which must exist already.

    Raises KafkaError, a time-out included: a broker that goes away does not hold the reader forever.
    """
    for _, batch in read_batches(kafka, topic, start, end, partition):
        for found in batch:
            yield Record.of(found)


def read_batches(
    kafka: Kafka, topic: str, start: int, end: int, partition: int = 0
) -> Iterator[tuple[int, list[Any]]]:
    """What `read` reads, as kafka-python has it and as it comes, each time with the offset up to which all is read."""
    if start >= end:
        return
    place = TopicPartition(topic, partition)
    reached, since = start, time.monotonic()
    while reached < end:
        try:
            with naming("READ", topic), borrowed(_range_reader, kafka) as consumer:
                try:
                    for now, found in _batches(consumer, place, reached, end):
                        reached = now
                        yield now, found
                        since = time.monotonic()  # whoever reads may take as long as they like
                finally:
                    consumer.unsubscribe()
        except _Stalled:
            if time.monotonic() - since > _GIVE_UP_SECONDS:
                raise KafkaTimeoutError(f"no records of {topic!r} from offset {reached} on") from None


def position(consumer: KafkaConsumer, place: TopicPartition) -> int:
    """Where `consumer` reads on.  Without a limit of time it may wait for ever for an answer of the broker."""
    return int(consumer.position(place, timeout_ms=_POSITION_MILLISECONDS))


def _batches(
    consumer: KafkaConsumer, place: TopicPartition, start: int, end: int
) -> Iterator[tuple[int, list[Any]]]:
    """See `read_batches`.  Raises `_Stalled` if nothing comes for some seconds, so that a new client can go on."""
    consumer.assign([place])
    consumer.seek(place, start)
    reached, since = start, time.monotonic()
    while reached < end:
        found = consumer.poll(_POLL_MILLISECONDS).get(place, [])
        if (now := position(consumer, place)) > reached:
            reached = now
            yield min(reached, end), [record for record in found if record.offset < end]
            since = time.monotonic()
        elif time.monotonic() - since > _STALLED_SECONDS:
            raise _Stalled


def _range_reader(kafka: Kafka) -> KafkaConsumer:
    """A reader of what is there already.

    Its first look-up always waits once, for as long as retry_backoff_ms, for the topic's metadata.  The broker answers
    one request after the other, so that a look behind the end of a topic would hold the next reader up.
    """
    return read_only_consumer(
        kafka,
        auto_offset_reset="none",
        retry_backoff_ms=10,
        fetch_max_wait_ms=10,
        max_poll_records=_RECORDS_AT_ONCE,
    )
