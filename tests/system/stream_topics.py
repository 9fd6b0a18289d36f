"""The topics of a stream in the system tests: made, fed, written again and read."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from kafka import KafkaAdminClient
from kafka.consumer.fetcher import ConsumerRecord

from stream_dp.config.settings import Settings
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.release import decode_release
from tests.system.broker_clients import all_records, new_producer, producer_of
from tests.system.waiting import GIVE_UP_SECONDS, wait_until


@dataclass
class DeadLetterRecord:
    """One record of the dead-letter topic with its headers."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, str]


@dataclass
class StreamTopics:
    """The topics of one stream; `configured` are those that were written again with settings of their own."""

    settings: Settings
    configured: set[str] = field(default_factory=set, kw_only=True)

    def create_topics(self, partitions: int = 1) -> None:
        """What a worker does at its first start; here so that events can be fed before it."""
        own = self.settings
        log.create_topics(own.kafka, own.events, partitions=partitions)
        log.create_topics(own.kafka, own.releases, own.dead_letters)

    def add_partition(self) -> None:
        """Give the events topic one partition more."""
        topic = self.settings.events
        with KafkaAdminClient(bootstrap_servers=self.settings.kafka) as admin:
            wanted = len(admin.describe_topics([topic])[0]["partitions"]) + 1
            admin.create_partitions({topic: wanted})
            wait_until(
                lambda: len(admin.describe_topics([topic])[0]["partitions"]) == wanted,
                lambda: f"{topic} gets no partition",
            )
        new_producer(self.settings.kafka)  # the old one would hear of it only later

    def feed(self, values: Sequence[bytes | None], key: bytes | None = None, partition: int = 0) -> None:
        """Append events to a partition, and wait until the broker has them."""
        now = time.time_ns() // 1_000_000
        self.write(self.settings.events, [Record(0, now, key, value, partition) for value in values])

    def spread(self, values: Sequence[bytes | None], partitions: int) -> None:
        """Append events to so many partitions in turn."""
        now = time.time_ns() // 1_000_000
        records = [Record(0, now, None, value, number % partitions) for number, value in enumerate(values)]
        self.write(self.settings.events, records)

    def write(self, topic: str, records: Sequence[Record]) -> None:
        """Append records with their keys, values and timestamps to their partitions.

        This client can send what others cannot: a record without key and value.
        """
        producer, failed = producer_of(self.settings.kafka), []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                timestamp=record.timestamp,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=delivered,
            )
            producer.poll(0)
        assert (producer.flush(GIVE_UP_SECONDS), failed) == (0, [])

    def rewrite(self, topic: str, records: Sequence[Record], **configs: str) -> None:
        """Delete the topic and make it again with these records from offset 0 on; they are kept whatever their age."""
        # The old one would go on counting where the old topic ended, or make the topic itself when it looks for it.
        new_producer(self.settings.kafka)
        with KafkaAdminClient(bootstrap_servers=self.settings.kafka) as admin:
            admin.delete_topics([topic])
            wait_until(lambda: topic not in admin.list_topics(), lambda: f"{topic} is not deleted")
            kept = {"retention.ms": "-1", **configs}
            partitions = 1 + max((record.partition for record in records), default=0)
            options = {"num_partitions": partitions, "replication_factor": 1, "configs": kept}
            admin.create_topics({topic: options})
            admin.wait_for_topics([topic], int(1000 * GIVE_UP_SECONDS))
        self.configured = self.configured - {topic} | ({topic} if configs else set())
        self.write(topic, records)

    def events(self, partition: int = 0) -> list[Record]:
        """A partition of the events topic."""
        return self.records(self.settings.events, partition)

    def releases(self) -> list[Record]:
        """The releases topic."""
        return self.records(self.settings.releases)

    def barrier_records(self) -> list[tuple[int, bytes | None]]:
        """The barriers topic: all that anybody wrote there, with its offsets."""
        return [(record.offset, record.value) for record in self.records(self.settings.barriers)]

    def ends(self) -> list[int]:
        """Where each partition of the events topic ends."""
        return [held.end for held in log.offsets_of_all(self.settings.kafka, self.settings.events)]

    def last_round(self) -> int:
        """That of the record at the end of the releases topic; 0 where there is none."""
        held = all_records(self.settings.kafka, self.settings.releases, last_only=True)
        return max(map(_round, held), default=0)

    def dead_letters(self, at_least: int) -> list[DeadLetterRecord]:
        """The dead-letter topic with its headers, once it holds `at_least` records."""
        records: list[ConsumerRecord] = []

        def enough() -> bool:
            records[:] = all_records(self.settings.kafka, self.settings.dead_letters)
            return len(records) >= at_least

        wait_until(enough, lambda: f"{len(records)} dead letters instead of {at_least}")
        return [
            DeadLetterRecord(
                record.key, record.value, {name: value.decode() for name, value in record.headers}
            )
            for record in records
        ]

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """A partition of a topic."""
        return [Record.of(record) for record in all_records(self.settings.kafka, topic, partition=partition)]


def _round(record: ConsumerRecord) -> int:
    """The round of a release; 0 for a record that is none."""
    try:
        return decode_release(record.value or b"").round
    except (msgspec.DecodeError, UnicodeError):
        return 0
