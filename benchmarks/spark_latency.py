"""A live stream on Spark with rounds of a second: how late releases are, and what a start takes with many labels.

`python -m benchmarks spark_latency` takes some twelve minutes.  Apache Kafka, the worker, Spark's Java process and its
Python processes share the machine, and events come all the time.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep, time
from typing import Any

import numpy as np
from kafka import KafkaProducer
from rich.console import Console
from rich.table import Table

import stream_dp
from benchmarks.measure import family
from benchmarks.spark_stream import CORES, LABELS, add_labels
from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.dev.servers import embedded
from stream_dp.epochs.journal import EpochJournal
from stream_dp.kafka import log
from stream_dp.spark.engine import EngineEpoch
from stream_dp.spark.engine_state import StateFile
from stream_dp.store.noise_key import noise_key
from tests.apache_kafka.server import apache_kafka

PARTITIONS, EVENTS_A_SECOND, KINDS = 12, 2_000, 20_000
ROUNDS, TEST_EVERY = 200, 50
_AFTER_A_TEST = 10
"""So many rounds wait for a test, or for those that waited for it."""

_WARM_UP = 20
_GIVE_UP_SECONDS = 600.0


@dataclass
class Seen:
    """What a subscriber saw: how late each round came, in seconds after the moment that closed it."""

    late: dict[int, float] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last round that came."""
        return max(self.late, default=0)

    def follow(self, settings: Settings) -> None:
        """Take releases as they come, for ever."""
        for release in stream_dp.subscribe(settings.kafka, settings.stream, "earliest"):
            self.late[release.round] = time() - milliseconds(parse_time(release.ts)) / 1_000

    def wait_for(self, round_number: int) -> float:
        """Return how long it took until the round came."""
        began = monotonic()
        while self.last < round_number:
            if monotonic() - began > _GIVE_UP_SECONDS:
                raise RuntimeError(f"round {self.last} came last, and not {round_number}")
            sleep(0.02)
        return monotonic() - began


def main(console: Console) -> None:
    """Print how late releases were while few labels and many were known, and how long starts took."""
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded(Path(folder)) as servers,
        apache_kafka(Path(folder) / "apache") as kafka,
    ):
        settings = Settings(
            stream="bench-latency",
            kafka=kafka,
            redis=servers.redis_url,
            unmetered=True,
            mechanism="blt",
            discover=f"every-{TEST_EVERY}",
            epsilon=1.0,
            delta=1e-6,
            horizon=4_095,
            rounds="ticks",
            tick_seconds=1.0,
            engine="spark",
        )
        log.create_topics(kafka, settings.events, partitions=PARTITIONS)
        log.create_topics(kafka, settings.counts)
        _run(console, settings, Path(folder))


def _run(console: Console, settings: Settings, folder: Path) -> None:
    state, seen = folder / "state", Seen()
    state.mkdir(mode=0o700)
    table = Table(
        "labels that are not shown",
        "start to first release, s",
        "late: half of the rounds, s",
        "99 of 100, s",
        "latest, s",
        f"test rounds and the {_AFTER_A_TEST - 1} after each: latest, s",
        "memory of all, MB",
        title=f"Rounds of a second, {EVENTS_A_SECOND:,} events each, local[{CORES}], Apache Kafka",
    )
    with ExitStack() as stack:
        worker = stack.enter_context(_running(settings, folder, "worker"))
        _wait(lambda: log.existing(settings.kafka, settings.releases))
        Thread(target=seen.follow, args=[settings], daemon=True).start()
        stack.enter_context(_feeding(settings))
        for many in (False, True):
            if many:
                add_many(console, settings, state)
            before = seen.last
            with (
                _running(settings, folder, "spark", "--state", str(state)) as engine,
                _memory(worker, engine) as most,
            ):
                start = seen.wait_for(before + 1)
                first = _closed(settings) + _WARM_UP
                seen.wait_for(first + ROUNDS)
            late = {number: seen.late[number] for number in range(first, first + ROUNDS)}
            table.add_row(
                f"{LABELS:,}" if many else f"{KINDS:,} at most",
                f"{start:.1f}",
                *(f"{each:.2f}" for each in _ordinary(late)),
                f"{max(each for number, each in late.items() if _waits_for_a_test(number)):.2f}",
                f"{most[0] / 1e6:,.0f}",
            )
    console.print(table)


def _ordinary(late: dict[int, float]) -> tuple[float, float, float]:
    """Of rounds that wait for no test: how late half of them were at most, 99 of 100, and all."""
    each = np.array([seconds for number, seconds in late.items() if not _waits_for_a_test(number)])
    return float(np.median(each)), float(np.quantile(each, 0.99)), float(each.max())


def _waits_for_a_test(number: int) -> bool:
    return number % TEST_EVERY < _AFTER_A_TEST


def _closed(settings: Settings) -> int:
    """How many rounds are closed."""
    return log.offsets(settings.kafka_address, settings.barriers).end


def add_many(console: Console, settings: Settings, state: Path) -> None:
    """Let the engine, which does not run, know of many labels."""
    with redis_client(settings.redis_address) as redis:
        key = noise_key(settings.noise_key, redis, settings.stream, may_create=False)
    journal = EpochJournal(settings, lambda: key)
    assert journal.last is not None
    assert isinstance(journal.last.epoch.mechanism, DiscoveryMechanism)
    engine = EngineEpoch(settings, journal.last, journal, key, state, _nothing, lambda: CORES, _nothing)
    add_labels(console, engine, key)
    StateFile(engine.folder, key).write(engine.state)


def _nothing(*_: Any) -> Any:
    raise AssertionError("nothing is counted here")


@contextmanager
def _running(settings: Settings, folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own, which is killed at the end with all that it has started."""
    path, output = folder / "stream.toml", folder / f"{words[0]}.txt"
    named = {
        name: getattr(settings, name)
        for name in settings.__struct_fields__
        if getattr(settings, name) != getattr(Settings(stream="s"), name)
    }
    path.write_text(
        "".join(
            f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}\n"
            for name, value in named.items()
        )
    )
    command = Path(sys.executable).with_name("stream-dp")
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--master local[{CORES}] pyspark-shell"}
    with output.open("ab") as file:
        process = subprocess.Popen(
            [command, *words, "--settings", path], stdout=file, stderr=file, env=environment
        )
    try:
        yield process
    except BaseException:
        sys.stderr.write(output.read_text()[-4_000:])
        raise
    finally:
        for pid in reversed(family(process.pid)):
            os.kill(pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _feeding(settings: Settings) -> Iterator[None]:
    """Events come all the time, of items that are mostly frequent ones."""
    ended = Event()

    def feed() -> None:
        random = np.random.default_rng(1)
        with KafkaProducer(bootstrap_servers=settings.kafka, linger_ms=20) as producer:
            while not ended.wait(0.1):
                for item in np.minimum(random.zipf(1.3, EVENTS_A_SECOND // 10), KINDS).tolist():
                    producer.send(settings.events, b'{"items":["item %d","all"]}' % item)

    feeder = Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        ended.set()
        feeder.join()


@contextmanager
def _memory(*processes: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """The most bytes that these and all that they have started took together; pages that several share count once."""
    most, ended = [0], Event()

    def watch() -> None:
        while not ended.wait(1):
            together = sum(_share(pid) for process in processes for pid in family(process.pid))
            most[0] = max(most[0], together)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


def _share(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _wait(condition: Callable[[], object]) -> None:
    while not condition():
        sleep(0.1)
