"""Redis or Kafka away, frozen, full or read-only: the worker says what it waits for, and goes on by itself."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from redis import Redis

from stream_dp import sending, worker
from stream_dp.connections import Kafka, aiokafka_options
from stream_dp.dev import redis_server
from stream_dp.dev.child_process import free_port
from tests.system.conftest import KafkaOfOneTest
from tests.system.streams import Stream, ended, small_stream, some_events, wake_up
from tests.system.worker_process import PROCESSES, Pause, run_worker

PASSWORD = "open-sesame"


class OwnRedis:
    """A Redis server of one test, on a fixed port, that wants a password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"
        self.server: redis_server.RedisServer | None = None

    def start(self) -> None:
        self.server = redis_server.start(self.folder, self.port)
        with Redis(port=self.port) as client:
            client.config_set("requirepass", PASSWORD)

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
            self.server = None

    def kill(self) -> None:
        assert self.server is not None
        self.server.process.kill()
        self.stop()

    def client(self) -> Redis:
        return Redis.from_url(self.url)


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    redis = OwnRedis(tmp_path / "redis")
    redis.start()
    yield redis
    redis.stop()


@pytest.fixture
def stream(kafka: str, own_redis: OwnRedis, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    """Its Redis can be stopped; Kafka is everybody's."""
    with small_stream(kafka, own_redis.url, topic_prefix, tmp_path) as stream:
        yield stream


@pytest.fixture
def stream_on_own_kafka(
    own_kafka: KafkaOfOneTest, redis_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Stream]:
    """Its broker can be stopped; Redis is everybody's."""
    with small_stream(own_kafka.address, redis_url, topic_prefix, tmp_path) as stream:
        yield stream


def check_that_it_goes_on(stream: Stream, rounds: int) -> None:
    """The one worker that runs reaches the round, ends when asked, and nothing was drawn anew."""
    (worker,) = stream.workers
    stream.wait_until_round(rounds, worker)
    worker.terminate()
    assert ended(worker) == 0
    stream.check_everything()


def test_redis_and_the_broker_gone_at_once_are_waited_for(
    own_kafka: KafkaOfOneTest, own_redis: OwnRedis, topic_prefix: str, tmp_path: Path
) -> None:
    """A checkpoint fails while the broker is away: the clients that are then put away must not end the worker."""
    with small_stream(own_kafka.address, own_redis.url, topic_prefix, tmp_path) as stream:
        stream.feed(some_events(45, seed=1))
        worker = stream.start(checkpoint_rounds=1000, checkpoint_seconds=3)
        stream.wait_until_round(45, worker)
        own_redis.stop()
        own_kafka.stop()
        stream.wait_until_logged("waiting for Redis", times=3)
        own_redis.start()
        stream.wait_until_logged("waiting for Kafka")
        own_kafka.start()
        stream.feed(some_events(45, seed=2))
        check_that_it_goes_on(stream, 90)


def waits(stream: Stream) -> list[float]:
    """How long the worker said it would wait, in seconds."""
    return [
        float(seconds)
        for seconds in re.findall(r"waiting for .*trying again in ([0-9.]+) s", stream.logged())
    ]


@pytest.mark.parametrize("end", [OwnRedis.stop, OwnRedis.kill])
def test_a_redis_that_is_gone_is_waited_for(
    stream: Stream, own_redis: OwnRedis, end: Callable[[OwnRedis], None]
) -> None:
    stream.feed(some_events(50, seed=1))
    worker = stream.start(checkpoint_seconds=0.1)
    stream.wait_until_round(50, worker)
    end(own_redis)
    stream.feed(some_events(50, seed=2))
    stream.wait_until_logged("waiting for Redis at 127.0.0.1", times=4)
    first, *later = waits(stream)
    assert first < 1
    assert sorted(later) == later
    assert later[-1] > first
    own_redis.start()
    check_that_it_goes_on(stream, 100)
    assert PASSWORD not in stream.logged()


def test_a_redis_that_goes_and_comes_at_every_moment_is_no_takeover(
    stream: Stream, own_redis: OwnRedis
) -> None:
    """Clients cut off in the middle of a checkpoint must not be told that another worker has the stream.

    Six times: the worker waits twice as long after each.
    """
    stream.feed(some_events(300, seed=1))
    worker = stream.start(batch_rounds=1, checkpoint_rounds=1)
    with own_redis.client() as client:
        for rounds in range(40, 280, 40):
            stream.wait_until_round(rounds, worker)
            client.client_kill_filter(_type="normal", skipme=True)
    check_that_it_goes_on(stream, 300)


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
    worker = stream.start(checkpoint_seconds=0.1)
    stream.wait_until_round(50, worker)
    with own_redis.client() as client:
        refuse(client)
        stream.feed(some_events(50, seed=2))
        stream.wait_until_logged("waiting for Redis", times=2)
        assert re.search(told, stream.logged(), re.IGNORECASE)
        assert "rare" not in stream.logged(), "labels are private"
        allow(client)
    check_that_it_goes_on(stream, 100)


def test_a_worker_may_start_before_redis_and_end_without_it(stream: Stream, own_redis: OwnRedis) -> None:
    own_redis.stop()
    ending = stream.start()
    stream.wait_until_logged("waiting for Redis", times=2)
    ending.terminate()
    assert ended(ending) == 0
    stream.workers.clear()
    worker = stream.start()
    stream.feed(some_events(20, seed=1))
    own_redis.start()
    assert worker.is_alive()
    check_that_it_goes_on(stream, 20)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_is_gone_is_waited_for(
    stream_on_own_kafka: Stream, own_kafka: KafkaOfOneTest, how: str
) -> None:
    stream = stream_on_own_kafka
    stream.feed(some_events(300, seed=1))
    worker = stream.start(batch_rounds=1, checkpoint_rounds=5)
    stream.wait_until_round(20, worker)
    getattr(own_kafka, how)()
    own_kafka.start()
    stream.feed(some_events(50, seed=2))
    check_that_it_goes_on(stream, 350)


def test_a_worker_that_meets_no_broker_says_so_and_starts_when_there_is_one(
    stream_on_own_kafka: Stream, own_kafka: KafkaOfOneTest
) -> None:
    stream = stream_on_own_kafka
    stream.feed(some_events(50, seed=1))
    own_kafka.stop()
    worker = stream.start()
    stream.wait_until_logged(f"waiting for Kafka at {own_kafka.address}")
    assert worker.is_alive()
    own_kafka.start()
    check_that_it_goes_on(stream, 50)


def test_a_worker_whose_broker_is_gone_still_ends_when_asked(
    stream_on_own_kafka: Stream, own_kafka: KafkaOfOneTest
) -> None:
    """What the broker has acknowledged is checkpointed; only the offset for monitors is not committed."""
    stream = stream_on_own_kafka
    stream.feed(some_events(50, seed=1))
    worker = stream.start()
    stream.wait_until_round(50, worker)
    own_kafka.stop()
    worker.terminate()
    assert ended(worker) == 0
    assert stream.checkpoint().state.round == 50
    own_kafka.start()
    stream.check_everything()


def run_impatient_worker(*arguments: Any) -> None:
    """A worker whose clients wait a second for an answer and not forty, and which says so as soon."""

    def options(kafka: Kafka) -> dict[str, Any]:
        return aiokafka_options(kafka) | {"request_timeout_ms": 1_000}

    sending.aiokafka_options = worker.aiokafka_options = options  # type: ignore[attr-defined]
    worker._LONGEST_SILENCE_SECONDS = 1.0
    run_worker(*arguments)


@contextmanager
def frozen(kafka: KafkaOfOneTest) -> Iterator[None]:
    """Its connections stay open meanwhile, and nothing that comes in is answered."""
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kafka.pid, signal.SIGCONT)


def test_a_broker_that_is_frozen_beyond_the_producers_time_out_is_waited_for(
    stream_on_own_kafka: Stream, own_kafka: KafkaOfOneTest
) -> None:
    """What the broker had received and not answered, it stores when it wakes up, while the worker sends it again."""
    stream = stream_on_own_kafka
    stream.feed(some_events(60, seed=1))
    pause = Pause("hand a batch to the producer", nth=30)
    arguments = (replace(stream.settings, batch_rounds=1, checkpoint_rounds=5), str(stream.log_file), pause)
    worker = PROCESSES.Process(target=run_impatient_worker, args=arguments)
    worker.start()
    stream.workers.append(worker)
    stream.wait_until_asleep(worker)
    with frozen(own_kafka):
        wake_up(worker)
        stream.wait_until_logged(f"waiting for Kafka at {own_kafka.address}", times=2)
        assert worker.is_alive()
    stream.feed(some_events(20, seed=2))
    check_that_it_goes_on(stream, 80)
