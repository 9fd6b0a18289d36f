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


def places(redis: Redis, name: bytes) -> list[str]:
    """Where a bit of a key may be flipped: in its name, in that of a field, or in a value or an element."""
    if not holds_bits(redis, name):
        return ["name"]
    return ["name", "field", "value"] if redis.type(name) == b"hash" else ["name", "value"]


def flip_at(redis: Redis, name: bytes, place: str, rng: random.Random) -> None:
    """Flip one bit of a key at one of its `places`."""
    if place == "name":
        redis.rename(name, flipped(name, rng))
        return
    if redis.type(name) != b"hash":
        flip(redis, name, rng)
        return
    fields = redis_contents.fields(redis, name)
    field = rng.choice(sorted(fields))
    if place == "field":
        redis.hdel(name, field)
        redis.hset(name, flipped(field, rng), fields[field])
    else:
        redis.hset(name, field, flipped(fields[field], rng))


def flipped(value: bytes, rng: random.Random) -> bytes:
    """The same with one bit flipped."""
    place, other = rng.randrange(8 * len(value)), bytearray(value)
    other[place // 8] ^= 1 << place % 8
    return bytes(other)
