"""Events a second from a topic with twelve partitions to releases, beside a topic with one; rounds end by barriers.

Both hold a backlog of the same events when the worker begins, and the barriers of a round a second of events.  Beside
the events a second there is the processor time of an event, in the worker and in its servers: it says what two cores
can do where other work has the rest of them.  The worker has a process of its own, whose memory is told too: how much
more it took at its most than when it began, which must not grow with the backlog.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time, time
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka import KafkaProducer
from rich.console import Console
from rich.table import Table

from benchmarks.measure import children, most_memory, processor_seconds, take_turns
from stream_dp.barriers.key import barrier_key
from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.barrier_chain import BarrierChain, named
from stream_dp.events.bounding import EventBound
from stream_dp.events.log_digest import NOTHING, LogDigester
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.records import Records
from stream_dp.kafka import log
from stream_dp.kafka.record_batches import whole_batches
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.store.noise_key import noise_key
from stream_dp.workers.histogram import Worker
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka

PARTITIONS = 12
EVENTS_A_ROUND = 30_000
BACKLOGS = 16, 48
"""Rounds of each turn's backlog."""

LABELS = 100


class Taken(NamedTuple):
    """What the backlog took: seconds, processor seconds of the worker and of broker and Redis, and bytes of memory."""

    seconds: float
    worker: float
    servers: float
    memory: float


def main(console: Console) -> None:
    """Print what each turn took, on Apache Kafka or, without it, on the embedded broker; then what each step costs."""
    table = Table(
        *(
            "broker",
            "events",
            "partitions",
            "events/s",
            "worker: us of processor",
            "broker and Redis: us",
            "two cores could",
            "memory, MB",
        ),
        title=f"A backlog in rounds of {EVENTS_A_ROUND:,} events, from topic to releases",
    )
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as servers:
        try:
            with apache_kafka(Path(folder) / "apache") as kafka:
                _turns(table, "Apache Kafka", kafka, servers.redis_url)
        except KafkaUnavailableError as reason:
            console.print(f"Without Apache Kafka: {reason}")
            _turns(table, "embedded", servers.kafka, servers.redis_url)
    console.print(table)
    console.print("two cores could: one for the worker and one for broker and Redis, by processor time")
    _steps(console)


def _turns(table: Table, broker: str, kafka: str, redis_url: str) -> None:
    for rounds in BACKLOGS:
        events = rounds * EVENTS_A_ROUND
        for partitions in (1, PARTITIONS):
            settings = settings_of(kafka, redis_url, f"bench-partitions-{partitions}-{rounds}")
            taken = _taken(settings, partitions, rounds)
            table.add_row(
                broker,
                f"{events:,}",
                str(partitions),
                f"{events / taken.seconds:,.0f}",
                f"{taken.worker / events * 1e6:.2f}",
                f"{taken.servers / events * 1e6:.2f}",
                f"{events / max(taken.worker, taken.servers):,.0f}/s",
                f"{taken.memory / 2**20:,.0f}",
            )


def _steps(console: Console) -> None:
    """Print the processor time of each step that a worker takes with a round, without any server."""
    values = [_event(number) for number in range(EVENTS_A_ROUND)]
    batches = [memoryview(_batch(values[start : start + 500])) for start in range(0, EVENTS_A_ROUND, 500)]
    parts = [
        Records(number, range(len(mine)), [0] * len(mine), [None] * len(mine), mine)
        for number in range(PARTITIONS)
        for mine in [values[number::PARTITIONS]]
    ]
    decode, bound, digester = decoder_of(None), EventBound(2), LogDigester(bytes(32))
    events = [decode.all(each) for each in parts]
    labels = [bound.admit_all(each) for each in events]
    noise = KeyedNoise(bytes(32), "bench", bytes(16))
    steps: dict[str, Callable[[], object]] = {
        "unpack the batches of a fetch": lambda: [
            list(whole_batches(DefaultRecordBatch, each, 0, False)) for each in batches
        ],
        "decode": lambda: [decode.all(each) for each in parts],
        "bound": lambda: [bound.admit_all(each) for each in events],
        "digest of the log": lambda: digester.extend(NOTHING, [list(enumerate(parts))]),
        "hash chain": lambda: [noise.part_digest(1, number, each) for number, each in enumerate(labels)],
    }
    table = Table("step", "us an event", title="Processor time of the steps of a worker")
    for name, seconds in take_turns(steps, 5, process_time).items():
        table.add_row(name, f"{seconds / EVENTS_A_ROUND * 1e6:.2f}")
    console.print(table)


def _batch(values: list[bytes]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
    for number, value in enumerate(values):
        builder.append(number, 1_000, None, value, [])
    return bytes(builder.build())


def _event(number: int, labels: int = LABELS, users: int = 0) -> bytes:
    items = ",".join(f'"label {(number * 2 + each) * 7 % labels}"' for each in range(2))
    user = f',"user":"user {number * 7_919 % users}"' if users else ""
    return f'{{"items":[{items}]{user}}}'.encode()


def _servers_seconds() -> float:
    """The processor time so far of the servers, which the process has started that has started this one."""
    return sum(processor_seconds(each) for each in children(os.getppid()) if each != os.getpid())


def settings_of(kafka: str, redis_url: str, stream: str) -> Settings:
    """Those of a stream whose rounds barriers end."""
    return Settings(
        stream=stream,
        kafka=kafka,
        redis=redis_url,
        unmetered=True,
        epsilon=20.0,
        delta=0.01,
        horizon=4_095,
        items_per_event=2,
        rounds="ticks",
        write_barriers=False,
    )


def _taken(settings: Settings, partitions: int, rounds: int) -> Taken:
    """Open an epoch, write the backlog and its barriers, and count it."""
    log.create_topics(settings.kafka_address, settings.events, partitions=partitions)
    run(settings, 0)
    write_backlog(settings, partitions, rounds)
    return run(settings, rounds)


def run(settings: Settings, rounds: int) -> Taken:
    """Run a worker, in a process of its own, until it has counted so many rounds."""
    with ProcessPoolExecutor(1, get_context("spawn")) as one:
        return one.submit(_counted, settings, rounds).result()


def _counted(settings: Settings, rounds: int) -> Taken:
    return asyncio.run(_count(Worker(settings), rounds))


async def _count(worker: Worker, rounds: int) -> Taken:
    """What it took the worker to count so many rounds since it began to."""
    running = asyncio.create_task(worker.run())
    while worker.watch.facts.epoch is None and not running.done():
        await asyncio.sleep(0.01)
    start = Taken(perf_counter(), process_time(), _servers_seconds(), most_memory())
    while worker.rounds < rounds and not running.done():
        await asyncio.sleep(0.01)
    end = Taken(perf_counter(), process_time(), _servers_seconds(), most_memory())
    worker.stop()
    await running
    return Taken(*(after - before for before, after in zip(start, end, strict=True)))


def write_backlog(
    settings: Settings, partitions: int, rounds: int, labels: Sequence[int] = (), users: int = 0
) -> None:
    """Write the events of so many rounds, and the barriers that close them.

    The events of each round have so many `labels`, else `LABELS`, and each is of one of so many `users`, if any.
    """
    [opened] = EpochJournal(settings).opened
    with redis_client(settings.redis_address) as redis:
        key = barrier_key(noise_key(settings.noise_key, redis, settings.stream, may_create=False))
    assert opened.epoch.after_barrier is not None
    chain, now = BarrierChain(key, settings.stream, opened.epoch.after_barrier), int(time())
    with KafkaProducer(bootstrap_servers=settings.kafka, batch_size=1 << 18, linger_ms=20) as producer:
        for number in range(1, rounds + 1):
            many = labels[number - 1] if labels else LABELS
            for event in range((number - 1) * EVENTS_A_ROUND, number * EVENTS_A_ROUND):
                producer.send(settings.events, _event(event, many, users), partition=event % partitions)
            producer.flush()
            held = log.offsets_of_all(settings.kafka_address, settings.events)
            due = (now + number - rounds) * 1_000
            value = chain.encode(due, named([each.end for each in held]))
            stored = producer.send(settings.barriers, value, timestamp_ms=due, partition=0).get(timeout=30)
            chain.take(stored.offset, value)
