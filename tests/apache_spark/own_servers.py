"""Servers that the tests of Spark have for themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream_dp.dev import redis_server
from stream_dp.dev.servers import Servers
from stream_dp.kafka import clients
from tests.apache_kafka.server import Broker
from tests.system.broker_clients import leave


@contextmanager
def own_servers(folder: Path, broker: Broker | None = None) -> Iterator[Servers]:
    """A real Apache Kafka, which the clients of Spark need and which is `broker` if given, and a Redis."""
    kafka = broker or Broker(folder / "kafka")
    with (
        kafka,
        redis_server.running(folder / "redis") as redis,
        pytest.MonkeyPatch.context() as patience,
    ):
        patience.setattr(clients, "BOOTSTRAP_MILLISECONDS", 60_000)
        yield Servers(kafka.address, redis.url)
        leave(kafka.address)
