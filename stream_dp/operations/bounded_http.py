"""HTTP for ports that strangers reach: connections are few, and none may stay silent or speak slowly.

Whoever opens thousands of connections and says nothing would otherwise take every descriptor of the process, and its
next connection to Redis or Kafka would fail.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""How long a client may take to send the head of a request, from its first moment or from the last answer on."""

_ACCEPTED_AT_ONCE = 16
_MINUTE = 60.0


class OnceAMinute(logging.Filter):
    """Lets a message through once a minute, whatever it is about: strangers decide how often it is due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter.filter`."""
        message, now = str(record.msg), self._clock()
        if now - self._last.get(message, -_MINUTE) < _MINUTE:
            return False
        self._last[message] = now
        return True


logger = logging.getLogger(__name__)
logger.addFilter(OnceAMinute())


class _Bounded(H11Protocol):
    """At most `most` connections of a port.  A new one takes the place of the one that has been silent the longest."""

    most = 0

    def __init__(self, *of_uvicorn: Any, **named: Any) -> None:
        super().__init__(*of_uvicorn, **named)
        self.logger = logger
        self.silent_since = time.monotonic()
        self._deadline: asyncio.TimerHandle | None = None
        self._refused = False

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection if there is room."""
        if len(self.connections) >= self.most and not self._make_room():
            self._refused = True
            transport.abort()
            return
        super().connection_made(transport)
        self._listen()

    def _make_room(self) -> bool:
        idle = [each for each in self.connections if isinstance(each, _Bounded) and not each.is_busy]
        logger.warning("more than %d connections to one port: those that are silent are closed", self.most)
        if not idle:
            return False
        longest = min(idle, key=lambda each: each.silent_since)
        self.connections.discard(longest)
        longest.transport.abort()
        return True

    def _listen(self) -> None:
        """Wait for the head of a request, for so long and no longer."""
        self.silent_since = time.monotonic()
        self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """More of a request, or of the next one."""
        if self._refused:
            return
        super().data_received(data)
        if self.is_busy:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """A request is answered, and the next one may come."""
        super().on_response_complete()
        if not self.transport.is_closing() and not self.is_busy:
            self._stop_waiting()
            self._listen()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol.connection_lost`."""
        self._stop_waiting()
        if not self._refused:
            super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()


def bounded(app: Any, most: int, **options: Any) -> uvicorn.Config:
    """How uvicorn serves `app` to at most `most` connections at once; `options` are others of uvicorn's."""
    logging.getLogger("asyncio").addFilter(_ASYNCIO)
    return uvicorn.Config(
        app,
        http=type("Bounded", (_Bounded,), {"most": most}),
        backlog=_ACCEPTED_AT_ONCE,  # asyncio accepts so many before any of them is looked at
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        **options,
    )


_ASYNCIO = OnceAMinute()
"""It says at each attempt that there are no descriptors left."""
