"""How long a stream releases nothing after its worker is killed: with a standby, and with a worker started anew.

For the standby also when it had noticed, and when its start was done: every check made, and what was published after
the checkpoint computed again.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import NamedTuple

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from rich.console import Console
from rich.table import Table

from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from stream_dp.kafka import log
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka

TURNS = 5
LABELS = 2_000
EVENTS_PER_SECOND = 100
_GIVE_UP_SECONDS = 120.0
_STANDS_BY = "this one stands by"
_LINES = "this one takes over", "epoch 1, round "
"""What a standby logs when it has noticed, and a worker when its start is done."""


class Outage(NamedTuple):
    """Seconds from the kill until it was noticed, until the start was done, and until a release was seen."""

    noticed: float
    started: float
    released: float

    @classmethod
    def median_of(cls, outages: "list[Outage]") -> "Outage":
        """That of each of the three."""
        return cls(*map(median, zip(*outages, strict=True)))


def main(console: Console) -> None:
    """Print the seconds without a release for both brokers; Apache Kafka where Java and Maven are there."""
    table = Table("broker", "noticed: s", "started: s", "released: s", "cold restart: s", "cold / standby")
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
        warm = Outage.median_of([_outage(settings, folder, standby=True) for _ in range(TURNS)])
        cold = Outage.median_of([_outage(settings, folder, standby=False) for _ in range(TURNS)])
    finally:
        done.set()
        feeding.join()
    seconds = f"{cold.released:.2f}", f"{cold.released / warm.released:.1f}"
    table.add_row(broker, *(f"{each:.2f}" for each in warm), *seconds)


def _feed(settings: Settings, done: Event) -> None:
    with KafkaProducer(bootstrap_servers=settings.kafka, linger_ms=0) as producer:
        for number in range(10**9):
            producer.send(settings.events, b'{"items":["label %d"]}' % (number % LABELS))
            if done.wait(1 / EVENTS_PER_SECOND):
                return


def _outage(settings: Settings, folder: Path, standby: bool) -> Outage:
    """What a kill of the worker does."""
    workers, told = [_start(settings, folder / "active.log")], folder / "next.log"
    partition = TopicPartition(settings.releases, 0)
    try:
        with KafkaConsumer(bootstrap_servers=settings.kafka) as consumer:
            _await(lambda: settings.releases in consumer.topics())
            consumer.assign([partition])
            consumer.seek_to_end(partition)
            _await(lambda: bool(consumer.poll(100)))
            if standby:
                workers.append(_start(settings, told, "--standby"))
                _await(lambda: _STANDS_BY in told.read_text())
                time.sleep(2.0)  # so that it has read a checkpoint
            workers[0].kill()
            workers[0].wait()
            killed = time.perf_counter()
            if not standby:
                workers.append(_start(settings, told))
            seen: dict[str, float] = {}
            reading = Thread(target=_note_lines, args=(told, seen))
            reading.start()
            while consumer.poll(0):  # what the dead one had sent
                continue
            consumer.seek_to_end(partition)
            consumer.position(partition)
            _await(lambda: bool(consumer.poll(10)))
            released = time.perf_counter()
            reading.join()
            noticed, started = (seen.get(line, killed) - killed for line in _LINES)
            return Outage(noticed, started, released - killed)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _note_lines(told: Path, seen: dict[str, float]) -> None:
    """When each of the lines came, until the last of them has."""
    while _LINES[-1] not in seen:
        text = told.read_text()
        seen |= {line: time.perf_counter() for line in _LINES if line in text and line not in seen}
        time.sleep(0.005)


def _start(settings: Settings, log_file: Path, *options: str) -> "subprocess.Popen[bytes]":
    """`stream-dp worker` as an operator starts it."""
    place = ("--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis)
    command = [sys.executable, "-m", "stream_dp.cli", "worker", "--unmetered", *place, *options]
    environment = {**os.environ, "STREAM_DP_HORIZON": str(settings.horizon)}
    with log_file.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("nothing is released")
        time.sleep(0.005)
