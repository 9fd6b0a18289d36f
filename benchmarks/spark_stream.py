"""A stream on Spark: events a second from a backlog to counted rounds, and a test over millions of labels.

python -m benchmarks spark_stream
"""

import os
import tempfile
import tracemalloc
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks import partitions
from benchmarks.measure import family, processor_seconds
from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.dev.servers import embedded
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.jobs.spark import Spark
from stream_dp.kafka import log
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise
from stream_dp.spark.engine import EngineEpoch
from stream_dp.spark.label_counts import BUCKETS, LabelFiles, LabelRun, in_buckets
from stream_dp.spark.worker import JAVA, run_on
from stream_dp.store.noise_key import noise_key
from tests.apache_kafka.server import apache_kafka

CORES = 2
ROUNDS = 64
LABELS = 10_000_000
_LABELS_A_FILE = 500_000
_TEST_ROUND = 32
UNITS = {"event": 0, "user": 1_000_000}
"""What is protected, and how many users the events are of."""

_ITEMS_PER_USER = 8


def main(console: Console) -> None:
    """Print what the turns of a backlog took on Apache Kafka, and a turn whose test is over millions of labels."""
    _memory_of_a_test(console)  # before Arrow has had more
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded(Path(folder)) as servers,
        apache_kafka(Path(folder) / "apache") as kafka,
    ):
        session = session_on(f"local[{CORES}]")
        for unit, users in UNITS.items():
            stream = backlog(kafka, servers.redis_url, unit, users)
            state = Path(folder) / unit
            state.mkdir(mode=0o700)
            _turns(console, stream, session, state)
        session.stop()


def backlog(kafka: str, redis_url: str, unit: str, users: int) -> Settings:
    """A stream whose worker has opened an epoch, and whose events and barriers are in Kafka."""
    stream = partitions.settings_of(kafka, redis_url, f"bench-spark-{unit}")
    changed = {
        "mechanism": "blt",
        "discover": f"every-{_TEST_ROUND}",
        "engine": "spark",
        "unit": unit,
        "items_per_user": _ITEMS_PER_USER if users else None,
    }
    stream = msgspec.structs.replace(stream, epsilon=1.0, delta=1e-6, **changed)
    log.create_topics(kafka, stream.events, partitions=partitions.PARTITIONS)
    log.create_topics(kafka, stream.counts)
    partitions.run(stream, 0)
    labels = [partitions.LABELS] * _TEST_ROUND + [LABELS] * (ROUNDS - _TEST_ROUND)
    partitions.write_backlog(stream, partitions.PARTITIONS, ROUNDS, labels, users)
    return stream


def session_on(master: str) -> Any:
    """A `pyspark.sql.SparkSession`, as `stream-dp spark` starts it."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master {master} pyspark-shell"
    return Spark(JAVA).session


def _turns(console: Console, stream: Settings, session: Any, folder: Path) -> None:
    engine, key = engine_of(stream, session, CORES, folder)
    table = Table(
        "rounds",
        "events",
        "labels of events",
        "labels that are not shown",
        "test",
        "seconds",
        "events/s",
        "us of processor an event",
        title=f"Turns on Spark, local[{CORES}], Apache Kafka with {partitions.PARTITIONS} partitions, "
        f'unit = "{stream.unit}"',
    )
    assert isinstance(engine.epoch.mechanism, DiscoveryMechanism)
    tests, has_many = frozenset(engine.epoch.mechanism.tests), False
    while True:
        if engine.round and not has_many:
            add_labels(console, engine, key)
            has_many = True
        began, processor = perf_counter(), _processor()
        first = engine.round + 1
        records = engine.turn()
        if records is None:
            break
        seconds, used = perf_counter() - began, _processor() - processor
        table.add_row(
            f"{first}-{engine.round}",
            f"{records:,}",
            f"{partitions.LABELS}" if engine.round <= _TEST_ROUND else "all differ",
            f"{LABELS:,}" if first > 1 else "few",
            "yes" if engine.round in tests else "",
            f"{seconds:.2f}",
            f"{records / seconds:,.0f}",
            f"{used / records * 1e6:.1f}",
        )
    console.print(table)
    console.print("The first turn starts the processes of Spark.")


def engine_of(stream: Settings, session: Any, cores: int, folder: Path) -> tuple[EngineEpoch, bytes]:
    """What counts the stream's epoch, with all barriers that are there, and the noise key."""
    with redis_client(stream.redis_address) as redis:
        key = noise_key(stream.noise_key, redis, stream.stream, may_create=False)
    journal = EpochJournal(stream, lambda: key)
    opened = journal.last
    assert opened is not None
    run = partial(run_on, session)
    engine = EngineEpoch(stream, opened, journal, key, folder, run, lambda: cores, _nobody)
    engine.read_barriers()
    return engine, key


def _nobody(letters: Sequence[DeadLetter]) -> None:
    assert not letters


def add_labels(console: Console, engine: EngineEpoch, key: bytes) -> None:
    """Let the engine know of many labels, each counted once, as earlier turns would have left them."""
    folder = engine.folder
    files, noise, names = LabelFiles(folder, key), engine.epoch.noise(key), list[str]()
    text = 0
    for first in range(0, LABELS, _LABELS_A_FILE):
        labels = {f"https://shop.example/item/{number}": 1 for number in range(first, first + _LABELS_A_FILE)}
        text += sum(map(len, labels))
        names.append(f"many-{first}")
        files.write(names[-1], in_buckets(LabelRun.of(labels, noise)))
    for bucket in range(BUCKETS):
        files.write(f"many.{bucket}", [(bucket, files.joined(names, bucket))])
    for name in names:
        (folder / name).unlink()
    size = sum((folder / f"many.{bucket}").stat().st_size for bucket in range(BUCKETS))
    engine.state = msgspec.structs.replace(engine.state, joined=[*engine.state.joined, "many"])
    console.print(
        f"{LABELS:,} labels: {text / LABELS:.1f} bytes of text each, {size / LABELS:.1f} bytes on disk"
    )


def _memory_of_a_test(console: Console) -> None:
    """Print what adding up a bucket takes in memory, of which a test has one in each core."""
    noise, labels = KeyedNoise(bytes(KEY_BYTES), "memory", bytes(NONCE_BYTES)), LABELS // BUCKETS
    with tempfile.TemporaryDirectory() as folder:
        files = LabelFiles(Path(folder), bytes(KEY_BYTES))
        for name in ("joined", "turn"):
            counts = {f"https://shop.example/item/{number}": 1 for number in range(labels)}
            files.write(name, [(0, LabelRun.of(counts, noise))])
        tracemalloc.start()
        files.write("test", [(0, files.joined(["joined", "turn"], 0))])
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    most += pa.default_memory_pool().max_memory()
    text = sum(map(len, counts))
    console.print(f"A bucket takes {most / labels:.0f} bytes a label, of {text / labels:.1f} bytes of text")


def _processor() -> float:
    """The processor time so far of this process and of all that it has started, the servers among them."""
    return sum(map(processor_seconds, family(os.getpid())))
