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


def flip_anything(redis: Redis, name: bytes, rng: random.Random) -> str:
    """Flip one bit of a key: of its name, a field's name or value, or an element.  Returns which of them."""
    kind = redis.type(name)
    if not holds_bits(redis, name) or rng.random() < 0.1:
        redis.rename(name, flipped(name, rng))
        return "name"
    if kind != b"hash":
        flip(redis, name, rng)
        return "value"
    fields = redis_contents.fields(redis, name)
    field = rng.choice(sorted(fields))
    if not fields[field] or rng.random() < 0.2:
        redis.hdel(name, field)
        redis.hset(name, flipped(field, rng), fields[field])
        return "field"
    redis.hset(name, field, flipped(fields[field], rng))
    return "value"


def flipped(value: bytes, rng: random.Random) -> bytes:
    """The same with one bit flipped."""
    place, other = rng.randrange(8 * len(value)), bytearray(value)
    other[place // 8] ^= 1 << place % 8
    return bytes(other)
