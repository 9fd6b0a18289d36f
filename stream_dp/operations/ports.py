"""The ports of a worker, served by a thread of their own.

A batch that keeps the worker's loop busy delays no answer, and a loop that hangs is found out by `/livez`.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import Self

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from stream_dp.config.reading import OPERATOR_TOKEN
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.operations.bounded_http import bounded
from stream_dp.operations.watch import Watch

_SHORTEST_TOKEN = 16
_GRACE_SECONDS = 1
_STOP_SECONDS = 10.0
_MOST_CONNECTIONS = 64


def open_app(watch: Watch) -> Starlette:
    """`/metrics` without anything private, and the probes, which say yes or no."""

    async def live(_: Request) -> Response:
        return _yes_or_no(watch.alive, "alive", "no step for too long")

    async def ready(_: Request) -> Response:
        why = "not ready: the schema registry does not answer" if watch.registry_away else "not ready"
        return _yes_or_no(watch.ready, "ready", why)

    return Starlette(
        routes=[_metrics(watch.open_registry), Route("/livez", live), Route("/readyz", ready)],
    )


def operator_app(watch: Watch, token: str) -> ASGIApp:
    """`/metrics` for whoever sends the header `Authorization: Bearer TOKEN`."""
    app = Starlette(routes=[_metrics(watch.operator.registry, watch.operators_read.set)])
    expected = f"Bearer {token}".encode()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "http" and not compare_digest(given, expected):
            challenge = {"WWW-Authenticate": 'Bearer realm="stream-dp operators"'}
            await PlainTextResponse("a token, please", 401, challenge)(scope, receive, send)
            return
        await app(scope, receive, send)

    return guarded


def _metrics(registry: CollectorRegistry, then: Callable[[], None] = lambda: None) -> Route:
    async def metrics(_: Request) -> Response:
        answer = Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
        then()
        return answer

    return Route("/metrics", metrics)


def _yes_or_no(answer: bool, yes: str, no: str) -> Response:
    return PlainTextResponse(yes if answer else no, 200 if answer else 503)


class Served:
    """Apps with the sockets that they are served on, by one thread.  `with` it they answer."""

    def __init__(self, *apps: tuple[ASGIApp, socket.socket]) -> None:
        self._servers = [(uvicorn.Server(_config(app)), listener) for app, listener in apps]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True, name="ports")

    def __enter__(self) -> Self:
        if self._servers:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server, _listener in self._servers:
            server.should_exit = True
        if self._servers:
            self._thread.join(_STOP_SECONDS)

    async def _serve(self) -> None:
        await asyncio.gather(*(server.serve([listener]) for server, listener in self._servers))


def liveness(settings: Settings) -> Served:
    """`/livez` of a process that has no metrics: it answers while the process runs.  Raises `SettingsError`."""

    async def alive(_: Request) -> Response:
        return PlainTextResponse("alive")

    if settings.metrics_address is None:
        return Served()
    app = Starlette(routes=[Route("/livez", alive)])
    return Served((app, _listener(settings.metrics_address, "metrics_address")))


class Ports(Served):
    """The ports that the settings name; one without an address is not opened."""

    def __init__(self, settings: Settings, watch: Watch, environment: Mapping[str, str] = os.environ) -> None:
        """Takes the ports.  Raises `SettingsError` if one is taken, or the operators' one has no token."""
        apps: list[tuple[str, ASGIApp]] = []
        if settings.metrics_address:
            apps.append(("metrics_address", open_app(watch)))
        if settings.operator_address:
            apps.append(("operator_address", operator_app(watch, _token(environment))))
            watch.has_operators = True
        super().__init__(*((app, _listener(getattr(settings, name), name)) for name, app in apps))


def _config(app: ASGIApp) -> uvicorn.Config:
    return bounded(
        app, _MOST_CONNECTIONS, log_config=None, lifespan="off", timeout_graceful_shutdown=_GRACE_SECONDS
    )


def _token(environment: Mapping[str, str]) -> str:
    token = environment.get(OPERATOR_TOKEN, "")
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(
            f"operator_address shows private quantities: set {OPERATOR_TOKEN} to a token of at least "
            f"{_SHORTEST_TOKEN} characters without spaces, for instance from `openssl rand -hex 32`"
        )
    return token


def _listener(address: str, name: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise SettingsError(f"{name}: {host!r} is not an address of this machine: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
        listener.listen()  # a second one on this port is refused from here on
    except OSError as error:
        listener.close()
        raise SettingsError(f"cannot listen on {address} ({error.strerror}): change {name}") from None
    return listener
