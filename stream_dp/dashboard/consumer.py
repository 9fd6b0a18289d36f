"""The only way in which the dashboard connects to Kafka: a consumer that changes nothing there."""

from typing import Any

from kafka import KafkaConsumer

from stream_dp.connections import Kafka, kafka_options


def read_only_consumer(kafka: Kafka, seconds_to_connect: float, **settings: Any) -> KafkaConsumer:
    """A consumer without a group, of committed records.  Raises KafkaError if no broker answers in time."""
    consumer = KafkaConsumer(
        **kafka_options(kafka),
        bootstrap_timeout_ms=int(seconds_to_connect * 1000),
        enable_auto_commit=False,
        auto_offset_reset="earliest",  # what is no longer kept is passed over
        isolation_level="read_committed",
        **settings,
    )
    # kafka-python 3.0.12 accepts allow_auto_create_topics and does not pass it on: whoever merely asked about a
    # topic would make it.
    consumer._manager.cluster.config["allow_auto_create_topics"] = False
    return consumer
