"""What a live stream's releases take on the broker's disk a day, beside what `stream-dp plan` says."""

import asyncio
import random
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Literal, NamedTuple

from kafka import KafkaProducer
from rich.console import Console
from rich.table import Table

from stream_dp.config.settings import Settings
from stream_dp.dev.flights import flight_events
from stream_dp.dev.servers import embedded
from stream_dp.kafka import log
from stream_dp.planning.costs import costs_of
from stream_dp.planning.plan import Workload, plan
from stream_dp.planning.release_sizes import size_text
from stream_dp.releases.release import decode_release
from stream_dp.workers.histogram import Worker


class Case(NamedTuple):
    """A live stream of so many events a second, after `before` that came at once."""

    name: str
    events_per_second: int
    before: int
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "zstd"


CASES = (
    Case("flights", 1_000, 40_000),
    Case("flights", 1_000, 40_000, "none"),
    Case("flights", 100, 40_000),
    Case("articles", 1_000, 120_000),
    Case("articles", 100, 120_000),
)
LIVE_SECONDS = 8
_LENGTH_AT, _RECORDS_AT, _HEAD = 8, 57, 61


def main(console: Console) -> None:
    """Print what each case took on the disk, extended to a day, and what the model says."""
    table = Table("stream", "compression", "visible", "releases a batch", "measured", "model", "ratio")
    table.title = "Releases of a live stream, bytes a day on one broker"
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as servers:
        for number, case in enumerate(CASES):
            stream = f"sizes-{number}"
            settings = Settings(
                unmetered=True,
                stream=stream,
                kafka=servers.kafka,
                redis=servers.redis_url,
                horizon=2**18 - 1,
                compression=case.compression,
            )
            asyncio.run(_run(settings, case))
            [stored] = [file for file in Path(folder).rglob("0.log") if file.parent.name == settings.releases]
            table.add_row(*_compared(settings, case, stored.read_bytes()))
    console.print(table)


def _compared(settings: Settings, case: Case, stored: bytes) -> tuple[str, ...]:
    """A row of the table."""
    batches = list(_batches(stored))
    live: list[tuple[int, int]] = []
    while sum(records for records, _ in live) < case.events_per_second * LIVE_SECONDS * 0.8:
        live.append(batches.pop())
    releases = sum(records for records, _ in live)
    a_day = 86_400 * case.events_per_second * sum(size for _, size in live) / releases
    end = log.offsets(settings.kafka, settings.releases).end
    [last] = log.read(settings.kafka, settings.releases, end - 1, end)
    labels = decode_release(last.value or b"").labels
    label_bytes = round(sum(len(label.encode()) for label in labels) / len(labels))
    size = len(labels), len(labels), case.events_per_second
    work = Workload(*size, label_bytes=label_bytes, compression=case.compression, at_tests=True)
    model = plan(work, costs_of("blt", case.compression)).releases_a_day.bytes_a_day
    return (
        f"{case.name}, {case.events_per_second:,}/s",
        case.compression,
        f"{len(labels)} of {label_bytes} bytes",
        f"{releases / len(live):.1f}",
        size_text(a_day),
        size_text(model),
        f"{a_day / model:.2f}",
    )


def _batches(stored: bytes) -> Iterator[tuple[int, int]]:
    """The number of records and of bytes of each record batch of a partition's file."""
    at = 0
    while at + _HEAD <= len(stored):
        size = _LENGTH_AT + 4 + struct.unpack_from(">i", stored, at + _LENGTH_AT)[0]
        yield struct.unpack_from(">i", stored, at + _RECORDS_AT)[0], size
        at += size


def _values(case: Case) -> Iterator[bytes]:
    if case.name == "flights":
        yield from flight_events()
    order = random.Random(case.before)
    names = [f"article {order.randrange(10**6)}" for _ in range(300)]
    weights = [1 / (10 + rank) for rank in range(len(names))]
    while True:
        items = ",".join(f'"{name}"' for name in order.choices(names, weights, k=4))
        yield b'{"items":[%b]}' % items.encode()


async def _run(settings: Settings, case: Case) -> None:
    """Count what came before at once, then a live stream."""
    log.create_topics(settings.kafka, settings.events)
    values, worker = _values(case), Worker(settings)
    with KafkaProducer(bootstrap_servers=settings.kafka, linger_ms=0) as producer:
        for _ in range(case.before):
            producer.send(settings.events, next(values))
        running = asyncio.create_task(worker.run())
        await _rounds(worker, case.before)
        feeding = Thread(target=_feed, args=(producer, settings.events, values, case.events_per_second))
        feeding.start()
        await _rounds(worker, case.before + case.events_per_second * LIVE_SECONDS)
        feeding.join()
        worker.stop()
        await running


def _feed(producer: KafkaProducer, topic: str, values: Iterator[bytes], per_second: int) -> None:
    began, sent = time.perf_counter(), 0
    while sent < per_second * LIVE_SECONDS:
        due = min(per_second * LIVE_SECONDS, int((time.perf_counter() - began) * per_second))
        for _ in range(due - sent):
            producer.send(topic, next(values))
        sent = due
        time.sleep(0.0005)
    producer.flush()


async def _rounds(worker: Worker, rounds: int) -> None:
    while worker.rounds < rounds:
        await asyncio.sleep(0.01)
