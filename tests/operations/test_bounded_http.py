"""Strangers on an open port: they are silent, drip, or come by the thousand, and the port answers all the same."""

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx2
import pytest

from stream_dp.config.settings import Settings
from stream_dp.operations import bounded_http
from stream_dp.operations.bounded_http import OnceAMinute
from stream_dp.operations.ports import _MOST_CONNECTIONS, Served, liveness
from tests.apache_kafka.server import free_ports
from tests.system.waiting import wait_until


@pytest.fixture
def port() -> Iterator[int]:
    found, _ = free_ports()
    settings = Settings(stream="shop", metrics_address=f"127.0.0.1:{found}")
    with liveness(settings):
        yield found


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed a connection that it never answered."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_silent_connections_make_room_for_others(port: int) -> None:
    """Without a limit all of them would stand, and take every descriptor that the process may have."""
    with ExitStack() as ends:
        silent = []
        for _ in range(5 * _MOST_CONNECTIONS):
            silent.append(ends.enter_context(socket.create_connection(("127.0.0.1", port))))
            silent[-1].setblocking(False)
        wait_until(
            lambda: sum(not is_closed(each) for each in silent) <= _MOST_CONNECTIONS, lambda: "all stand"
        )
        assert httpx2.get(f"http://127.0.0.1:{port}/livez").text == "alive"


@pytest.mark.parametrize("before", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_the_head_of_a_request_must_come_soon(
    port: int, before: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then does not keep a connection open, and neither does an answered request before them."""
    monkeypatch.setattr(bounded_http, "HEADER_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(before)

        def drips() -> bool:
            try:
                slow.sendall(b"G")
                slow.settimeout(0.05)
                return slow.recv(1_000) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(drips, lambda: "it still stands")


def test_a_port_listens_on_its_address_alone(port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port))


def test_a_message_comes_once_a_minute() -> None:
    clock = [0.0]
    only = OnceAMinute(lambda: clock[0])

    def passes(message: str) -> bool:
        return only.filter(logging.LogRecord("", logging.WARNING, "", 1, message, (time.monotonic(),), None))

    assert [passes("a %s"), passes("a %s"), passes("b")] == [True, False, True]
    clock[0] = 60.0
    assert [passes("a %s"), passes("a %s")] == [True, False]


def test_nothing_is_served_without_a_port() -> None:
    with liveness(Settings(stream="shop")) as served:
        assert isinstance(served, Served)
