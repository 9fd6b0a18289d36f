"""How long a stream releases nothing after its worker is killed: with a standby, and with a worker started anew."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from threading import Event, Thread

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from rich.console import Console
from rich.table import Table

from stream_dp import log
from stream_dp.dev.servers import embedded
from stream_dp.settings import Settings
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka

TURNS = 3
LABELS = 2_000
EVENTS_PER_SECOND = 100
_GIVE_UP_SECONDS = 120.0
_STANDS_BY = "this one stands by"


def main(console: Console) -> None:
    """Print the seconds without a release for both brokers; Apache Kafka where Java and Maven are there."""
    table = Table("broker", "standby: s", "cold restart: s", "cold / standby")
    table.title = f"From kill -9 of the worker to the next release, median of {TURNS}, {LABELS:,} labels"
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as servers:
        _row(table, "embedded", servers.kafka, servers.redis_url, Path(folder))
        try:
            with apache_kafka(Path(folder) / "apache") as kafka:
                _row(table, "Apache Kafka", kafka, servers.redis_url, Path(folder))
        except KafkaUnavailableError as reason:
            console.print(f"Without Apache Kafka: {reason}")
    console.print(table)


def _row(table: Table, broker: str, kafka: str, redis: str, folder: Path) -> None:
    stream = f"standby-{broker.split()[0].lower()}"
    settings = Settings(stream=stream, kafka=kafka, redis=redis, horizon=2**20 - 1)
    log.create_topics(kafka, settings.events)
    done = Event()
    feeding = Thread(target=_feed, args=(settings, done))
    feeding.start()
    try:
        warm = [_outage(settings, folder, standby=True) for _ in range(TURNS)]
        cold = [_outage(settings, folder, standby=False) for _ in range(TURNS)]
    finally:
        done.set()
        feeding.join()
    table.add_row(broker, f"{median(warm):.2f}", f"{median(cold):.2f}", f"{median(cold) / median(warm):.1f}")


def _feed(settings: Settings, done: Event) -> None:
    with KafkaProducer(bootstrap_servers=settings.kafka, linger_ms=0) as producer:
        for number in range(10**9):
            producer.send(settings.events, b'{"items":["label %d"]}' % (number % LABELS))
            if done.wait(1 / EVENTS_PER_SECOND):
                return


def _outage(settings: Settings, folder: Path, standby: bool) -> float:
    """Seconds without a release after the worker was killed."""
    workers = [_start(settings, folder / "active.log")]
    partition = TopicPartition(settings.releases, 0)
    try:
        with KafkaConsumer(bootstrap_servers=settings.kafka) as consumer:
            _await(lambda: settings.releases in consumer.topics())
            consumer.assign([partition])
            consumer.seek_to_end(partition)
            _await(lambda: bool(consumer.poll(100)))
            if standby:
                told = folder / "standby.log"
                told.unlink(missing_ok=True)
                workers.append(_start(settings, told, "--standby"))
                _await(lambda: _STANDS_BY in told.read_text())
                time.sleep(2.0)  # so that it has read a checkpoint
            workers[0].kill()
            workers[0].wait()
            killed = time.perf_counter()
            if not standby:
                workers.append(_start(settings, folder / "restarted.log"))
            while consumer.poll(0):  # what the dead one had sent
                continue
            consumer.seek_to_end(partition)
            consumer.position(partition)
            _await(lambda: bool(consumer.poll(10)))
            return time.perf_counter() - killed
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _start(settings: Settings, log_file: Path, *options: str) -> "subprocess.Popen[bytes]":
    """`stream-dp worker` as an operator starts it."""
    place = ("--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis)
    command = [sys.executable, "-m", "stream_dp.cli", "worker", *place, *options]
    environment = {**os.environ, "STREAM_DP_HORIZON": str(settings.horizon)}
    with log_file.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("nothing is released")
        time.sleep(0.005)
