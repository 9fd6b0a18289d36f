"""How long a stream releases nothing after its worker is killed: with a standby, and with a worker started anew.

For the standby also when it had noticed, and when its start was done: every check made, and what was published after
the checkpoint computed again.  With a state of a few labels, and with one of a million.
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

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from redis import Redis
from rich.console import Console
from rich.table import Table

from benchmarks.measure import processor_seconds
from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from stream_dp.kafka import log
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka

SMALL, LARGE = 2_000, 1_000_000
TURNS = {SMALL: 5, LARGE: 3}
_ITEMS_PER_EVENT = {SMALL: 1, LARGE: 1_000}
_EVENTS_PER_SECOND = {SMALL: 100, LARGE: 5}
_GIVE_UP_SECONDS = 600.0
_READY = "it is ready to take over"
_LINES = "this one takes over", "epoch 1, round "
"""What a standby logs when it has noticed, and a worker when its start is done."""


class Outage(NamedTuple):
    """Seconds from the kill until it was noticed, until the start was done, and until a release was seen.

    `worked`: seconds that the processor worked for the process that takes over, from the kill to that release.  On a
    busy machine they are fewer than those that passed.
    """

    noticed: float
    started: float
    released: float
    worked: float

    @classmethod
    def median_of(cls, outages: "list[Outage]") -> "Outage":
        """That of each of them."""
        return cls(*map(median, zip(*outages, strict=True)))


def main(console: Console) -> None:
    """Print the seconds without a release for both brokers; Apache Kafka where Java and Maven are there."""
    table = Table(
        "broker",
        "labels",
        "noticed: s",
        "started: s",
        "released: s",
        "processor: s",
        "cold restart: s",
        "processor: s",
    )
    table.title = f"From kill -9 of the worker to the next release, median; machine's load {_load()}"
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as servers:
        for labels in (SMALL, LARGE):
            _row(table, "embedded", labels, servers.kafka, servers.redis_url, Path(folder))
        try:
            with apache_kafka(Path(folder) / "apache") as kafka:
                for labels in (SMALL, LARGE):
                    _row(table, "Apache Kafka", labels, kafka, servers.redis_url, Path(folder))
        except KafkaUnavailableError as reason:
            console.print(f"Without Apache Kafka: {reason}")
    console.print(table)


def _row(table: Table, broker: str, labels: int, kafka: str, redis: str, folder: Path) -> None:
    settings = Settings(
        stream=f"standby-{broker.split()[0].lower()}-{labels}",
        kafka=kafka,
        redis=redis,
        epsilon=30.0,
        horizon=2**20 - 1,
        items_per_event=_ITEMS_PER_EVENT[labels],
    )
    log.create_topics(kafka, settings.events)
    done = Event()
    feeding = Thread(target=_feed, args=(settings, labels, done))
    feeding.start()
    try:
        _count_all(settings, labels, folder)
        warm = Outage.median_of([_outage(settings, folder, standby=True) for _ in range(TURNS[labels])])
        cold = Outage.median_of([_outage(settings, folder, standby=False) for _ in range(TURNS[labels])])
    finally:
        done.set()
        feeding.join()
    seconds = f"{cold.released:.2f}", f"{cold.worked:.2f}"
    table.add_row(broker, f"{labels:,}", *(f"{each:.2f}" for each in warm), *seconds)


def _feed(settings: Settings, labels: int, done: Event) -> None:
    """Every label once, as fast as the broker takes them, and then one after the other."""
    per_event = settings.items_per_event
    with KafkaProducer(bootstrap_servers=settings.kafka, linger_ms=0) as producer:
        for first in range(0, labels, per_event):
            items = [f"https://shop.example/article/{each}" for each in range(first, first + per_event)]
            producer.send(settings.events, msgspec.json.encode({"items": items}))
        producer.flush()
        for number in range(10**9):
            producer.send(
                settings.events, b'{"items":["https://shop.example/article/%d"]}' % (number % labels)
            )
            if done.wait(1 / _EVENTS_PER_SECOND[labels]):
                return


def _count_all(settings: Settings, labels: int, folder: Path) -> None:
    """Have a worker count every label once, and save the state."""
    worker = _start(settings, folder / "first.log")
    try:
        with Redis.from_url(settings.redis) as redis:
            _await(lambda: redis.llen(f"stream_dp:{{{settings.stream}}}:labels") == labels)
    finally:
        worker.terminate()
        worker.wait()


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
                _await(lambda: _READY in told.read_text())
            workers[0].kill()
            workers[0].wait()
            killed = time.perf_counter()
            if not standby:
                workers.append(_start(settings, told))
            worked = processor_seconds(workers[1].pid) if standby else 0.0
            seen: dict[str, float] = {}
            reading = Thread(target=_note_lines, args=(told, seen))
            reading.start()
            while consumer.poll(0):  # what the dead one had sent
                continue
            consumer.seek_to_end(partition)
            consumer.position(partition)
            _await(lambda: bool(consumer.poll(10)))
            released, worked = time.perf_counter(), processor_seconds(workers[1].pid) - worked
            reading.join()
            noticed, started = (seen.get(line, killed) - killed for line in _LINES)
            return Outage(noticed, started, released - killed, worked)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _load() -> str:
    return f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"


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
    environment = {
        **os.environ,
        "STREAM_DP_HORIZON": str(settings.horizon),
        "STREAM_DP_EPSILON": str(settings.epsilon),
        "STREAM_DP_ITEMS_PER_EVENT": str(settings.items_per_event),
    }
    with log_file.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("nothing is released")
        time.sleep(0.005)
