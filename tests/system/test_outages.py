"""Kafka away or frozen: the worker says what it waits for, and goes on by itself; for Redis see test_redis_outages."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stream_dp.config.connections import Kafka, aiokafka_options
from stream_dp.kafka import clients
from stream_dp.sinks import sending
from stream_dp.workers import histogram as worker
from tests.system.conftest import KafkaOfOneTest
from tests.system.example_events import some_events
from tests.system.own_redis import own_redis_server
from tests.system.streams import Stream, small_stream, wake_up
from tests.system.worker_process import PROCESSES, Interruption, Pause, run_worker

pytestmark = pytest.mark.apache("outages")


@pytest.fixture
def stream_on_own_kafka(
    own_kafka: KafkaOfOneTest, redis_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Stream]:
    """Its broker can be stopped; Redis is everybody's."""
    with small_stream(own_kafka.address, redis_url, topic_prefix, tmp_path) as stream:
        yield stream


def run_impatient_worker(*arguments: Any) -> None:
    """A worker whose clients wait a second or two for an answer and not up to forty, and which says so as soon."""

    def options(kafka: Kafka) -> dict[str, Any]:
        return aiokafka_options(kafka) | {"request_timeout_ms": 1_000}

    sending.aiokafka_options = worker.aiokafka_options = options  # type: ignore[attr-defined]
    sending._LONGEST_SILENCE_SECONDS = sending._FLUSH_SECONDS = 1.0
    clients.BOOTSTRAP_MILLISECONDS = 2_000
    run_worker(*arguments)


def start_impatient(stream: Stream, interruption: Interruption | None = None, **changed: Any) -> BaseProcess:
    """Such a worker of this stream."""
    arguments = (replace(stream.settings, **changed), str(stream.log_file), interruption)
    process = PROCESSES.Process(target=run_impatient_worker, args=arguments)
    process.start()
    stream.workers.append(process)
    return process


def check_that_it_goes_on(stream: Stream, rounds: int) -> None:
    """The one worker that runs reaches the round, ends when asked, and nothing was drawn anew."""
    (worker,) = stream.workers
    stream.wait_until_round(rounds, worker)
    stream.stop(worker)
    stream.check_everything()


def test_redis_and_the_broker_gone_at_once_are_waited_for(
    own_kafka: KafkaOfOneTest, topic_prefix: str, tmp_path: Path
) -> None:
    """A checkpoint fails while the broker is away: the clients that are then put away must not end the worker."""
    with (
        own_redis_server(tmp_path / "redis") as own_redis,
        small_stream(own_kafka.address, own_redis.url, topic_prefix, tmp_path) as stream,
    ):
        stream.feed(some_events(45, seed=1))
        worker = start_impatient(stream, checkpoint_every="1s")
        stream.wait_until_round(45, worker)
        own_redis.stop()
        own_kafka.stop()
        stream.wait_until_logged("waiting for ", times=3)  # whichever is asked first
        own_redis.start()
        stream.wait_until_logged("waiting for Kafka")
        own_kafka.start()
        stream.feed(some_events(45, seed=2))
        check_that_it_goes_on(stream, 90)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_is_gone_is_waited_for(
    stream_on_own_kafka: Stream, own_kafka: KafkaOfOneTest, how: str
) -> None:
    stream = stream_on_own_kafka
    stream.feed(some_events(300, seed=1))
    worker = stream.start(batch_rounds=1, checkpoint_every="5")
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
    worker = start_impatient(stream)
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
    worker = start_impatient(stream)
    stream.wait_until_round(50, worker)
    own_kafka.stop()
    stream.stop(worker)
    assert stream.checkpoint().state.round == 50
    own_kafka.start()
    stream.check_everything()


@contextmanager
def frozen(kafka: KafkaOfOneTest) -> Iterator[None]:
    """Its connections stay open meanwhile, and nothing that comes in is answered."""
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kafka.pid, signal.SIGCONT)


@pytest.mark.parametrize("every", ["5", "1000"])
def test_a_broker_that_is_frozen_beyond_the_producers_time_out_is_waited_for(
    stream_on_own_kafka: Stream, own_kafka: KafkaOfOneTest, every: str
) -> None:
    """What the broker had received and not answered, it stores when it wakes up, while the worker sends it again.

    The worker waits for its answer before it saves its state, or until it cannot hand over another batch.
    """
    stream = stream_on_own_kafka
    stream.feed(some_events(60, seed=1))
    pause = Pause("hand a batch to the producer", nth=30)
    worker = start_impatient(stream, pause, batch_rounds=1, checkpoint_every=every)
    stream.wait_until_asleep(worker)
    with frozen(own_kafka):
        wake_up(worker)
        stream.wait_until_logged(f"waiting for Kafka at {own_kafka.address}", times=2)
        assert worker.is_alive()
    stream.feed(some_events(20, seed=2))
    check_that_it_goes_on(stream, 80)
