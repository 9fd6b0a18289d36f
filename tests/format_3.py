"""Streams as the last program that wrote checkpoints of format 3 has left them, some of their records not counted yet.

vectors/format_3.json was written by that program.  Nobody can make it again, so nobody may change it.
"""

from pathlib import Path
from typing import Any

import msgspec
from redis import Redis

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record

FILE = Path(__file__).parent / "vectors" / "format_3.json"
KEY = bytes(range(100, 132))


class Left(msgspec.Struct):
    """One of these streams: its epoch as its journal has it, its events, how many are counted, and its Redis keys.

    A Redis value is a string or a list of strings, in hexadecimal.
    """

    settings: dict[str, Any]
    fingerprint: str
    opened: Epoch
    events: list[str | None]
    counted: int
    redis: dict[str, str | list[str]]

    @property
    def records(self) -> list[Record]:
        """The events topic."""
        values = [None if value is None else value.encode() for value in self.events]
        return [
            Record(offset, 1_700_000_000_000 + 7 * offset, None, value) for offset, value in enumerate(values)
        ]

    def settings_for(self, **places: Any) -> Settings:
        """The stream's settings, with the places where this test has Kafka and Redis."""
        return Settings(**self.settings, **places)


LEFT = msgspec.json.decode(FILE.read_bytes(), type=dict[str, Left])
"""By the name of what is special about it."""


def put_back(redis: Redis, left: Left) -> None:
    """Put what the stream had in Redis there again."""
    for name, value in left.redis.items():
        redis.delete(name)
        if isinstance(value, str):
            redis.set(name, bytes.fromhex(value))
        else:
            redis.rpush(name, *map(bytes.fromhex, value))
