"""Events a second from topic to topic, beside a loop that moves the same bytes without any privacy work.

Once with labels that are found at tests and once with those that every round looks for, in turns.
The loop sends the releases that the worker made, all of them different: one release again and again would compress to
nothing.
"""

import asyncio
import tempfile
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from kafka import KafkaProducer
from rich.console import Console
from rich.table import Table

from benchmarks.event_steps import Steps
from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from stream_dp.engine.release_schedule import ReleaseSchedule
from stream_dp.kafka import log
from stream_dp.operations.memory import collect_seldom, keep_freed
from stream_dp.sinks.sending import producer
from stream_dp.workers.histogram import Worker
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka


class Case(NamedTuple):
    """A stream of `events` events over so many labels, all of which are released."""

    labels: int
    release: str
    events: int


CASES = (
    Case(100, "every-round", 20_000),
    Case(1_000, "every-round", 8_000),
    Case(100, "every-100", 60_000),
)
RULES = "default", "every-round"
WARM_UP = 4_000
TURNS = 5


def main(console: Console) -> None:
    """Print median events a second through both brokers; Apache Kafka where Java and Maven are there."""
    table = Table(
        "broker",
        "labels",
        "released",
        *(f"{rule}: events/s" for rule in RULES),
        "bare loop: events/s",
        "default / every-round",
        "default / bare",
        title=TITLE,
    )
    steps = Table("microseconds an event", *(f"{case.labels:,} labels, {case.release}" for case in CASES))
    collect_seldom()  # as the host of a worker does
    keep_freed()
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as servers:
        _turns(table, "embedded", servers.kafka, servers.redis_url)
        _add_steps(steps, servers.kafka, servers.redis_url)
        try:
            with apache_kafka(Path(folder) / "apache") as kafka:
                _turns(table, "Apache Kafka", kafka, servers.redis_url)
        except KafkaUnavailableError as reason:
            console.print(f"Without Apache Kafka: {reason}")
    console.print(table)
    console.print(steps)


TITLE = "End to end: events to releases on this machine, beside a loop that moves the same bytes"


def _turns(table: Table, broker: str, kafka: str, redis_url: str) -> None:
    for number, case in enumerate(CASES):
        rates: dict[str, list[float]] = {name: [] for name in (*RULES, "bare")}
        for turn in range(TURNS):
            for rule in RULES:
                stream = f"bench-{broker.split()[0]}-{number}-{turn}-{rule}"
                settings = _settings(stream, kafka, redis_url, case, rule)
                _write_events(settings, case)
                rates[rule].append(asyncio.run(_worker_rate(settings, case)))
                if rule == "default":
                    releases = _releases(settings, case)
                    rates["bare"].append(asyncio.run(_bare_rate(settings, case, releases)))
        found = {name: median(each) for name, each in rates.items()}
        table.add_row(
            broker,
            f"{case.labels:,}",
            case.release,
            *(f"{each:,.0f}" for each in found.values()),
            f"{found['default'] / found['every-round']:.2f}",
            f"{found['default'] / found['bare']:.2f}",
        )


def _add_steps(table: Table, kafka: str, redis_url: str) -> None:
    """Where the time of an event goes, and, in the last row, what other threads do meanwhile."""
    columns = []
    for number, case in enumerate(CASES):
        settings = _settings(f"bench-steps-{number}", kafka, redis_url, case, "default")
        _write_events(settings, case)
        steps = Steps()
        asyncio.run(_worker_rate(settings, case, steps))
        columns.append(steps.microseconds(case.events))
    *parts, beside = columns[0]
    for name in parts:
        table.add_row(name, *(f"{each[name]:.1f}" for each in columns))
    table.add_row(
        "together", *(f"{sum(each[name] for name in parts):.1f}" for each in columns), end_section=True
    )
    table.add_row(beside, *(f"{each[beside]:.1f}" for each in columns))


def _settings(stream: str, kafka: str, redis_url: str, case: Case, rule: str) -> Settings:
    return Settings(
        unmetered=True,
        stream=stream,
        kafka=kafka,
        redis=redis_url,
        epsilon=20.0,
        delta=0.01,
        horizon=2**16 - 1,
        release=case.release,
        discover=rule,
    )


def _write_events(settings: Settings, case: Case) -> None:
    log.create_topics(settings.kafka, settings.events)
    with KafkaProducer(bootstrap_servers=settings.kafka, batch_size=1 << 18, linger_ms=20) as producer:
        for i in range(WARM_UP + case.events):
            items = ",".join(f'"label {(i * 4 + j) * 7 % case.labels}"' for j in range(4))
            producer.send(settings.events, b'{"items":[%b]}' % items.encode())


async def _worker_rate(settings: Settings, case: Case, steps: Steps | None = None) -> float:
    worker = Worker(settings)
    with nullcontext() if steps is None else steps.timed():
        running = asyncio.create_task(worker.run())
        await _rounds(worker, running, WARM_UP)
        first, start = worker.rounds, perf_counter()
        if steps is not None:
            steps.begin()
        await _rounds(worker, running, WARM_UP + case.events)
        rate = (worker.rounds - first) / (perf_counter() - start)
    worker.stop()
    await running
    return rate


async def _rounds(worker: Worker, running: asyncio.Task[None], rounds: int) -> None:
    while worker.rounds < rounds:
        await asyncio.sleep(0.002)
        if running.done():
            running.result()


def _releases(settings: Settings, case: Case) -> list[bytes]:
    """The last releases of the worker, as many as the events after the warm-up made."""
    end = log.offsets(settings.kafka, settings.releases).end
    most = case.events // ReleaseSchedule.of(case.release).rounds
    values = [record.value or b"" for record in log.read(settings.kafka, settings.releases, end - most, end)]
    if values[-1].count(b'"label ') != case.labels or len({*values}) < len(values):
        raise RuntimeError(f"the last releases should hold {case.labels} labels, and be different")
    return values


async def _bare_rate(settings: Settings, case: Case, releases: list[bytes]) -> float:
    """Consume the same events and produce as many bytes, with the clients set as the worker sets them."""
    partition = TopicPartition(settings.events, 0)
    topic = f"{settings.stream}.bare"
    await asyncio.to_thread(log.create_topics, settings.kafka, topic)
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.kafka, isolation_level="read_committed")
    async with consumer, producer(settings.kafka, settings.compression) as sender:
        consumer.assign([partition])
        consumer.seek(partition, WARM_UP)
        moved, left, start = 0, iter(releases), perf_counter()
        every = ReleaseSchedule.of(case.release).rounds
        while moved < case.events:
            found = await consumer.getmany(partition, timeout_ms=200, max_records=settings.batch_rounds)
            records = found.get(partition, ())
            due = (moved + len(records)) // every - moved // every
            answers = [await sender.send(topic, next(left)) for _ in range(due)]
            await asyncio.gather(*answers)
            moved += len(records)
        return moved / (perf_counter() - start)
