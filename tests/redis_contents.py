"""What a Redis holds, as bytes: the client's own types leave open whether answers are decoded or missing."""

from redis import Redis


def value(redis: Redis, name: str | bytes) -> bytes:
    """The string at `name`, which must be there."""
    return as_bytes(redis.get(name))


def element(redis: Redis, name: str | bytes, place: int) -> bytes:
    """An element of the list at `name`, which must be there."""
    return as_bytes(redis.lindex(name, place))


def elements(redis: Redis, name: str | bytes) -> list[bytes]:
    """The list at `name`."""
    return [as_bytes(each) for each in redis.lrange(name, 0, -1)]


def dump(redis: Redis, name: str | bytes) -> bytes:
    """What RESTORE puts back at `name`, which must be there."""
    return as_bytes(redis.dump(name))


def dumps(redis: Redis, pattern: str = "*") -> dict[bytes, bytes]:
    """The dump of each key."""
    names = [as_bytes(name) for name in redis.keys(pattern)]
    with redis.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.dump(name)
        return {name: as_bytes(dumped) for name, dumped in zip(names, pipeline.execute(), strict=True)}


def as_bytes(answer: object) -> bytes:
    assert isinstance(answer, bytes)
    return answer


def fields(redis: Redis, name: str | bytes) -> dict[bytes, bytes]:
    """The hash at `name`."""
    return {as_bytes(field): as_bytes(value) for field, value in redis.hgetall(name).items()}
