"""A broker that does not let somebody in: what the clients make of it, and what a command says."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.protocol.api_key import ApiKey
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from stream_dp.config.connections import KafkaAddress
from stream_dp.config.settings import Settings
from stream_dp.dev import broker, wire
from stream_dp.errors import Refused
from stream_dp.kafka.clients import NotAuthenticated, admin_client
from stream_dp.operations.retry import retry_until_done
from stream_dp.operations.watch import Watch

REFUSED = 58
LOGIN: dict[str, Any] = {
    "kafka_security": "SASL_PLAINTEXT",
    "kafka_sasl_mechanism": "PLAIN",
    "kafka_username": "me",
    "kafka_password": "env:A_WRONG_PASSWORD",
}


async def greet(*_: Any) -> Any:
    return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])


async def refuse(*_: Any) -> Any:
    return SaslAuthenticateResponse(
        error_code=REFUSED,
        error_message="Invalid username or password",
        auth_bytes=b"",
        session_lifetime_ms=0,
    )


@contextmanager
def serving() -> Iterator[str]:
    """The embedded broker's conversation, in a thread; yields its address."""
    loop = asyncio.new_event_loop()
    state: Any = None

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(
            lambda reader, writer: broker._converse(state, reader, writer), "127.0.0.1", 0
        )

    server = loop.run_until_complete(begin())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.wait({task}))
        loop.close()


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("A_WRONG_PASSWORD", "let-me-in")
    monkeypatch.setitem(wire.SERVED, ApiKey.SaslHandshake, (SaslHandshakeRequest, 1, 1))
    monkeypatch.setitem(wire.SERVED, ApiKey.SaslAuthenticate, (SaslAuthenticateRequest, 0, 1))
    monkeypatch.setitem(broker._ANSWERS, ApiKey.SaslHandshake, greet)
    monkeypatch.setitem(broker._ANSWERS, ApiKey.SaslAuthenticate, refuse)
    with serving() as address:
        yield address


async def test_a_wrong_password_ends_a_start(strict: str) -> None:
    settings = Settings(stream="shop", kafka=strict, **LOGIN)

    async def connect() -> None:
        await asyncio.to_thread(admin_client, settings.kafka_address)

    with pytest.raises(
        Refused, match=r"authentication failed .*Invalid username or password.*kafka_password"
    ):
        await retry_until_done(connect, lambda: False, asyncio.Event(), settings, list, Watch("shop", "s"))


def test_a_command_says_so_in_a_line_of_json_if_it_logs_json(strict: str) -> None:
    """In a process of its own: whoever sets up logging closes what earlier handlers wrote to."""
    options = {f"STREAM_DP_{name.upper()}": value for name, value in LOGIN.items()}

    def told(*more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "stream_dp.cli", "table", "--stream", "shop", "--kafka", strict, *more]
        return subprocess.run(words, env={**os.environ, **options}, capture_output=True, text=True)

    of_machines = told("--json")
    assert of_machines.returncode == 2, of_machines.stderr
    output = of_machines.stdout + of_machines.stderr
    lines = [json.loads(line) for line in output.splitlines()]
    assert "authentication failed" in lines[-1]["event"]
    assert "let-me-in" not in output
    assert "error: Kafka at" in told().stderr


def test_the_address_is_named_and_the_password_is_not(strict: str) -> None:
    address = KafkaAddress(
        strict, "SASL_PLAINTEXT", sasl_mechanism="PLAIN", username="me", password="env:A_WRONG_PASSWORD"
    )
    with pytest.raises(NotAuthenticated) as refused:
        admin_client(address)
    assert strict in str(refused.value)
    assert "let-me-in" not in str(refused.value)
