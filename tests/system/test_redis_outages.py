"""Redis away, full or read-only: the worker says what it waits for, and goes on by itself."""

import os
import re
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from redis import Redis

from stream_dp.operations import backoff, bounded_http, ports
from stream_dp.operations.ports import _MOST_CONNECTIONS
from tests.apache_kafka.server import free_ports
from tests.system.example_events import some_events
from tests.system.own_redis import PASSWORD, OwnRedis, own_redis_server
from tests.system.streams import Stream, small_stream
from tests.system.test_outages import check_that_it_goes_on
from tests.system.waiting import wait_until
from tests.system.worker_process import PROCESSES, run_worker


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    with own_redis_server(tmp_path / "redis") as redis:
        yield redis


@pytest.fixture
def stream(kafka: str, own_redis: OwnRedis, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    """Its Redis can be stopped; Kafka is everybody's."""
    with small_stream(kafka, own_redis.url, topic_prefix, tmp_path) as stream:
        yield stream


@pytest.mark.parametrize("end", [OwnRedis.stop, OwnRedis.kill])
def test_a_redis_that_is_gone_is_waited_for(
    stream: Stream, own_redis: OwnRedis, end: Callable[[OwnRedis], None]
) -> None:
    stream.feed(some_events(50, seed=1))
    worker = stream.start(checkpoint_every="100ms")
    stream.wait_until_round(50, worker)
    end(own_redis)
    stream.feed(some_events(50, seed=2))
    stream.wait_until_logged("waiting for Redis at 127.0.0.1", times=4)
    own_redis.start()
    stream.wait_until_saved(100)
    stream.wait_until_logged("and it goes on")
    check_that_it_goes_on(stream, 100)
    assert PASSWORD not in stream.logged()


def test_a_redis_that_goes_and_comes_at_every_moment_is_no_takeover(
    stream: Stream, own_redis: OwnRedis
) -> None:
    """Clients cut off in the middle of a checkpoint must not be told that another worker has the stream.

    Each time the worker waits as shortly as after the first one.
    """
    stream.feed(some_events(300, seed=1))
    settings = replace(stream.settings, batch_rounds=1, checkpoint_every="1")
    worker = PROCESSES.Process(target=run_quick_worker, args=(settings, str(stream.log_file), None))
    worker.start()
    stream.workers.append(worker)
    with own_redis.client() as client:
        for rounds in range(25, 275, 25):
            stream.wait_until_round(rounds, worker)
            client.client_kill_filter(_type="normal", skipme=True)
    check_that_it_goes_on(stream, 300)


def run_quick_worker(*arguments: Any) -> None:
    """A worker that never waits longer than at first before it tries again."""
    backoff._LONGEST_WAIT_SECONDS = backoff._FIRST_WAIT_SECONDS
    run_worker(*arguments)


STRANGERS, DESCRIPTORS, WAITING = 300, 192, 100
"""So many connect, as many more as a worker has descriptors; so many want those that become free."""


def test_silent_strangers_on_a_port_leave_descriptors_for_redis(stream: Stream, own_redis: OwnRedis) -> None:
    with besieged(stream, _MOST_CONNECTIONS) as worker:
        own_redis.stop()
        stream.feed(some_events(50, seed=2))
        stream.wait_until_logged("waiting for Redis at 127.0.0.1", times=2)
        own_redis.start()
        stream.wait_until_saved(100)
        assert open_files(worker) < DESCRIPTORS
        check_that_it_goes_on(stream, 100)


def test_without_a_limit_silent_strangers_take_all_descriptors(stream: Stream, own_redis: OwnRedis) -> None:
    """So the test above would find it."""
    with besieged(stream, STRANGERS) as worker:
        own_redis.stop()
        stream.wait_until_logged("waiting for Redis at 127.0.0.1")
        wait_until(lambda: open_files(worker) >= DESCRIPTORS, stream.logged)
        own_redis.start()
        before = len(stream.logged())
        wait_until(lambda: "Too many open files" in stream.logged()[before:], stream.logged)


@contextmanager
def besieged(stream: Stream, most: int) -> Iterator[BaseProcess]:
    """A worker that has released 50 rounds, and strangers on its port, which may have `most` connections."""
    stream.feed(some_events(50, seed=1))
    port = ("127.0.0.1", free_ports()[0])
    settings = replace(stream.settings, metrics_address=f"{port[0]}:{port[1]}", checkpoint_every="100ms")
    arguments = most, settings, str(stream.log_file), None
    worker = PROCESSES.Process(target=run_worker_with_few_descriptors, args=arguments)
    worker.start()
    stream.workers.append(worker)
    stream.wait_until_round(50, worker)
    with ExitStack() as ends:
        for _ in range(STRANGERS):
            if open_files(worker) < DESCRIPTORS:
                ends.enter_context(socket.create_connection(port))
        for _ in range(WAITING):
            stranger = ends.enter_context(socket.socket())
            stranger.setblocking(False)
            stranger.connect_ex(port)
        yield worker


def open_files(worker: BaseProcess) -> int:
    return len(os.listdir(f"/proc/{worker.pid}/fd"))


def run_worker_with_few_descriptors(most: int, *arguments: Any) -> None:
    """A worker that could not open many files, with so many connections to a port; strangers come back at once."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    ports._MOST_CONNECTIONS = most
    bounded_http.HEADER_SECONDS = 3600.0
    run_worker(*arguments)


Refuse = Callable[[Redis], object]
REFUSALS: dict[str, tuple[Refuse, Refuse, str]] = {
    "it is full": (
        lambda redis: redis.config_set("maxmemory", 1),
        lambda redis: redis.config_set("maxmemory", 0),
        "maxmemory",
    ),
    "it is read-only": (
        lambda redis: redis.replicaof("127.0.0.1", "1"),
        lambda redis: redis.replicaof("NO", "ONE"),
        "read only",
    ),
    "it has too few replicas": (
        lambda redis: redis.config_set("min-replicas-to-write", 1),
        lambda redis: redis.config_set("min-replicas-to-write", 0),
        "replicas",
    ),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_redis_that_takes_no_writes_is_waited_for(stream: Stream, own_redis: OwnRedis, reason: str) -> None:
    refuse, allow, told = REFUSALS[reason]
    stream.feed(some_events(50, seed=1))
    worker = stream.start(checkpoint_every="100ms")
    stream.wait_until_round(50, worker)
    with own_redis.client() as client:
        refuse(client)
        stream.feed(some_events(50, seed=2))
        stream.wait_until_logged("waiting for Redis", times=2)
        assert re.search(told, stream.logged(), re.IGNORECASE)
        assert "rare" not in stream.logged(), "labels are private"
        allow(client)
    stream.wait_until_saved(100)
    check_that_it_goes_on(stream, 100)


def test_a_worker_may_start_before_redis_and_end_without_it(stream: Stream, own_redis: OwnRedis) -> None:
    own_redis.stop()
    ending = stream.start()
    stream.wait_until_logged("waiting for Redis", times=2)
    stream.stop(ending)
    stream.workers.clear()
    worker = stream.start()
    stream.feed(some_events(20, seed=1))
    own_redis.start()
    assert worker.is_alive()
    check_that_it_goes_on(stream, 20)
