"""Consumers of aiokafka, made in one place."""

from typing import Any

import aiokafka.consumer.fetcher
from aiokafka import AIOKafkaConsumer

from stream_dp.config.connections import Kafka, aiokafka_options
from stream_dp.kafka.record_batches import read_within_bounds
from stream_dp.kafka.topic_metadata import METADATA_MILLISECONDS, make_no_topics

read_within_bounds(aiokafka.consumer.fetcher)


def consumer(kafka: Kafka, **settings: Any) -> AIOKafkaConsumer:
    """A consumer of committed records that commits no offsets by itself; `settings` are those of aiokafka."""
    reader = AIOKafkaConsumer(
        **aiokafka_options(kafka),
        enable_auto_commit=False,
        isolation_level="read_committed",
        metadata_max_age_ms=METADATA_MILLISECONDS,
        **settings,
    )
    make_no_topics(reader._client)
    return reader
