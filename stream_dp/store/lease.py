"""Who works on a stream: a lease in Redis that a living worker renews, and that standbys watch.

It decides nothing but when a standby tries: the fence (checkpoints.py) says who may write, and THE RULE makes a
take-over from a worker that is alive after all harmless, because both release the same bytes.

A process that dies loses its connections at once, so each holder also listens on a channel of its own: a lease whose
channel nobody listens on is that of a dead process, and is not waited for.
"""

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Any

from redis import Redis
from redis.client import Pipeline as Transaction
from redis.exceptions import RedisError, WatchError

logger = logging.getLogger(__name__)

LEASE_SECONDS = 2.0
"""After so long without a word, a worker whose connection is still there counts as gone: it hangs, or its host does."""

_RENEW_SECONDS = 0.2
_ANSWER_SECONDS = 2.0  # of Redis; where it takes longer, the lease alone shows that its holder lives


class Lease:
    """The lease on one stream, as one process sees it.  Redis may be asked from several threads."""

    def __init__(self, redis: Redis, stream: str) -> None:
        self._redis = redis
        self._name = f"stream_dp:{{{stream}}}:lease"
        self._token = secrets.token_hex(16).encode()
        self._held = False
        self._released = threading.Event()
        self._renewing: threading.Thread | None = None

    def seize(self) -> None:
        """Hold the lease from now on, whoever has it, unless it is held here.  Raises RedisError."""
        if self._held:
            return
        self._listen()
        self._redis.set(self._name, self._token, px=_milliseconds())
        self._held = True

    def claim(self) -> bool:
        """Hold the lease from now on if nobody who lives has it; whether that is so.  Raises RedisError."""
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.watch(self._name)
            holder: Any = transaction.get(self._name)
            if holder is not None and self._listeners(holder):
                return False
            self._listen()
            transaction.multi()
            transaction.set(self._name, self._token, px=_milliseconds())
            try:
                transaction.execute()
            except WatchError:  # somebody else has claimed it
                self.release()
                return False
        self._held = True
        return True

    def release(self) -> None:
        """Hold it no longer: whoever stands by takes over at once.  May be called again."""
        self._held = False
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            self._released.set()
            renewing.join(_ANSWER_SECONDS)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _listeners(self, holder: bytes) -> int:
        [(_, listeners)] = self._redis.pubsub_numsub(self._channel(holder))
        return int(listeners)

    def _channel(self, holder: bytes) -> str:
        return f"{self._name}:{holder.decode(errors='replace')}"

    def _listen(self) -> None:
        """Begin to listen and to renew, in a thread of its own: a worker that is busy for seconds is not dead."""
        if self._renewing is None:
            self._released = threading.Event()
            listening = threading.Event()
            self._renewing = threading.Thread(target=self._hold, args=(listening,), name="lease", daemon=True)
            self._renewing.start()
            listening.wait(_ANSWER_SECONDS)

    def _hold(self, listening: threading.Event) -> None:
        released = self._released
        while not released.is_set():
            try:
                with self._redis.pubsub() as channel:
                    channel.subscribe(self._channel(self._token))
                    while not released.is_set():
                        # Nobody publishes there but Redis, when it has begun to count this listener.
                        channel.get_message(timeout=_RENEW_SECONDS)
                        listening.set()
                        if self._held:  # not before: who claims it would find it taken, by itself
                            self._if_mine(
                                lambda transaction: transaction.set(
                                    self._name, self._token, px=_milliseconds()
                                )
                            )
                    self._if_mine(lambda transaction: transaction.delete(self._name))
            except RedisError as error:
                logger.debug("the lease waits for Redis: %s", error)
                listening.set()
                released.wait(_RENEW_SECONDS)

    def _if_mine(self, command: Callable[[Transaction], object]) -> None:
        """Do this in Redis unless another process holds the lease."""
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.watch(self._name)
            if transaction.get(self._name) in (None, self._token):
                transaction.multi()
                command(transaction)
                try:
                    transaction.execute()
                except WatchError:
                    return


def _milliseconds() -> int:
    return int(LEASE_SECONDS * 1000)
