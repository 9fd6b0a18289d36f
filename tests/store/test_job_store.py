"""What Redis remembers of jobs, where a disk or a hand has changed it: damage, and never an outage to be waited for."""

from collections.abc import Callable

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from stream_dp.jobs.store import JobStore, Place
from stream_dp.store.checkpoint_records import StateDamaged

JOB, OFFSET = "stream_dp:{s}:job:q", "stream_dp:{s}:jobs:top-k"

OF_JOB: dict[str, Callable[[JobStore], object]] = {
    "plan": lambda store: store.plan("q"),
    "admit": lambda store: store.admit("q", "digest", "top-k", 0, 1, None),
    "result": lambda store: store.result("q"),
    "keep": lambda store: store.keep("q", [b"part"]),
    "cancel": lambda store: store.cancel("q"),
    "is_cancelled": lambda store: store.is_cancelled("q"),
}


@pytest.fixture
def store(redis: Redis) -> JobStore:
    return JobStore(redis, "s")


@pytest.mark.parametrize("ask", OF_JOB.values(), ids=OF_JOB)
def test_a_key_of_another_type_is_damage(
    redis: Redis, store: JobStore, ask: Callable[[JobStore], object]
) -> None:
    redis.set(JOB, b"something else")
    with pytest.raises(StateDamaged, match="does not fit together: nothing is released"):
        ask(store)
    assert redis.get(JOB) == b"something else"


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x80", b"\xff" * 40])
def test_a_value_that_cannot_be_read_is_damage(redis: Redis, store: JobStore, value: bytes) -> None:
    for field in ("plan", "result"):
        redis.hset(JOB, field, value)
        with pytest.raises(StateDamaged):
            OF_JOB[field](store)
    with pytest.raises(StateDamaged):
        store.admit("q", "digest", "top-k", 0, 1, None)
    assert redis.hget(JOB, "plan") == value, "no other noise takes its place"


def test_a_job_of_an_earlier_program_is_read(redis: Redis, store: JobStore) -> None:
    """It noted how far the job was, beside what still stands."""
    plan, kept = OF_JOB["admit"](store), OF_JOB["keep"](store)
    redis.hset(JOB, "progress", b"reading 400/1500")
    assert (store.plan("q"), store.result("q")) == (plan, kept)
    redis.hset(JOB, "progess", b"reading 400/1500")
    with pytest.raises(StateDamaged):
        store.plan("q")


@pytest.mark.parametrize("hash_instead", [True, False])
def test_a_damaged_offset_costs_nothing(redis: Redis, store: JobStore, hash_instead: bool) -> None:
    if hash_instead:
        redis.hset(OFFSET, "a", 1)
    else:
        redis.set(OFFSET, b"many")
    assert store.next_request("top-k") is None
    store.answered("top-k", Place("topic", 3))
    assert store.next_request("top-k") == Place("topic", 3)


def test_an_outage_stays_one() -> None:
    with pytest.raises(RedisError):
        JobStore(Redis(port=1, retry=Retry(NoBackoff(), 0)), "s").plan("q")
