"""Says what a process waits for when it makes no progress for a minute although there is something to do."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

STALL_SECONDS = 60.0
_LOOK_SECONDS = 1.0
_FETCH = "kafka-fetch"


class Progress:
    """How long the last progress is ago, and what has been waited for since.

    A process's own loop writes it, and a thread reads it that goes on while the loop stands still: each fact is one
    assignment, so no lock is needed.
    """

    def __init__(
        self,
        name: str,
        tell: Callable[[str | None, float], None] = lambda reason, seconds: None,
        clock: Callable[[], float] = time.monotonic,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        """`tell` is given the reason and the seconds without progress while it stalls, and None once it goes on."""
        self._name, self._tell, self._clock, self._stall = name, tell, clock, stall_seconds
        self._since = self._told = clock()
        self._has_input = False
        self._waits: tuple[tuple[str, float], ...] = ()
        self._stalled: str | None = None
        self.cause = _FETCH

    def made(self) -> None:
        """Something was read, counted, sent or answered."""
        self._since, self.cause = self._clock(), _FETCH

    def input(self, waits: bool, cause: str | None = None) -> None:
        """Whether records are known to wait, and for what they do where nothing else is being waited for."""
        if waits and not self._has_input:
            self._since = self._clock()
        self._has_input = waits
        self.cause = cause or self.cause

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say what is being waited for."""
        wait = what, self._clock()
        self._waits = (*self._waits, wait)
        try:
            yield
        finally:
            self._waits = tuple(each for each in self._waits if each is not wait)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look every second, in a thread."""
        done = threading.Event()

        def keep_looking() -> None:
            while not done.wait(_LOOK_SECONDS):
                self.look()

        thread = threading.Thread(target=keep_looking, daemon=True, name="progress")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def look(self) -> None:
        """Tell what is being waited for if that takes too long, once a minute, and when it goes on."""
        now, waits = self._clock(), self._waits
        long = [wait for wait in waits if now - wait[1] >= self._stall]
        since = long[0][1] if long else self._since
        reason: str | None = None
        if long:
            reason = long[-1][0]
        elif self._has_input and now - since >= self._stall:
            reason = waits[-1][0] if waits else self.cause
        if reason is None:
            if self._stalled is not None:
                logger.info("%s: it makes progress again", self._name)
                self._tell(None, 0.0)
        else:
            if self._stalled is None or now - self._told >= self._stall:
                self._told = now
                logger.warning("%s: no progress for %.0f s: it waits for %s", self._name, now - since, reason)
            self._tell(reason, now - since)
        self._stalled = reason
