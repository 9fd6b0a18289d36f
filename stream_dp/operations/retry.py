"""Waiting for Kafka and Redis: an outage of either ends an attempt, and the next one begins after a while."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal
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
from stream_dp.operations.backoff import Backoff, retry
from stream_dp.operations.watch import Watch
from stream_dp.store.ledger import NotDurable

OUTAGES = (KafkaError, AdminError, RedisError, OSError, NotReady)
"""What a server that is away, or too slow to be relied on, raises through the clients; and what others do soon."""

Needed = Callable[[], Iterable[Right]]
"""Lists the rights without which no attempt succeeds, once one has failed: what they are may take asking Kafka."""


class Attempts(Backoff):
    """Attempts at something that needs Kafka and Redis: what a failure means, and whether to wait."""

    def __init__(self, settings: Settings, needed: Needed, outages: Outages) -> None:
        super().__init__()
        self._settings, self._needed, self._outages = settings, needed, outages
        self._made = 0

    def begin(self) -> None:
        """An attempt begins."""
        super().begin()
        self._made += 1

    def failed(self, failure: Exception) -> float:
        """Report an outage.  What is none is raised.

        Raises `Refused` if it failed because this user lacks a right that is needed, or, at the first attempt, because
        a server does not take the password.  Later, it may have lost its users for a while.
        """
        if not isinstance(failure, OUTAGES):
            raise failure
        if self._made == 1 and isinstance(failure, AuthenticationError | NoPermissionError):
            raise Refused(_not_let_in(self._settings, failure)) from None
        if self._made == 1 and isinstance(failure, NotAuthenticated):
            raise Refused(str(failure)) from None
        refuse_without_rights(self._settings.kafka_address, self._needed(), failure)
        self._outages.waits(awaited(failure, self._settings), spoken(failure))
        return super().failed(failure)


class _Watched(Attempts):
    """Attempts whose outages are counted for the operator."""

    def __init__(self, settings: Settings, needed: Needed, watch: Watch) -> None:
        super().__init__(settings, needed, watch.outages)
        self._watch = watch

    def failed(self, failure: Exception) -> float:
        """See `Attempts`."""
        wait, server = super().failed(failure), server_of(failure)
        if server is None:
            self._watch.beat()
            self._watch.progress.input(True, awaited(failure, self._settings))
        else:
            self._watch.outage(server)
        return wait


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
    with watch.progress.watched():
        await retry(attempt, _Watched(settings, needed, watch), stopping, done)


def server_of(outage: Exception) -> Literal["redis", "kafka"] | None:
    """Which server is away; None if it is none of the two."""
    if isinstance(outage, RedisError | NotDurable):
        return "redis"
    return None if isinstance(outage, NotReady) else "kafka"


def awaited(outage: Exception, settings: Settings) -> str:
    """Who does not serve, without the password that an address may hold."""
    if isinstance(outage, NotReady) and not isinstance(outage, NotDurable):
        return outage.awaits
    if server_of(outage) == "redis":
        return f"Redis at {urlsplit(settings.redis).hostname}"
    return f"Kafka at {settings.kafka}"
