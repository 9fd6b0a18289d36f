"""Serving the dashboard over HTTP until it is told to stop."""

import socket
from collections.abc import Sequence

import uvicorn

from stream_dp.config.connections import Kafka
from stream_dp.dashboard.app import Dashboard
from stream_dp.dashboard.board import Board
from stream_dp.dashboard.reader import Reader

_GRACE_SECONDS = 3


class _Server(uvicorn.Server):
    """Ends the viewers' streams before it waits for open requests to end."""

    def __init__(self, config: uvicorn.Config, dashboard: Dashboard) -> None:
        super().__init__(config)
        self._dashboard = dashboard

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._dashboard.frames.close()
        await super().shutdown(sockets)


def serve(
    listener: socket.socket,
    kafka: Kafka,
    releases: str,
    results: str,
    login: tuple[str, str] | None = None,
    embedders: Sequence[str] = (),
) -> None:
    """Serve on a bound socket until SIGINT or SIGTERM.  Kafka and the topics need not be there yet."""
    dashboard = Dashboard(Reader(kafka, releases, results, Board()))
    config = uvicorn.Config(
        dashboard.app(login, embedders),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    _Server(config, dashboard).run(sockets=[listener])
