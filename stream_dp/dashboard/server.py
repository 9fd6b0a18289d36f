"""Serving the dashboard over HTTP until it is told to stop."""

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn

from stream_dp.config.connections import Kafka
from stream_dp.dashboard.app import MOST_VIEWERS, Dashboard
from stream_dp.dashboard.board import Board
from stream_dp.dashboard.reader import Reader
from stream_dp.dashboard.streams import Streams
from stream_dp.operations.bounded_http import bounded

_GRACE_SECONDS = 3
_OTHER_CONNECTIONS = 100


class _Server(uvicorn.Server):
    """Ends the viewers' streams before it waits for open requests to end."""

    def __init__(self, config: uvicorn.Config, served: Dashboard | Streams) -> None:
        super().__init__(config)
        self._served = served

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._served.close()
        await super().shutdown(sockets)


@dataclass(frozen=True)
class Source:
    """The public topics of one stream, and the broker that has them.  `statement`: see `Dashboard`."""

    kafka: Kafka
    releases: str
    results: str
    statement: Callable[[], str] | None = None


def serve(
    listener: socket.socket,
    sources: Sequence[Source],
    login: tuple[str, str] | None = None,
    embedders: Sequence[str] = (),
) -> None:
    """Serve on a bound socket until SIGINT or SIGTERM: one stream's page, or an index of several with the page of each.

    Kafka and the topics need not be there yet.
    """
    dashboards = [
        Dashboard(Reader(each.kafka, each.releases, each.results, Board()), each.statement)
        for each in sources
    ]
    served = dashboards[0] if len(dashboards) == 1 else Streams(dashboards)
    config = bounded(
        served.app(login, embedders),
        min(MOST_VIEWERS + _OTHER_CONNECTIONS, os.sysconf("SC_OPEN_MAX") // 2),
        lifespan="on",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    _Server(config, served).run(sockets=[listener])
