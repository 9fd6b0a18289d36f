"""Tells of an outage in few lines: one when it begins, one a minute while it lasts, and one when it is over."""

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 60.0


class Outages:
    """What one process waits for.  Several of its parts may tell of the same outage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._server = ""
        self._since = self._told = 0.0

    def waits(self, server: str, why: str) -> None:
        """An attempt to reach `server` has failed, and another one follows."""
        now = self._clock()
        if server != self._server:
            self._server, self._since, self._told = server, now, now
            logger.warning("waiting for %s: %s", server, why)
        elif now - self._told >= AGAIN_SECONDS:
            self._told = now
            logger.warning("still waiting for %s, for %.0f s now: %s", server, now - self._since, why)

    def over(self) -> None:
        """All servers answer."""
        server, self._server = self._server, ""
        if server:
            logger.warning("%s: waited for %.0f s, and it goes on", server, self._clock() - self._since)
