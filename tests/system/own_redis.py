"""A Redis server that a test may stop, kill and start again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from stream_dp.dev import redis_server
from tests.apache_kafka.server import free_ports

PASSWORD = "open-sesame"


class OwnRedis:
    """A Redis server of one test, on a fixed port, that wants a password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, _ = free_ports()
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"
        self.server: redis_server.RedisServer | None = None

    def start(self) -> None:
        self.server = redis_server.start(self.folder, self.port)
        with Redis(port=self.port) as client:
            client.config_set("requirepass", PASSWORD)

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
            self.server = None

    def kill(self) -> None:
        assert self.server is not None
        self.server.process.kill()
        self.stop()

    def client(self) -> Redis:
        return Redis.from_url(self.url)


@contextmanager
def own_redis_server(folder: Path) -> Iterator[OwnRedis]:
    """A started one."""
    redis = OwnRedis(folder)
    redis.start()
    try:
        yield redis
    finally:
        redis.stop()
