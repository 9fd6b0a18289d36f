"""What the process that writes barriers takes of a core: a topic of 200 partitions, and a barrier a second."""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import processor_seconds
from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from stream_dp.kafka import log
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka

PARTITIONS = 1, 200
SECONDS = 60


def main(console: Console) -> None:
    """Print the share of a core, on Apache Kafka or, without it, on the embedded broker."""
    with tempfile.TemporaryDirectory() as name, embedded(Path(name)) as servers:
        try:
            with apache_kafka(Path(name) / "apache") as kafka:
                _measure(console, "Apache Kafka", kafka, servers.redis_url)
        except KafkaUnavailableError as reason:
            console.print(f"Without Apache Kafka: {reason}")
            _measure(console, "embedded", servers.kafka, servers.redis_url)


def _measure(console: Console, broker: str, kafka: str, redis_url: str) -> None:
    table = Table("partitions", "barriers", "seconds", "of a core", title=f"The writer of barriers, {broker}")
    for partitions in PARTITIONS:
        settings = Settings(
            stream=f"bench-barriers-{partitions}",
            kafka=kafka,
            redis=redis_url,
            unmetered=True,
            rounds="ticks",
        )
        log.create_topics(kafka, settings.events, partitions=partitions)
        log.create_topics(kafka, settings.releases, settings.barriers)
        with ExitStack() as running:
            writer = _writer_of(_started(settings, running))
            first, began, worked = _barriers(settings), time.perf_counter(), processor_seconds(writer)
            time.sleep(SECONDS)
            seconds, worked = time.perf_counter() - began, processor_seconds(writer) - worked
            written = _barriers(settings) - first
        table.add_row(f"{partitions}", f"{written}", f"{seconds:.0f}", f"{worked / seconds:.2%}")
    console.print(table)


def _started(settings: Settings, running: ExitStack) -> int:
    """A worker that has seen its first barriers, and so the process that writes them."""
    options = {"stream": settings.stream, "kafka": settings.kafka, "redis": settings.redis}
    more = {"unmetered": "true", "rounds": settings.rounds}
    given = {f"STREAM_DP_{name.upper()}": value for name, value in (options | more).items()}
    words = [sys.executable, "-m", "stream_dp.cli", "worker", "--log-level", "error"]
    worker = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=os.environ | given)
    running.callback(worker.wait)
    running.callback(worker.terminate)
    while log.offsets(settings.kafka, settings.releases).end < 3:
        assert worker.poll() is None, "the worker has ended"
        time.sleep(0.2)
    return worker.pid


def _writer_of(worker: int) -> int:
    """The process of a worker's that writes barriers."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        parent = (line.parent / "stat").read_text().rpartition(")")[2].split()[1]
        if b"stream_dp.barriers" in line.read_bytes() and int(parent) == worker:
            return int(line.parent.name)
    raise RuntimeError("no process writes barriers")


def _barriers(settings: Settings) -> int:
    return log.offsets(settings.kafka, settings.barriers).end
