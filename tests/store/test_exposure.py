"""A Redis that lets in whoever can reach it is told of, as far as it can be seen from here."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from stream_dp.store.exposure import exposed
from tests.system.own_redis import PASSWORD, OwnRedis, own_redis_server

ELSEWHERE = "127.0.0.1 -192.0.2.1"  # an address for examples: no machine has it, and Redis passes it over
NOT_KNOWN_TO_BE_HERE = "127.1"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnRedis]:
    with own_redis_server(tmp_path / "redis") as own:
        yield own


def configure(own: OwnRedis, **values: str) -> None:
    with own.client() as client:
        for name, value in values.items():
            client.config_set(name.replace("_", "-"), value)


def warning(own: OwnRedis, host: str = "127.0.0.1", password: str | None = None) -> str | None:
    with Redis(host=host, port=own.port, password=password) as client:
        return exposed(client)


def test_who_must_know_a_password_or_be_on_this_machine_is_no_danger(own: OwnRedis) -> None:
    configure(own, bind=ELSEWHERE, protected_mode="no")
    assert warning(own, NOT_KNOWN_TO_BE_HERE, PASSWORD) is None
    configure(own, bind="127.0.0.1", requirepass="")
    assert warning(own) is None
    with Redis(port=own.port) as client:
        client.config_set("bind", ELSEWHERE)
        client.config_set("protected-mode", "yes")
    assert warning(own) is None


def test_a_server_that_is_somewhere_else_and_asks_for_no_password_is_told_of(own: OwnRedis) -> None:
    configure(own, requirepass="")
    told = warning(own, NOT_KNOWN_TO_BE_HERE, None)
    assert told is not None
    assert told.startswith("Redis at 127.1 asks for no password")
    with Redis(port=own.port) as client:
        client.acl_setuser("app", enabled=True, passwords=["+secret"], commands=["+@all"], keys=["*"])
    with Redis(host=NOT_KNOWN_TO_BE_HERE, port=own.port, username="app", password="secret") as client:
        assert exposed(client) == told


def test_a_server_here_that_listens_to_others_without_protection_is_told_of(own: OwnRedis) -> None:
    configure(own, bind=ELSEWHERE, protected_mode="no", requirepass="")
    told = warning(own)
    assert told is not None
    assert told.startswith("Redis, which listens on -192.0.2.1 with protected-mode no, asks for no password")


def test_a_server_that_does_not_tell_how_it_is_set_up_is_judged_by_its_address(own: OwnRedis) -> None:
    configure(own, bind=ELSEWHERE, protected_mode="no", requirepass="")
    with Redis(port=own.port) as client:
        client.execute_command("ACL SETUSER", "default", "-config")
    assert warning(own) is None
    assert warning(own, NOT_KNOWN_TO_BE_HERE) is not None
