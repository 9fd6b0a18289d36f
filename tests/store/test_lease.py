"""Who holds a lease, and when somebody else may have it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis
from redis.client import PubSub

from stream_dp.dev import redis_server
from stream_dp.store import lease as lease_module
from stream_dp.store.lease import Lease
from tests.system.waiting import wait_until


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server.running(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def lease(
    url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Lease]]:
    """Makes leases on one stream, each with a connection pool of its own, as another process has it.

    They last: a machine that stands still for a while ends none.
    """
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 10_000.0)
    made: list[tuple[Lease, Redis]] = []

    def one() -> Lease:
        redis = Redis.from_url(url)
        made.append((Lease(redis, request.node.name), redis))
        return made[-1][0]

    yield one
    for each, redis in made:
        each.release()
        redis.close()


def test_one_of_two_holds_it_until_it_is_released(lease: Callable[[], Lease]) -> None:
    first, second = lease(), lease()
    assert first.claim()
    assert not second.claim()
    first.release()
    assert second.claim()
    assert not first.claim()


def test_who_seizes_it_has_it(lease: Callable[[], Lease]) -> None:
    first, second, third = lease(), lease(), lease()
    first.seize()
    second.seize()
    first.release()
    assert not third.claim(), "what another one holds is not given back"


def test_it_is_renewed(lease: Callable[[], Lease], url: str) -> None:
    first, second = lease(), lease()
    assert first.claim()
    with Redis.from_url(url) as redis:
        redis.expire(first._name, 5_000)
        wait_until(lambda: redis.ttl(first._name) > 5_000, lambda: "it is not renewed")
    assert not second.claim()


def test_a_lease_whose_holder_has_no_connection_is_not_waited_for(
    lease: Callable[[], Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lease(), lease()
    assert first.claim()
    with monkeypatch.context() as dead:
        dead.setattr(first, "_if_mine", lambda _: None)  # a killed process gives nothing back
        first.release()
    assert second.claim()


def test_a_holder_that_is_silent_for_too_long_has_lost_it(
    lease: Callable[[], Lease], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is there, and it does not renew: it hangs."""
    first, second = lease(), lease()
    monkeypatch.setattr(first, "_if_mine", lambda _: None)
    assert first.claim()
    assert not second.claim()
    with Redis.from_url(url) as redis:
        redis.pexpire(first._name, 1)
    wait_until(second.claim, lambda: "the lease does not end")


def test_it_is_held_again_after_redis_has_forgotten_it(lease: Callable[[], Lease], url: str) -> None:
    first, second = lease(), lease()
    assert first.claim()
    with Redis.from_url(url) as redis:
        redis.delete(first._name)
        wait_until(lambda: bool(redis.exists(first._name)), lambda: "it is not held again")
    assert not second.claim()


def test_who_claims_it_does_not_find_it_taken_by_itself(
    lease: Callable[[], Lease], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that listens already, and goes round and round before the claim is written, holds nothing yet."""
    rounds = 0
    get_message = PubSub.get_message

    def counted(channel: PubSub, **options: Any) -> object:
        nonlocal rounds
        rounds += 1
        return get_message(channel, **options)

    monkeypatch.setattr(PubSub, "get_message", counted)
    first = lease()
    first._listen()
    wait_until(lambda: rounds >= 3, lambda: "nobody listens")
    with Redis.from_url(url) as redis:
        assert not redis.exists(first._name)
    assert first.claim()
