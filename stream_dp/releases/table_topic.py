"""The topic `<stream>.table`: making it, checking it, and reading what it shows now."""

import logging
import time

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from stream_dp.config.connections import Kafka
from stream_dp.kafka import log
from stream_dp.kafka.log import LogRefused, position
from stream_dp.kafka.rights import naming, require_seen
from stream_dp.releases.table_row import Row, decode_row

logger = logging.getLogger(__name__)

_POLL_MILLISECONDS = 500
_ANSWER_MILLISECONDS = 30_000
_GIVE_UP_SECONDS = 30.0
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "3600000",
    "segment.bytes": "67108864",
}
"""How the topic is made: whoever begins to read it finds an hour of updates beside the rows, and not a week of them."""


def prepare_table(kafka: Kafka, topic: str, create_topics: bool) -> None:
    """Make the table's topic where it may be made.  Raises `LogRefused` unless it can hold a table."""
    if create_topics:
        log.create_topics(kafka, topic, configs=COMPACTED)
    check_table_topic(kafka, topic)


def check_table_topic(kafka: Kafka, topic: str) -> None:
    """Raise `LogRefused` unless the topic keeps the last record of every key, in one order."""
    found = log.describe(kafka, topic, "cleanup.policy")
    if found is None:
        raise LogRefused(
            f"the topic {topic!r} does not exist: create it with one partition and cleanup.policy=compact"
        )
    if found.partitions != 1:
        raise LogRefused(
            f"the topic {topic!r} has {log.partitions_text(found.partitions)}, and a table is written to one: delete "
            "it, and it is created again from the releases"
        )
    policy = found.settings.get("cleanup.policy", "compact")
    if policy != "compact":
        raise LogRefused(
            f"the topic {topic!r} has cleanup.policy={policy}, which removes rows that are still shown: run "
            f"kafka-configs.sh --bootstrap-server {kafka} --alter --entity-type topics --entity-name {topic} "
            "--add-config cleanup.policy=compact"
        )


class Table:
    """What a table's topic showed when it was last caught up with.  It is a context; close it at the end."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        """Reads it all.  Raises `LogRefused` where there is no such topic, or KafkaError."""
        self._place = TopicPartition(topic, 0)
        self.held: dict[bytes, bytes] = {}
        self._consumer = log.read_only_consumer(kafka)
        try:
            if not self._consumer.partitions_for_topic(topic):
                require_seen(kafka, topic)
                raise LogRefused(
                    f"Kafka has no topic {topic!r}: `stream-dp table` writes it, start that first"
                )
            self._consumer.assign([self._place])
            self._consumer.seek_to_beginning(self._place)
            self.catch_up()
        except BaseException:
            self.close()
            raise

    def catch_up(self) -> int:
        """Read to the present end of the topic; returns how many records came.  Raises KafkaError."""
        end = self._consumer.end_offsets([self._place], _ANSWER_MILLISECONDS)[self._place]
        taken, heard = 0, time.monotonic()
        while (before := position(self._consumer, self._place)) < end:
            with naming("READ", self._place.topic):
                records = self._consumer.poll(_POLL_MILLISECONDS).get(self._place, [])
            for record in records:
                self._take(record.key, record.value)
            taken += len(records)
            if position(self._consumer, self._place) > before:
                heard = time.monotonic()
            elif time.monotonic() - heard > _GIVE_UP_SECONDS:
                raise KafkaTimeoutError(f"no records of {self._place.topic!r} from offset {before} on")
        return taken

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        """A record without a key belongs to no row; the brokers that compact topics refuse it."""
        if key is None:
            logger.warning(
                "the topic %r holds a record without a key, and it is passed over", self._place.topic
            )
        elif value is None:
            self.held.pop(key, None)
        else:
            self.held[key] = value

    def rows(self) -> dict[str, Row]:
        """The rows by their labels; records that are no rows are left out."""
        found = (decode_row(key, value) for key, value in self.held.items())
        return {row.label: row for row in found if row is not None}

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def __enter__(self) -> "Table":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
