"""A real Redis server for the tests of what is kept in it."""

from collections.abc import Iterator

import pytest
from redis import Redis

from stream_dp.config.connections import RedisAddress, redis_client
from stream_dp.dev import redis_server
from stream_dp.store.ledger import Ledger
from tests.store.charges import SOURCE
from tests.system.waiting import GIVE_UP_SECONDS


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_server.RedisServer]:
    """A server shared by the tests of this folder."""
    with redis_server.running(tmp_path_factory.mktemp("store") / "redis") as running:
        yield running


@pytest.fixture
def redis(server: redis_server.RedisServer) -> Iterator[Redis]:
    """A client of an empty database."""
    with redis_client(RedisAddress(server.url), socket_timeout=GIVE_UP_SECONDS) as client:
        client.flushall()
        yield client


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    """A ledger with a budget of epsilon 1 and delta 1e-6 per event."""
    ledger = Ledger(redis, SOURCE)
    ledger.set_budget(1.0, 1e-6, "event")
    return ledger
