"""One attempt after another, with longer and longer waits between those that fail."""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.2, 10.0


class Backoff:
    """How long to wait after an attempt that failed: up to twice as long each time, unless the attempt had lasted.

    Each wait is drawn from the upper half of what it may be, so that workers which lost the same server at the same
    moment do not all come back at the same moment.
    """

    def __init__(self, longest: float | None = None) -> None:
        self._wait = _FIRST_WAIT_SECONDS
        self._longest = _LONGEST_WAIT_SECONDS if longest is None else longest
        self._began = time.monotonic()

    def begin(self) -> None:
        """An attempt begins."""
        self._began = time.monotonic()

    def failed(self, failure: Exception) -> float:
        """The attempt that began last has ended like this: wait so many seconds before the next, or it is raised."""
        if time.monotonic() - self._began > _LONGEST_WAIT_SECONDS:
            self._wait = _FIRST_WAIT_SECONDS
        wait, self._wait = self._wait, min(2 * self._wait, self._longest)
        return random.uniform(wait / 2, wait)


def retry_in_thread(attempt: Callable[[], None], backoff: Backoff, stopping: threading.Event) -> None:
    """Make one attempt after another until `stopping`."""
    while not stopping.is_set():
        backoff.begin()
        try:
            attempt()
        except Exception as failure:
            stopping.wait(backoff.failed(failure))


async def retry(
    attempt: Callable[[], Awaitable[None]],
    backoff: Backoff,
    stopping: asyncio.Event,
    done: Callable[[], bool] = lambda: False,
) -> None:
    """Make one attempt after another until `stopping` or `done`."""
    while not stopping.is_set() and not done():
        backoff.begin()
        try:
            await attempt()
        except Exception as failure:
            await pause(stopping, await asyncio.to_thread(backoff.failed, failure))


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until `stopping`."""
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return
