"""Whether the servers that a command needs can be reached at all; if not, which address and what to do."""

import socket
from threading import Event
from urllib.parse import urlsplit

import typer

from stream_dp.cli.mistakes import Mistake
from stream_dp.config.connections import Kafka, places_of
from stream_dp.config.settings import Settings
from stream_dp.kafka import log
from stream_dp.kafka.clients import admin_client, borrowed, kept_clients
from stream_dp.kafka.rights import require_seen

_SECONDS = 3.0
_LOOK_AGAIN_SECONDS = 0.5


def require_kafka(addresses: str) -> None:
    """Raise `Mistake` unless one of the comma-separated Kafka addresses accepts a connection.

    Raises `SettingsError` for an address that cannot be one.
    """
    failures = []
    for host, port in places_of(addresses):
        failure = _failure(host, port)
        if failure is None:
            return
        failures.append(failure)
    raise Mistake(
        f"Kafka does not answer at {addresses} ({failures[0]}): start it, or change the setting kafka or --kafka; "
        "`stream-dp dev up` starts one for trying out"
    )


def require_topic(kafka: Kafka, topic: str) -> None:
    """Raise `Mistake` unless the topic exists; it is not made.  Raises `NotPermitted` where nobody may tell."""
    if not log.existing(kafka, topic):
        require_seen(kafka, topic)
        raise Mistake(
            f"Kafka at {kafka} has no topic {topic!r}: start the stream's worker first, or name another stream "
            "with --stream"
        )


def await_releases(settings: Settings, stopping: Event) -> bool:
    """Wait until a stream's topic of releases can be read; it is not made.  False if `stopping` was set before.

    Says on the error output that it waits.  Raises `NotPermitted` where nobody may tell.
    """
    kafka, topic = settings.kafka_address, settings.releases
    with kept_clients():
        if not log.existing(kafka, topic):
            require_seen(kafka, topic)
            typer.echo(
                f"Waiting for the topic {topic!r}, which the worker of the stream {settings.stream!r} makes when it "
                "starts; --stream names another one.",
                err=True,
            )
        while not log.existing(kafka, topic):
            if stopping.wait(_LOOK_AGAIN_SECONDS):
                return False
        with borrowed(admin_client, kafka) as admin:
            admin.wait_for_topics([topic])
        return True


def require_redis(url: str) -> None:
    """Raise `Mistake` unless the server of a redis:// or rediss:// URL accepts a connection."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port or 6379
    except ValueError:
        scheme, host, port = "", None, 0
    if scheme == "unix":
        return
    if scheme not in ("redis", "rediss") or not host:
        raise Mistake("the Redis address is not redis://HOST:PORT/0: change the setting redis, or --redis")
    failure = _failure(host, port)
    if failure is not None:
        raise Mistake(
            f"Redis does not answer at {host}:{port} ({failure}): start it, or change the setting redis or "
            "--redis; `stream-dp dev up` starts one for trying out"
        )


def _failure(host: str, port: int) -> str | None:
    """Why no connection can be made; None if one can."""
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
    return None
