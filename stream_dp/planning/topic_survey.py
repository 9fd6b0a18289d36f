"""What Kafka tells of a topic to everybody who may describe it.  No record is read."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kafka.errors import KafkaError

from stream_dp.config.connections import Kafka
from stream_dp.errors import Refused
from stream_dp.kafka import log
from stream_dp.kafka.rights import rights_on

_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True)
class TopicSurvey:
    """A topic as it stands.  None: the broker does not tell it to this user.

    `records` are those that it holds now, `a_day` how many come a day at the rate of the last hour or the last day,
    whichever is the higher.  `retention_days` is -1 where records are kept forever.
    """

    topic: str
    partitions: int
    records: int
    a_day: int
    retention_days: float | None
    rights: list[str] | None


def survey_topic(kafka: Kafka, topic: str) -> TopicSurvey:
    """Look at a topic.  Raises `Refused`, or KafkaError."""
    known = log.topics(kafka)
    if topic not in known:
        near = sorted(each for each in known if topic.lower() in each.lower())[:3]
        hint = f"; there is {', '.join(near)}" if near else ""
        raise Refused(f"Kafka has no topic {topic!r}, or this user may not describe it (DESCRIBE){hint}")
    settings = _settings(kafka, topic)
    if "compact" in settings.get("cleanup.policy", ""):
        raise Refused(
            f"the topic {topic!r} has cleanup.policy={settings['cleanup.policy']}: a record may vanish between two "
            "readings, so it cannot be the log of a stream; read the topic that it was made from"
        )
    partitions = log.partitions_of(kafka, topic)
    held = [log.offsets(kafka, topic, each) for each in range(partitions)]
    now = datetime.now(UTC)
    day, hour = (
        sum(_since(kafka, topic, now - span, each, held[each].end) for each in range(partitions))
        for span in (_DAY, _HOUR)
    )
    retention = settings.get("retention.ms")
    rights = rights_on(kafka, topic)
    return TopicSurvey(
        topic,
        partitions,
        sum(each.end - each.first for each in held),
        max(day, 24 * hour),
        None if retention is None else max(-1.0, int(retention) / _DAY.total_seconds() / 1_000),
        None if rights is None else sorted(rights),
    )


def _settings(kafka: Kafka, topic: str) -> dict[str, str]:
    """Those that this user may see."""
    try:
        found = log.describe(kafka, topic, "cleanup.policy", "retention.ms")
    except KafkaError:
        return {}
    return found.settings if found is not None else {}


def _since(kafka: Kafka, topic: str, moment: datetime, partition: int, end: int) -> int:
    """How many records of a partition are not from before a moment."""
    first = log.offset_at(kafka, topic, moment, partition)
    return 0 if first is None else end - first
