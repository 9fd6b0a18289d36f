"""Waiting for Kafka and Redis: an outage of either ends an attempt, and the next one begins after a while."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import urlsplit

from aiokafka.errors import KafkaError
from kafka.errors import KafkaError as AdminError
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from stream_dp.config.secret import REDIS_LOGIN
from stream_dp.config.settings import Settings
from stream_dp.errors import NotReady, Refused, spoken
from stream_dp.kafka.clients import NotAuthenticated
from stream_dp.kafka.outages import Outages
from stream_dp.kafka.rights import Right, refuse_without_rights
from stream_dp.operations.watch import Watch
from stream_dp.store.ledger import NotDurable

OUTAGES = (KafkaError, AdminError, RedisError, OSError, NotReady)
"""What a server that is away, or too slow to be relied on, raises through the clients; and what others do soon."""

Needed = Callable[[], Iterable[Right]]
"""Lists the rights without which no attempt succeeds, once one has failed: what they are may take asking Kafka."""

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.2, 10.0


class Backoff:
    """How long to wait after an attempt that failed: up to twice as long each time, unless the attempt had lasted.

    Each wait is drawn from the upper half of what it may be, so that workers which lost the same server at the same
    moment do not all come back at the same moment.
    """

    def __init__(self) -> None:
        self._wait = _FIRST_WAIT_SECONDS
        self._began = time.monotonic()

    def begin(self) -> None:
        """An attempt begins."""
        self._began = time.monotonic()

    def seconds(self) -> float:
        """The attempt that began last has failed: wait so long before the next."""
        if time.monotonic() - self._began > _LONGEST_WAIT_SECONDS:
            self._wait = _FIRST_WAIT_SECONDS
        wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_WAIT_SECONDS)
        return random.uniform(wait / 2, wait)


class Attempts:
    """One attempt after another of something that needs Kafka and Redis: what a failure means, and how long to wait."""

    def __init__(self, settings: Settings, needed: Needed, outages: Outages) -> None:
        self._settings, self._needed, self._outages = settings, needed, outages
        self._backoff, self._made = Backoff(), 0

    def begin(self) -> None:
        """An attempt begins."""
        self._backoff.begin()
        self._made += 1

    def failed(self, outage: Exception) -> float:
        """Report the outage that has ended an attempt; returns for how many seconds to wait before the next one.

        Raises `Refused` if it failed because this user lacks a right that is needed, or, at the first attempt, because
        a server does not take the password.  Later, it may have lost its users for a while.
        """
        if self._made == 1 and isinstance(outage, AuthenticationError | NoPermissionError):
            raise Refused(_not_let_in(self._settings, outage)) from None
        if self._made == 1 and isinstance(outage, NotAuthenticated):
            raise Refused(str(outage)) from None
        refuse_without_rights(self._settings.kafka_address, self._needed(), outage)
        self._outages.waits(awaited(outage, self._settings), spoken(outage))
        return self._backoff.seconds()


def _not_let_in(settings: Settings, refusal: Exception) -> str:
    place = f"Redis at {urlsplit(settings.redis).hostname}"
    if isinstance(refusal, NoPermissionError):
        return (
            f"{place} does not let this user do what is needed ({refusal}): give it the rights that docs/operations "
            "lists under Rights in Redis, or name another user in the setting redis"
        )
    return f"{place} refuses the user or the password ({refusal}): {REDIS_LOGIN}"


async def retry_until_done(
    attempt: Callable[[], Awaitable[None]],
    done: Callable[[], bool],
    stopping: asyncio.Event,
    settings: Settings,
    needed: Needed,
    watch: Watch,
) -> None:
    """Make one attempt after another until `stopping` or `done`.  What is no outage is raised, and see `Attempts`."""
    attempts = Attempts(settings, needed, watch.outages)
    with watch.progress.watched():
        while not stopping.is_set() and not done():
            attempts.begin()
            try:
                await attempt()
            except OUTAGES as outage:
                wait = await asyncio.to_thread(attempts.failed, outage)
                if isinstance(outage, NotReady) and not isinstance(outage, NotDurable):
                    watch.beat()
                    watch.progress.input(True, awaited(outage, settings))
                else:
                    watch.outage("redis" if isinstance(outage, RedisError | NotDurable) else "kafka")
                await pause(stopping, wait)


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until `stopping`."""
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return


def awaited(outage: Exception, settings: Settings) -> str:
    """Who does not serve, without the password that an address may hold."""
    if isinstance(outage, RedisError | NotDurable):
        return f"Redis at {urlsplit(settings.redis).hostname}"
    if isinstance(outage, NotReady):
        return outage.awaits
    return f"Kafka at {settings.kafka}"
