"""Events a second that a group reads from twelve partitions, with one member and with two; rounds end by barriers.

Everything runs on the same cores: the broker, the members, the worker, two shards and the merge, a process each.  Both
runs of a turn read the same backlog, which is there before the first barrier, and show 1,000 labels.  What counts is
the ratio.  Beside it stand the seconds that the processor worked for the members and for all else but the broker, for
each million events: they depend less on what else the machine does.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from benchmarks.measure import processor_seconds
from stream_dp.barriers.key import barrier_key
from stream_dp.config.connections import redis_client
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.barrier_chain import BarrierChain, named
from stream_dp.kafka import log
from stream_dp.store.noise_key import noise_key
from stream_dp.workers.owned_partition import state_of_partition
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka

PARTITIONS, SHARDS, LABELS = 12, 2, 1_000
ROUNDS, EVENTS_A_ROUND = 20, 60_000
MEMBERS = 1, 2
TURNS = 3
BACKLOG = "bench-backlog"


def main(console: Console) -> None:
    """Print events a second, turn by turn, on Apache Kafka or, without it, on the embedded broker."""
    with tempfile.TemporaryDirectory() as name, embedded(Path(name)) as servers:
        folder = Path(name)
        try:
            with apache_kafka(folder / "apache") as kafka:
                _turns(console, "Apache Kafka", kafka, servers.redis_url, folder)
        except KafkaUnavailableError as reason:
            console.print(f"Without Apache Kafka: {reason}")
            _turns(console, "embedded", servers.kafka, servers.redis_url, folder)


def _turns(console: Console, broker: str, kafka: str, redis_url: str, folder: Path) -> None:
    columns = "turn", "members", "events/s", "beside one", "members' s a million", "others' s a million"
    table = Table(*columns, title=f"A group reads {PARTITIONS} partitions, {broker}")
    vectors = _write_backlog(kafka)
    for turn in range(1, TURNS + 1):
        first = 0.0
        for members in MEMBERS:
            settings = _settings(kafka, redis_url, f"bench-intake-{members}-{turn}", folder)
            rate, own, others = _run(settings, folder, members, vectors)
            first = first or rate
            row = f"{rate:,.0f}", f"{rate / first:.2f}", f"{own:.1f}", f"{others:.1f}"
            table.add_row(str(turn), str(members), *row)
    console.print(table)
    console.print(f"load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")


def _write_backlog(kafka: str) -> list[list[int]]:
    """The same events for all streams; returns where the partitions end after each round."""
    log.create_topics(kafka, BACKLOG, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 50, "batch.num.messages": 20_000})
    vectors = []
    for _ in range(ROUNDS):
        for event in range(EVENTS_A_ROUND):
            items = b'"label %d","label %d"' % (event * 7 % LABELS, event * 13 % LABELS)
            producer.produce(BACKLOG, b'{"items":[%b]}' % items, partition=event % PARTITIONS)
            if not event % 1_000:
                producer.poll(0)
        producer.flush(60)
        vectors.append([held.end for held in log.offsets_of_all(kafka, BACKLOG)])
    return vectors


def _settings(kafka: str, redis_url: str, stream: str, folder: Path) -> Settings:
    """Settings in a file, `<stream>.toml`."""
    file = folder / f"{stream}.toml"
    file.write_text(
        f"""
stream = "{stream}"
kafka = "{kafka}"
redis = "{redis_url}"
unmetered = true
epsilon = 20.0
delta = 0.01
horizon = 4095
items_per_event = 2
rounds = "ticks"
write_barriers = false
shards = {SHARDS}
intake = "group"
[events]
topic = "{BACKLOG}"
"""
    )
    return load_settings(file, {})


def _run(
    settings: Settings, folder: Path, members: int, vectors: list[list[int]]
) -> tuple[float, float, float]:
    """Events a second, and seconds of the processor a million events: of the members, and of all others."""
    with ExitStack() as running:

        def start(role: str) -> int:
            words = [sys.executable, "-m", "stream_dp.cli", role]
            words += ["--settings", str(folder / f"{settings.stream}.toml"), "--log-level", "error"]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            running.callback(process.wait)
            running.callback(process.terminate)
            return process.pid

        others = [start(role) for role in ("worker", "merge", *["shard"] * SHARDS)]
        own = [start("intake") for _ in range(members)]
        _wait_until_owned(settings)
        events = ROUNDS * EVENTS_A_ROUND
        before = [sum(map(processor_seconds, pids)) for pids in (own, others)]
        began = time.perf_counter()
        _write_barriers(settings, vectors)
        _wait_until_released(settings)
        seconds = time.perf_counter() - began
        worked = [sum(map(processor_seconds, pids)) for pids in (own, others)]
        mine, rest = [(now - then) / events * 1e6 for now, then in zip(worked, before, strict=True)]
        return events / seconds, mine, rest


def _wait_until_owned(settings: Settings) -> None:
    """Return when members have all partitions, and have had them for a while."""
    with redis_client(settings.redis_address) as redis:
        names = [
            f"stream_dp:{{{state_of_partition(settings, number)}}}:fence" for number in range(PARTITIONS)
        ]
        fences: list[object] = []
        while None in (now := redis.mget(names)) or now != fences:
            fences = list(now)
            time.sleep(8)


def _write_barriers(settings: Settings, vectors: list[list[int]]) -> None:
    [opened] = EpochJournal(settings).opened
    with redis_client(settings.redis_address) as redis:
        key = barrier_key(noise_key(settings.noise_key, redis, settings.stream, may_create=False))
    assert opened.epoch.after_barrier is not None
    chain = BarrierChain(key, settings.stream, opened.epoch.after_barrier)
    producer, due = Producer({"bootstrap.servers": settings.kafka}), int(time.time()) - ROUNDS
    place = opened.epoch.after_barrier.next_offset
    for number, vector in enumerate(vectors):
        value = chain.encode((due + number) * 1_000, named(vector))
        chain.take(place + number, value)
        producer.produce(settings.barriers, value, partition=0, timestamp=(due + number) * 1_000)
    producer.flush(60)


def _wait_until_released(settings: Settings) -> None:
    """A release of so many labels is one record."""
    while log.offsets(settings.kafka_address, settings.releases).end < ROUNDS:
        time.sleep(0.05)
