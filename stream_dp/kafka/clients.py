"""The clients of kafka-python, made in one place.

While it is made, a client of kafka-python 3.0.12 asks the broker who it is, and where that fails it keeps its
connections, and all but the producer their thread too.  Whoever waits an outage out by trying again would have no file
left to open after an hour.  Here a client that could not be made leaves nothing behind.

And none of them makes a topic by asking for it, or keeps statistics that nobody reads: those are a tenth to a third of
the processor time of a request.

Making one costs several requests and a thread.  So those who ask for a moment only borrow a client, and within
`kept_clients` it stays connected for whoever asks next.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, TypeVar

import kafka.consumer.fetcher
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from stream_dp.config.connections import Kafka, kafka_options
from stream_dp.kafka.record_batches import read_within_bounds

BOOTSTRAP_MILLISECONDS = 5_000  # the default says nothing of a missing broker for half a minute
_PRODUCER = {"acks": "all", "enable_idempotence": True, "metrics_enabled": False}

_Client = TypeVar("_Client", bound=KafkaAdminClient | KafkaConsumer | KafkaProducer)
_Any = TypeVar("_Any")
_Request = tuple[Callable[..., Any], Kafka, tuple[tuple[str, Any], ...]]

read_within_bounds(kafka.consumer.fetcher)


def admin_client(kafka: Kafka, **settings: Any) -> KafkaAdminClient:
    """An admin client; `settings` as below.  Raises KafkaError if no broker answers in time."""
    return _made(KafkaAdminClient, kafka, settings)


def consumer_client(kafka: Kafka, **settings: Any) -> KafkaConsumer:
    """A consumer; `settings` are those of kafka-python.  Raises KafkaError if no broker answers in time."""
    return _made(KafkaConsumer, kafka, {"metrics_enabled": False} | settings)


def producer_client(kafka: Kafka, **settings: Any) -> KafkaProducer:
    """A producer whose records are stored once and in order, or not at all; `settings` as above.

    Raises KafkaError if no broker answers in time.
    """
    return _made(KafkaProducer, kafka, _PRODUCER | settings)


@contextmanager
def kept_clients() -> Iterator[None]:
    """Within this block, in whatever thread, a client that was borrowed is kept for the next who borrows such a one.

    It decorates functions too, which are such a block each time that they are called.
    """
    _shelf.open()
    try:
        yield
    finally:
        _shelf.close()


@contextmanager
def borrowed(make: Callable[..., _Client], kafka: Kafka, **settings: Any) -> Iterator[_Client]:
    """What `make(kafka, **settings)` gives, for nobody else within this block; one that fails there is not kept."""
    request = make, kafka, tuple(settings.items())
    client, failed = _shelf.take(request) or make(kafka, **settings), False
    try:
        yield client
    except Exception:
        failed = True
        raise
    finally:
        if failed or not _shelf.takes_back(request, client):
            client.close()


class _Connections(KafkaConnectionManager):
    """Gives up at once if the broker does not let this user in.

    While it bootstraps, kafka-python 3.0.12 would try again until its time is over, and say that it timed out.
    """

    _refusal: Exception | None = None

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """See `KafkaConnectionManager`.  Raises what the last connection was refused with."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        connection = super().get_connection(*arguments, **options)
        connection.init_future.add_errback(self._note)
        return connection

    def _note(self, failure: Exception) -> None:
        if isinstance(failure, SaslAuthenticationFailedError | UnsupportedSaslMechanismError):
            self._refusal = failure


class NotAuthenticated(SaslAuthenticationFailedError):
    """Kafka does not let this user in; the message says what to change."""

    def __init__(self, kafka: Kafka, why: str) -> None:
        super().__init__(why)
        self._text = (
            f"Kafka at {kafka} refuses the user or the password: authentication failed ({why}); change kafka_username, "
            "kafka_password or kafka_sasl_mechanism"
        )

    def __str__(self) -> str:
        return self._text


class _Shelf:
    """The clients that nobody has borrowed just now; it keeps them while it is open.

    The collector may end a reader that was left in a cycle wherever memory is asked for, in here too.  Then the same
    thread brings a client back, which stands behind all others, while it looks for one.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._opened = 0
        self._clients: list[tuple[_Request, Any]] = []

    def open(self) -> None:
        with self._lock:
            self._opened += 1

    def close(self) -> None:
        """Undo one `open`; the last one closes the clients that are kept."""
        with self._lock:
            self._opened -= 1
            left, self._clients = ([], self._clients) if self._opened else (self._clients, [])
        for _, client in left:
            client.close()

    def take(self, request: _Request) -> Any:
        """A client of this kind; None where it has none."""
        with self._lock:
            place = next((place for place, (kind, _) in enumerate(self._clients) if kind == request), None)
            return None if place is None else self._clients.pop(place)[1]

    def takes_back(self, request: _Request, client: Any) -> bool:
        """Take a client back, and say whether it is kept for the next one who asks."""
        with self._lock:
            if self._opened:
                self._clients.append((request, client))
            return self._opened > 0


_shelf = _Shelf()


def _made(kind: Callable[..., _Any], kafka: Kafka, settings: dict[str, Any]) -> _Any:
    opened: list[KafkaNetClient] = []

    def connections(**options: Any) -> KafkaNetClient:
        unmeasured = options | {"metrics": None}  # admin clients have no option for it
        selector = NetworkSelector(**unmeasured)
        opened.append(KafkaNetClient(selector, _Connections(selector, **unmeasured), **unmeasured))
        # Consumers and producers of kafka-python 3.0.12 accept this option and do not pass it on.
        opened[-1].cluster.config["allow_auto_create_topics"] = False
        return opened[-1]

    defaults = {"bootstrap_timeout_ms": BOOTSTRAP_MILLISECONDS}
    try:
        return kind(**kafka_options(kafka), **defaults | settings, kafka_client=connections)
    except BaseException as failure:
        for each in opened:
            each.close()
        gc.collect()  # refused connections lie in reference cycles, and each holds a file open
        if isinstance(failure, SaslAuthenticationFailedError | UnsupportedSaslMechanismError):
            raise NotAuthenticated(kafka, ": ".join(map(str, failure.args))) from None
        raise
