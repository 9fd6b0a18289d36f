"""The clients of kafka-python, made in one place.

While it is made, a client of kafka-python 3.0.12 asks the broker who it is, and where that fails it keeps its
connections, and all but the producer their thread too.  Whoever waits an outage out by trying again would have no file
left to open after an hour.  Here a client that could not be made leaves nothing behind.

And none of them makes a topic by asking for it.
"""

import gc
from collections.abc import Callable
from typing import Any, TypeVar

import kafka.consumer.fetcher
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.net.compat import KafkaNetClient

from stream_dp.connections import Kafka, kafka_options
from stream_dp.record_batches import read_within_bounds

BOOTSTRAP_MILLISECONDS = 5_000  # the default says nothing of a missing broker for half a minute

_Client = TypeVar("_Client")

read_within_bounds(kafka.consumer.fetcher)


def admin_client(kafka: Kafka, **settings: Any) -> KafkaAdminClient:
    """An admin client; `settings` as below.  Raises KafkaError if no broker answers in time."""
    return _made(KafkaAdminClient, kafka, settings)


def consumer_client(kafka: Kafka, **settings: Any) -> KafkaConsumer:
    """A consumer; `settings` are those of kafka-python.  Raises KafkaError if no broker answers in time."""
    return _made(KafkaConsumer, kafka, settings)


def producer_client(kafka: Kafka, **settings: Any) -> KafkaProducer:
    """A producer whose records are stored once and in order, or not at all; `settings` as above.

    Raises KafkaError if no broker answers in time.
    """
    return _made(KafkaProducer, kafka, {"acks": "all", "enable_idempotence": True} | settings)


def _made(kind: Callable[..., _Client], kafka: Kafka, settings: dict[str, Any]) -> _Client:
    opened: list[KafkaNetClient] = []

    def connections(**options: Any) -> KafkaNetClient:
        opened.append(KafkaNetClient(**options))
        # Consumers and producers of kafka-python 3.0.12 accept this option and do not pass it on.
        opened[-1].cluster.config["allow_auto_create_topics"] = False
        return opened[-1]

    defaults = {"bootstrap_timeout_ms": BOOTSTRAP_MILLISECONDS}
    try:
        return kind(**kafka_options(kafka), **defaults | settings, kafka_client=connections)
    except BaseException:
        for each in opened:
            each.close()
        gc.collect()  # refused connections lie in reference cycles, and each holds a file open
        raise
