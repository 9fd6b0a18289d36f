"""Events a second from a topic with twelve partitions to releases, beside a topic with one; rounds end by barriers.

Both hold a backlog of the same events when the worker begins, and the barriers of a round a second of events.  What
counts is the ratio: the figures themselves are those of a machine.
"""

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter, time

from kafka import KafkaProducer
from rich.console import Console
from rich.table import Table

from stream_dp.barriers.key import barrier_key
from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.barrier_chain import BarrierChain, named
from stream_dp.kafka import log
from stream_dp.store.noise_key import noise_key
from stream_dp.workers.histogram import Worker
from tests.apache_kafka.server import KafkaUnavailableError, apache_kafka

PARTITIONS = 12
ROUNDS, EVENTS_A_ROUND = 6, 30_000
LABELS = 100
TURNS = 3


def main(console: Console) -> None:
    """Print events a second, turn by turn, on Apache Kafka or, without it, on the embedded broker."""
    table = Table("broker", "one partition", f"{PARTITIONS} partitions", "ratio", title="Events a second")
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as servers:
        try:
            with apache_kafka(Path(folder) / "apache") as kafka:
                _turns(table, "Apache Kafka", kafka, servers.redis_url)
        except KafkaUnavailableError as reason:
            console.print(f"Without Apache Kafka: {reason}")
            _turns(table, "embedded", servers.kafka, servers.redis_url)
    console.print(table)


def _turns(table: Table, broker: str, kafka: str, redis_url: str) -> None:
    for turn in range(1, TURNS + 1):
        rates = [
            asyncio.run(
                _rate(_settings(kafka, redis_url, f"bench-partitions-{partitions}-{turn}"), partitions)
            )
            for partitions in (1, PARTITIONS)
        ]
        table.add_row(broker, f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{rates[1] / rates[0]:.2f}")


def _settings(kafka: str, redis_url: str, stream: str) -> Settings:
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


async def _rate(settings: Settings, partitions: int) -> float:
    """Open an epoch, write the backlog and its barriers, and count it."""
    log.create_topics(settings.kafka_address, settings.events, partitions=partitions)
    await _run(settings, 0)
    await asyncio.to_thread(_write_backlog, settings, partitions)
    return ROUNDS * EVENTS_A_ROUND / await _run(settings, ROUNDS)


async def _run(settings: Settings, rounds: int) -> float:
    """Run a worker until it has counted so many rounds; returns the seconds since it began to."""
    worker = Worker(settings)
    running = asyncio.create_task(worker.run())
    while worker.watch.facts.epoch is None and not running.done():
        await asyncio.sleep(0.01)
    start = perf_counter()
    while worker.rounds < rounds and not running.done():
        await asyncio.sleep(0.01)
    seconds = perf_counter() - start
    worker.stop()
    await running
    return seconds


def _write_backlog(settings: Settings, partitions: int) -> None:
    [opened] = EpochJournal(settings).opened
    with redis_client(settings.redis_address) as redis:
        key = barrier_key(noise_key(settings.noise_key, redis, settings.stream, may_create=False))
    assert opened.epoch.after_barrier is not None
    chain, now = BarrierChain(key, settings.stream, opened.epoch.after_barrier), int(time())
    with KafkaProducer(bootstrap_servers=settings.kafka, batch_size=1 << 18, linger_ms=20) as producer:
        for number in range(1, ROUNDS + 1):
            for event in range(EVENTS_A_ROUND):
                items = ",".join(f'"label {(event * 2 + each) * 7 % LABELS}"' for each in range(2))
                producer.send(
                    settings.events, b'{"items":[%b]}' % items.encode(), partition=event % partitions
                )
            producer.flush()
            held = log.offsets_of_all(settings.kafka_address, settings.events)
            due = (now + number - ROUNDS) * 1_000
            value = chain.encode(due, named([each.end for each in held]))
            stored = producer.send(settings.barriers, value, timestamp_ms=due, partition=0).get(timeout=30)
            chain.take(stored.offset, value)
