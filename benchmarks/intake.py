"""Events a second that a group reads from twelve partitions, with one member and with two; rounds end by barriers.

Everything runs on the same cores: the broker, Redis, the members, the worker, two shards and the merge, a process each.
Both runs of a turn read the same backlog, which is there before the first barrier, and show 1,000 labels.  The clock
runs from the release of the first rounds on: until then, processes load and compile what they need.  What counts is the
ratio.  Beside it stand the microseconds that the processor works for an event, in the members and in all else:
they depend less on what else the machine does, and say what two cores can do.  A member has one core at most.  So one
member needs `max(m, (m + o) / 2)` for an event on two cores, where it takes m itself and all else takes o, and two
members need at least `(m + o) / 2`: they cannot be more than 2m / (m + o) times as fast.

In the second table the producer is on the same cores too: it writes as fast as it can, and a barrier comes each second.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from benchmarks.measure import children, processor_seconds
from stream_dp.barriers.key import barrier_key
from stream_dp.config.connections import redis_client
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.dev.child_process import stop_owned
from stream_dp.dev.servers import embedded
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.barrier_chain import BarrierChain, named
from stream_dp.kafka import log
from stream_dp.kafka.clients import kept_clients
from stream_dp.store.noise_key import noise_key
from stream_dp.workers.owned_partition import state_of_partition
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka

PARTITIONS, SHARDS, LABELS = 12, 2, 1_000
FIRST_ROUNDS, ROUNDS, EVENTS_A_ROUND = 4, 40, 180_000
LIVE_EVENTS = 1_800_000
MEMBERS = 1, 2
CORES = 2
TURNS = 3
BACKLOG = "bench-backlog"
_SETTLED_SECONDS = 8
_MOST_WAITING = 50_000  # events in the producer that the broker has not taken yet


class Taken(NamedTuple):
    """What the backlog took: seconds, and seconds of the processor in the members and in all else."""

    seconds: float
    members: float
    others: float


class Group:
    """All processes of a stream, and its servers."""

    def __init__(self) -> None:
        self.members: list[subprocess.Popen[bytes]] = []
        self.others: list[subprocess.Popen[bytes]] = []
        self._servers = children(os.getpid())

    def wait(self) -> None:
        """Pause for a moment; raises RuntimeError if a process has ended, because nothing would come any more."""
        for process in self.members + self.others:
            if process.poll() is not None:
                raise RuntimeError(f"a process of the group has ended: {process.args!r}")
        time.sleep(0.2)

    def stop(self) -> None:
        """End all processes, at once, because each takes a while."""
        for process in self.members + self.others:
            process.terminate()
        for process in self.members + self.others:
            stop_owned(process)

    def now(self) -> Taken:
        """The time by the clock, and what the processor has worked so far."""
        members = sum(processor_seconds(each.pid) for each in self.members)
        others = sum(map(processor_seconds, self._servers + [each.pid for each in self.others]))
        return Taken(time.perf_counter(), members, others)


@kept_clients()
def main(console: Console) -> None:
    """Print events a second, turn by turn, on Apache Kafka or, without it, on the embedded broker."""
    with tempfile.TemporaryDirectory() as name, embedded(Path(name)) as servers:
        folder = Path(name)
        try:
            with apache_kafka(folder / "apache") as kafka:
                _tables(console, "Apache Kafka", kafka, servers.redis_url, folder)
        except KafkaUnavailableError as reason:
            console.print(f"Without Apache Kafka: {reason}")
            _tables(console, "embedded", servers.kafka, servers.redis_url, folder)


def _tables(console: Console, broker: str, kafka: str, redis_url: str, folder: Path) -> None:
    backlog = Table(
        *(
            "turn",
            "members",
            "events/s",
            "beside one",
            "members: us",
            "all else: us",
            "two cores could",
            "at most",
        ),
        title=f"A group reads a backlog of {PARTITIONS} partitions, {broker}",
    )
    vectors = _write_backlog(kafka)
    events = ROUNDS * EVENTS_A_ROUND
    for turn in range(1, TURNS + 1):
        first = 0.0
        for members in MEMBERS:
            settings = _settings(kafka, redis_url, f"bench-intake-{members}-{turn}", folder)
            taken = _read_backlog(settings, folder, members, vectors)
            first = first or taken.seconds
            spread = (taken.members + taken.others) / CORES
            alone = members == 1
            needed = max(taken.members, spread) if alone else spread
            backlog.add_row(
                str(turn),
                str(members),
                f"{events / taken.seconds:,.0f}",
                f"{first / taken.seconds:.2f}",
                f"{taken.members / events * 1e6:.1f}",
                f"{taken.others / events * 1e6:.1f}",
                f"{events / needed:,.0f}/s" if needed else "",
                f"{needed / spread:.2f}" if alone and spread else "",
            )
    console.print(backlog)
    console.print(
        f"at most: how much faster two members can be on {CORES} cores, by the processor time of one"
    )
    live = Table(
        *("turn", "members", "events", "seconds", "events/s"),
        title=f"With the producer on the same cores, {broker}",
    )
    for turn in range(1, TURNS + 1):
        settings = _settings(kafka, redis_url, f"bench-live-{turn}", folder, f"bench-events-{turn}")
        seconds = _read_live(settings, folder)
        row = f"{LIVE_EVENTS:,}", f"{seconds:.1f}", f"{LIVE_EVENTS / seconds:,.0f}"
        live.add_row(str(turn), str(MEMBERS[-1]), *row)
    console.print(live)
    console.print(f"load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")


def _write_backlog(kafka: str) -> list[list[int]]:
    """The same events for all streams; returns where the partitions end after each round."""
    log.create_topics(kafka, BACKLOG, partitions=PARTITIONS)
    vectors = []
    for _ in range(FIRST_ROUNDS + ROUNDS):
        produce(kafka, BACKLOG, EVENTS_A_ROUND)
        vectors.append(_ends(kafka, BACKLOG))
    return vectors


def _ends(kafka: str, topic: str) -> list[int]:
    return [held.end for held in log.offsets_of_all(kafka, topic)]


def produce(kafka: str, topic: str, events: int) -> None:
    """Write so many events to all partitions in turn."""
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 50, "batch.num.messages": 20_000})
    for event in range(events):
        items = b'"label %d","label %d"' % (event * 7 % LABELS, event * 13 % LABELS)
        producer.produce(topic, b'{"items":[%b]}' % items, partition=event % PARTITIONS)
        while len(producer) > _MOST_WAITING:
            producer.poll(0.01)
    if left := producer.flush(60):
        raise RuntimeError(f"the broker has not confirmed {left:,} events")


def _settings(kafka: str, redis_url: str, stream: str, folder: Path, topic: str = BACKLOG) -> Settings:
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
topic = "{topic}"
"""
    )
    return load_settings(file, {})


@contextmanager
def _group(settings: Settings, folder: Path, members: int) -> Iterator[Group]:
    """All processes of a stream, when members have all partitions."""
    group = Group()

    def start(role: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "stream_dp.cli", role]
        words += ["--settings", str(folder / f"{settings.stream}.toml"), "--log-level", "error"]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL)

    try:
        group.others += [start(role) for role in ("worker", "merge", *["shard"] * SHARDS)]
        group.members += [start("intake") for _ in range(members)]
        _wait_until_owned(settings, group)
        yield group
    finally:
        group.stop()


def _read_backlog(settings: Settings, folder: Path, members: int, vectors: list[list[int]]) -> Taken:
    with _group(settings, folder, members) as group:
        chain, due = _chain(settings), int(time.time()) - len(vectors)
        for number, vector in enumerate(vectors):
            if number == FIRST_ROUNDS:
                _wait_until_released(settings, FIRST_ROUNDS, group)
                start = group.now()
            _write_barrier(settings, chain, (due + number) * 1_000, vector)
        _wait_until_released(settings, len(vectors), group)
        return Taken(*(after - before for before, after in zip(start, group.now(), strict=True)))


def _read_live(settings: Settings, folder: Path) -> float:
    """Seconds from the first event that is written to the release of the last."""
    log.create_topics(settings.kafka_address, settings.events, partitions=PARTITIONS)
    with _group(settings, folder, MEMBERS[-1]) as group:
        chain, rounds, is_last = _chain(settings), 0, False
        given = settings.kafka, settings.events, LIVE_EVENTS
        producing = multiprocessing.get_context("spawn").Process(target=produce, args=given, daemon=True)
        producing.start()
        while not sum(_ends(settings.kafka, settings.events)) and producing.is_alive():
            group.wait()
        began = time.perf_counter()
        while not is_last:
            producing.join(1)
            is_last = not producing.is_alive()
            _write_barrier(settings, chain, int(time.time() * 1_000), _ends(settings.kafka, settings.events))
            rounds += 1
        if producing.exitcode:
            raise RuntimeError("the producer has failed")
        _wait_until_released(settings, rounds, group)
        return time.perf_counter() - began


def _wait_until_owned(settings: Settings, group: Group) -> None:
    """Return when members have all partitions, and have had them for a while."""
    with redis_client(settings.redis_address) as redis:
        names = [
            f"stream_dp:{{{state_of_partition(settings, number)}}}:fence" for number in range(PARTITIONS)
        ]
        fences, since = list[object](), time.perf_counter()
        while None in fences or time.perf_counter() - since < _SETTLED_SECONDS:
            group.wait()
            if (now := list(redis.mget(names))) != fences:
                fences, since = now, time.perf_counter()


def _chain(settings: Settings) -> BarrierChain:
    """The barriers of the stream from the beginning of its epoch."""
    [opened] = EpochJournal(settings).opened
    with redis_client(settings.redis_address) as redis:
        key = barrier_key(noise_key(settings.noise_key, redis, settings.stream, may_create=False))
    assert opened.epoch.after_barrier is not None
    return BarrierChain(key, settings.stream, opened.epoch.after_barrier)


def _write_barrier(settings: Settings, chain: BarrierChain, due: int, vector: list[int]) -> None:
    """End a round where the partitions end by `vector`; `due` is in milliseconds since 1970."""
    value = chain.encode(due, named(vector))
    chain.take(log.offsets(settings.kafka_address, settings.barriers).end, value)
    producer = _barrier_producer(settings.kafka)
    producer.produce(settings.barriers, value, partition=0, timestamp=due)
    producer.flush(60)


@cache
def _barrier_producer(kafka: str) -> Producer:
    """One for all barriers: what this process works is not counted, and takes from the others."""
    return Producer({"bootstrap.servers": kafka})


def _wait_until_released(settings: Settings, rounds: int, group: Group) -> None:
    """A release of so many labels is one record."""
    while log.offsets(settings.kafka_address, settings.releases).end < rounds:
        group.wait()
