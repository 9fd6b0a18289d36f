"""Events a second from topic to topic, beside a loop that moves the same bytes without any privacy work."""

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from kafka import KafkaProducer
from rich.console import Console
from rich.table import Table

from stream_dp import log
from stream_dp.dev.servers import Servers, embedded
from stream_dp.settings import Settings
from stream_dp.worker import Worker

LABELS = 100
WARM_UP, EVENTS = 3_000, 20_000
TURNS = 3


def main(console: Console) -> None:
    """Print events a second through the embedded broker for both loops, turn by turn."""
    table = Table("turn", "worker: events/s", "bare loop: events/s", "worker / bare", title=TITLE)
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as servers:
        for turn in range(1, TURNS + 1):
            settings = Settings(
                stream=f"bench-{turn}",
                kafka=servers.kafka,
                redis=servers.redis_url,
                epsilon=10.0,
                horizon=2**16 - 1,
            )
            _write_events(settings)
            worker = asyncio.run(_worker_rate(settings))
            release = _last_release(settings)
            bare = asyncio.run(_bare_rate(settings, servers, release))
            table.add_row(str(turn), f"{worker:,.0f}", f"{bare:,.0f}", f"{worker / bare:.2f}")
    console.print(table)


TITLE = f"End to end: a snapshot of {LABELS} labels after every event, embedded broker on this machine"


def _write_events(settings: Settings) -> None:
    log.create_topics(settings.kafka, settings.events)
    with KafkaProducer(bootstrap_servers=settings.kafka, batch_size=1 << 18, linger_ms=20) as producer:
        for i in range(WARM_UP + EVENTS):
            items = ",".join(f'"label {(i * 4 + j) * 7 % LABELS}"' for j in range(4))
            producer.send(settings.events, b'{"items":[%b]}' % items.encode())


async def _worker_rate(settings: Settings) -> float:
    worker = Worker(settings)
    running = asyncio.create_task(worker.run())
    await _rounds(worker, running, WARM_UP)
    first, start = worker.rounds, perf_counter()
    await _rounds(worker, running, WARM_UP + EVENTS)
    rate = (worker.rounds - first) / (perf_counter() - start)
    worker.stop()
    await running
    return rate


async def _rounds(worker: Worker, running: asyncio.Task[None], rounds: int) -> None:
    while worker.rounds < rounds:
        await asyncio.sleep(0.002)
        if running.done():
            running.result()


def _last_release(settings: Settings) -> bytes:
    end = log.offsets(settings.kafka, settings.releases).end
    (last,) = log.read(settings.kafka, settings.releases, end - 1, end)
    value = last.value or b""
    if value.count(b'"label ') != LABELS:
        raise RuntimeError(f"the last release should hold {LABELS} labels")
    return value


async def _bare_rate(settings: Settings, servers: Servers, release: bytes) -> float:
    """Consume the same events and produce as many bytes, with the clients set as the worker sets them."""
    partition = TopicPartition(settings.events, 0)
    topic = f"{settings.stream}.bare"
    await asyncio.to_thread(log.create_topics, settings.kafka, topic)
    consumer = AIOKafkaConsumer(bootstrap_servers=servers.kafka, isolation_level="read_committed")
    producer = AIOKafkaProducer(
        bootstrap_servers=servers.kafka,
        acks="all",
        enable_idempotence=True,
        max_batch_size=1 << 20,
        linger_ms=2,
    )
    async with consumer, producer:
        consumer.assign([partition])
        consumer.seek(partition, WARM_UP)
        moved, start = 0, perf_counter()
        while moved < EVENTS:
            found = await consumer.getmany(partition, timeout_ms=200, max_records=settings.batch_rounds)
            answers = [await producer.send(topic, release) for _ in found.get(partition, ())]
            await asyncio.gather(*answers)
            moved += len(answers)
        return moved / (perf_counter() - start)
