"""The fence of a stream's state in Redis: one worker at a time may write, the one that took over last."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis
from redis.client import Pipeline as Transaction
from redis.exceptions import ResponseError

from stream_dp.errors import Refused, StreamDpError
from stream_dp.store.checkpoint_records import damaged


class Fenced(Refused):
    """Another worker has taken the stream over: this one must stop."""


class Superseded(Fenced):
    """Another worker has taken the stream over, and nothing is lost."""


class NotTakenOver(StreamDpError):
    """Something is to be written, and this process has not taken the stream over: it only looks."""


class Fence:
    """The token of the worker that may write, and the writes that need it."""

    def __init__(self, redis: Redis, key: str, watched: str) -> None:
        """`key` holds the token; `watched` is the key that changes with each write."""
        self._redis = redis
        self._key = key
        self._watched = watched
        self._token = b""

    def take_over(self) -> None:
        """Fence off every other worker; who held the stream before may only renew its own hold.

        The token is random: a Redis that was rolled back would give the same number of a counter to two workers.
        """
        if not self._token:
            token = secrets.token_hex(16).encode()
            self._redis.set(self._key, token)
            self._token = token
        else:
            self.check_hold()

    @property
    def is_taken(self) -> bool:
        """Whether this process has taken the stream over, and was not superseded as far as it knows."""
        return bool(self._token)

    def check_hold(self) -> None:
        """Raise `Fenced` if another worker has taken the stream over, `NotTakenOver` if this one never has."""
        with damage_of("fence"):
            self._check(self._redis.get(self._key))

    def _check(self, found: Any) -> None:
        if not self._token:
            raise NotTakenOver
        if found is None:
            raise Fenced("Redis has lost its state while this worker ran: it stops; restore Redis")
        if found != self._token:
            raise Superseded("another worker has taken this stream over; this one stops")

    def write_unless_lost(self, change: Callable[[Transaction], None]) -> None:
        """Do this in one transaction, again where another worker or a lost connection came between.  Raises `Fenced`.

        `change` gets a transaction that watches the fence and the key that each write changes.  It may read, and calls
        `multi()` before it writes.
        """

        def guarded(transaction: Transaction) -> None:
            self._check(transaction.get(self._key))
            change(transaction)

        self._redis.transaction(guarded, self._key, self._watched)


@contextmanager
def damage_of(name: str) -> Iterator[None]:
    """A value of another type than it was written with is damage, and no outage."""
    try:
        yield
    except ResponseError as error:
        sound(name, error)


def sound(name: str, answer: Any) -> Any:
    """What Redis has answered about the key of this name; raises what is no answer."""
    if isinstance(answer, ResponseError) and "WRONGTYPE" in str(answer):
        raise damaged(name) from None
    if isinstance(answer, Exception):
        raise answer
    return answer
