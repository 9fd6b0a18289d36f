"""Clients of Kafka: one that could not be made leaves nothing behind, and one that was borrowed is used again."""

import ast
import contextlib
import gc
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient

import stream_dp
from stream_dp.kafka import clients

PLAIN: dict[Callable[..., Any], Callable[..., Any]] = {
    clients.admin_client: KafkaAdminClient,
    clients.consumer_client: KafkaConsumer,
    clients.producer_client: KafkaProducer,
}
ATTEMPTS = 6


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> Iterator[str]:
    """The address of a port at which nobody listens, and nobody will."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def nothing_else_keeps_or_frees(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Log records keep errors, and those keep connections; and a collector that comes by chance proves nothing.

    What is there already is left out of every collection, which takes a quarter of a second otherwise.
    """
    caplog.set_level(logging.CRITICAL + 1, "kafka")
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def left_behind(attempt: Callable[[], object]) -> tuple[int, int]:
    """Threads that failed attempts after the first have started and not ended, and how many more files are open."""
    found = []
    for _ in range(1 + ATTEMPTS):
        with pytest.raises(KafkaError):
            attempt()
        found.append((set(threading.enumerate()), len(os.listdir("/proc/self/fd"))))
    (threads, files), (threads_then, files_then) = found[0], found[-1]
    return len(threads_then - threads), files_then - files


@pytest.mark.usefixtures("nothing_else_keeps_or_frees")
@pytest.mark.parametrize("make", PLAIN, ids=lambda make: make.__name__)
@pytest.mark.parametrize("where", ["closed", "silent"])
def test_a_client_that_cannot_be_made_leaves_nothing_behind(
    make: Callable[..., Any], where: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "BOOTSTRAP_MILLISECONDS", 50)
    address = request.getfixturevalue(where)
    threads, files = left_behind(lambda: make(address))
    assert threads == 0
    assert files < ATTEMPTS / 2  # those of the latest attempt go with the next one


@pytest.mark.usefixtures("nothing_else_keeps_or_frees")
@pytest.mark.parametrize("kind", PLAIN.values(), ids=lambda kind: kind.__name__)
def test_the_clients_of_kafka_python_do_leave_something(kind: Callable[..., Any], closed: str) -> None:
    opened: list[KafkaNetClient] = []

    def connections(**options: Any) -> KafkaNetClient:
        opened.append(KafkaNetClient(**options))
        return opened[-1]

    options = {"bootstrap_servers": closed, "bootstrap_timeout_ms": 50, "kafka_client": connections}
    threads, files = left_behind(lambda: kind(**options))
    for each in opened:
        each.close()
    assert threads == (0 if kind is KafkaProducer else ATTEMPTS)
    assert files >= 3 * ATTEMPTS


def test_every_client_is_made_there() -> None:
    kinds = {kind.__name__ for kind in PLAIN.values()}
    package = Path(stream_dp.__file__).parent
    makers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in kinds
    }
    assert makers == set()


class Lent:
    """Stands for a client; knows whether it is closed."""

    def __init__(self, address: str, **settings: object) -> None:
        self.asked, self.closed = (address, settings), False
        made.append(self)

    def close(self) -> None:
        self.closed = True


made: list[Lent] = []


@pytest.fixture
def nothing_made() -> None:
    made.clear()


def borrow(address: str = "a:1", **settings: object) -> contextlib.AbstractContextManager[Any]:
    return clients.borrowed(cast(Any, Lent), address, **settings)


@pytest.mark.usefixtures("nothing_made")
def test_a_client_that_was_borrowed_is_kept_for_the_next_one() -> None:
    with clients.kept_clients():
        for _ in range(3):
            with borrow():
                assert not made[0].closed
        assert [each.closed for each in made] == [False]
    assert [each.closed for each in made] == [True]


@pytest.mark.usefixtures("nothing_made")
def test_nobody_else_has_a_client_that_is_borrowed() -> None:
    with clients.kept_clients():
        with borrow() as one, borrow() as other:
            assert one is not other
        with borrow():
            assert len(made) == 2


@pytest.mark.usefixtures("nothing_made")
def test_who_asks_for_another_kind_gets_another() -> None:
    with clients.kept_clients():
        for address, settings in (("a:1", {}), ("b:1", {}), ("a:1", {"retries": 1})):
            with borrow(address, **settings) as client:
                assert client.asked == (address, settings)
    assert [each.closed for each in made] == [True] * 3


@pytest.mark.usefixtures("nothing_made")
def test_a_client_that_failed_is_not_kept() -> None:
    with clients.kept_clients():
        with pytest.raises(KafkaError), borrow():
            raise KafkaError
        assert made[0].closed
        with borrow() as another:
            assert another is not made[0]


@pytest.mark.usefixtures("nothing_made")
def test_one_who_reads_no_further_gives_the_client_back() -> None:
    def records() -> Iterator[int]:
        with borrow():
            yield from range(9)

    with clients.kept_clients():
        for _ in range(2):
            assert any(True for _ in records())
            gc.collect()
        assert len(made) == 1


def test_a_client_may_come_back_while_its_thread_looks_for_one() -> None:
    """The collector ends readers that were left in a cycle at any moment: here while two kinds are compared."""
    shelf, found = clients._Shelf(), list[object]()
    one, other = (cast(Any, (Lent, address, ())) for address in ("a:1", "b:1"))

    class Collects:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, kind: object) -> bool:
            return kind == other or not shelf.takes_back(other, "came back")

    def asks() -> None:
        found.extend([shelf.take(cast(Any, Collects())), shelf.take(one), shelf.take(other)])

    shelf.open()
    assert shelf.takes_back(one, "was there")
    thread = threading.Thread(target=asks, daemon=True)
    thread.start()
    thread.join(10)
    assert found == ["came back", "was there", None]


@pytest.mark.usefixtures("nothing_made")
def test_clients_are_kept_until_the_last_of_two_blocks_ends() -> None:
    with clients.kept_clients():
        with clients.kept_clients(), borrow():
            pass
        assert not made[0].closed
    assert made[0].closed
    with borrow() as later:
        assert later is not made[0]
    assert made[1].closed
