"""What a disk, a memory or a hand may do to Redis."""

import random

from redis import Redis

from tests import redis_contents


def holds_bits(redis: Redis, name: bytes) -> bool:
    """Whether there is a bit to flip: a column of no label is an empty string."""
    return redis.type(name) != b"string" or redis.strlen(name) > 0


def flip(redis: Redis, name: bytes, rng: random.Random) -> None:
    """Flip one bit of a string, or of an element of a list."""
    if redis.type(name) == b"string":
        place = rng.randrange(8 * redis.strlen(name))
        redis.setbit(name, place, 1 - redis.getbit(name, place))
        return
    row = rng.randrange(redis.llen(name))
    element = bytearray(redis_contents.element(redis, name, row))
    place = rng.randrange(8 * len(element))
    element[place // 8] ^= 1 << place % 8
    redis.execute_command("LSET", name, row, bytes(element))
