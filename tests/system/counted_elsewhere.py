"""Streams that another engine counts: make them, feed them, and compare their releases with those of one worker."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stream_dp.dev import redis_server
from stream_dp.dev.servers import Servers
from stream_dp.events.merged_log import merged
from stream_dp.events.record import Record
from stream_dp.kafka import clients
from stream_dp.releases.release import decode_release
from tests.apache_kafka.server import apache_kafka
from tests.pipeline.reference_engine import counted, encoded
from tests.system.broker_clients import leave
from tests.system.example_events import some_events
from tests.system.sharded import ShardedStream, sharded_stream
from tests.system.streams import ended
from tests.system.ticking import open_epoch
from tests.system.waiting import wait_until

PARTITIONS, BOUND = 3, 3
TEMPLATES = Path(__file__).parents[2] / "deploy" / "engines"


@contextmanager
def counted_stream(kafka: str, redis_url: str, name: str, folder: Path) -> Iterator[ShardedStream]:
    """A stream over three partitions in two shards, whose barriers the test writes."""
    ticks = {"rounds": "ticks", "write_barriers": False, "intake": "counts", "items_per_event": BOUND}
    with sharded_stream(kafka, redis_url, name, folder, 2, partitions=PARTITIONS, **ticks) as stream:
        yield stream


def feed_rounds(stream: ShardedStream, first: int, last: int) -> None:
    """Write the events of these rounds, and the barriers that close them."""
    rng = random.Random(first)
    for number in range(first, last + 1):
        for partition in range(PARTITIONS):
            values = some_events(rng.randint(1, 9), seed=rng.randrange(10**6))
            stream.feed(values, partition=partition)
        stream.close_rounds(1_000 * number)


def feed_rival(stream: ShardedStream, due: int) -> None:
    """Close a round, and let a second writer say too late that it ends earlier: that barrier does not count."""
    chain = stream.chain()
    rival = chain.encode(due, chain.last.offsets)
    stream.feed(some_events(9, seed=due), partition=1)
    stream.close_rounds(due)
    stream.write(stream.settings.barriers, [Record(0, due, None, rival)])


def check_releases(stream: ShardedStream) -> None:
    """They are those of one worker that reads the events itself, also where one is there twice."""
    expected = {(each.round, each.part): each.value for each in stream.uninterrupted()[1].releases}
    found: dict[tuple[int, int], bytes | None] = {}
    for record in stream.releases():
        release = decode_release(record.value or b"")
        assert found.setdefault((release.round, release.part), record.value) == record.value
    assert expected
    assert found == expected


def wait_for_counts_topic(stream: ShardedStream) -> None:
    """Return when a reader has made it."""

    def made() -> bool:
        try:
            stream.records_of(stream.settings.counts, PARTITIONS - 1)
        except Exception:
            return False
        return True

    wait_until(made, stream.logged)


def counted_rounds(stream: ShardedStream) -> list[set[int]]:
    """The numbers of the barriers that each partition of the counts topic names."""
    values = [stream.records_of(stream.settings.counts, number) for number in range(PARTITIONS)]
    return [{json.loads(each.value or b"")["n"] for each in records} for records in values]


class CountingEngine:
    """Counts what the topics hold by now, as another engine would, and writes what it has not written yet."""

    def __init__(self, stream: ShardedStream, bound: int = BOUND) -> None:
        self._stream, self._bound, self._written = stream, bound, 0
        self._first = stream.barrier()

    def records(self) -> list[dict[str, Any]]:
        stream = self._stream
        topic, partitions = stream.settings.events, len(stream.ends())

        def events(partition: int) -> list[tuple[int, list[Record]]]:
            found = stream.records_of(topic, partition)
            return [(found[-1].offset + 1, found)] if found else []

        entries = merged(stream.chain(self._first), stream.barrier_records(), events, *[0] * partitions)
        return list(counted(entries, stream.chain(self._first), self._bound))

    def go_on(self) -> None:
        found = self.records()
        for record in found[self._written :]:
            value = Record(0, 1_000, None, encoded(record), record["partition"])
            self._stream.write(self._stream.settings.counts, [value])
        self._written = len(found)


class Engine:
    """The process of an engine that counts a stream, and what it starts itself."""

    def __init__(self, stream: ShardedStream, command: Sequence[str | Path], **environment: str) -> None:
        self._stream, self._said = stream, stream.log_file.with_suffix(".engine")
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                command, stdout=said, stderr=said, start_new_session=True, env={**os.environ, **environment}
            )

    def wait_until_counted(self, number: int) -> None:
        """Return when the counts of barrier `number` are in the topic, however long the engine takes to start."""
        while not all(number in found for found in counted_rounds(self._stream)):
            assert self._process.poll() is None, self._said.read_text()
            time.sleep(0.2)

    def kill(self) -> None:
        """End all of its processes at once, wherever they are."""
        with suppress(ProcessLookupError):  # it failed, and nothing of it is left
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def check_engine(
    stream: ShardedStream, engine: Callable[[], Engine], forget: Callable[[], None] = lambda: None
) -> None:
    """An engine that is killed, and started again, gives the releases of one worker that reads the events.

    `forget` takes from what it keeps that it was done with what it counted last.
    """
    open_epoch(stream)
    processes = [stream.run_in_role(role) for role in ("worker", "intake", "shard", "merge")]
    wait_for_counts_topic(stream)
    feed_rounds(stream, 1, 3)
    with killed_at_the_end(engine()) as first:
        first.wait_until_counted(3)
        feed_rounds(stream, 4, 6)
        feed_rival(stream, 7_000)
        first.wait_until_counted(4)  # and is killed at some place in the rest
    forget()
    feed_rounds(stream, 8, 9)
    with killed_at_the_end(engine()) as second:
        second.wait_until_counted(9)
        stream.wait_until_round(9)
    for process in processes:
        process.terminate()
        assert ended(process) == 0, stream.logged()
    check_releases(stream)


@contextmanager
def killed_at_the_end(engine: Engine) -> Iterator[Engine]:
    """Kill it when the block ends."""
    try:
        yield engine
    finally:
        engine.kill()


@contextmanager
def own_servers(folder: Path) -> Iterator[Servers]:
    """A real Apache Kafka, which the engines' clients need, and a Redis."""
    with (
        apache_kafka(folder / "kafka") as kafka,
        redis_server.running(folder / "redis") as redis,
        pytest.MonkeyPatch.context() as patience,
    ):
        patience.setattr(clients, "BOOTSTRAP_MILLISECONDS", 60_000)
        yield Servers(kafka, redis.url)
        leave(kafka)
