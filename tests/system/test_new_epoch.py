"""Epochs that are opened and closed while something goes wrong: none is lost for good, none is charged twice or not.

Most of it calls what a worker's start consists of in this process, to stop it at the moment that matters.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from stream_dp.dev import redis_server
from stream_dp.journal import EpochJournal
from stream_dp.privacy.composition import Charge
from stream_dp.store import ledger as ledger_module
from stream_dp.store.ledger import Ledger
from stream_dp.worker import Worker
from tests.system.streams import GIVE_UP_SECONDS, Stream, small_stream, some_events


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    with small_stream(kafka, redis_url, topic_prefix, tmp_path) as stream:
        yield stream


@pytest.fixture
def stream_on_own_redis(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    """Its Redis may be told to do badly."""
    with (
        redis_server.running(tmp_path / "redis") as server,
        small_stream(kafka, server.url, topic_prefix, tmp_path) as stream,
    ):
        yield stream


def charges(stream: Stream) -> list[Charge]:
    with stream.redis() as client:
        return Ledger(client, stream.settings.data_source).charges()


async def soon(condition: Callable[[], bool], task: "asyncio.Task[None]") -> None:
    """Return once `condition()`; raise what ends `task` before."""
    async with asyncio.timeout(GIVE_UP_SECONDS):
        while not await asyncio.to_thread(condition):
            if task.done():
                await task
            await asyncio.sleep(0.02)


def test_a_disk_that_is_too_slow_is_waited_for_and_the_epoch_stays_open(
    stream_on_own_redis: Stream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = stream_on_own_redis
    monkeypatch.setattr(ledger_module, "_DURABLE_MILLISECONDS", 50)
    stream.feed(some_events(20, seed=1))

    async def work(redis: Redis) -> None:
        worker = Worker(stream.settings)
        running = asyncio.create_task(worker.run())
        opening = EpochJournal.append

        def append_then_stall(*arguments: object) -> None:
            opening(*arguments)  # type: ignore[arg-type]
            redis.config_set("appendfsync", "no")

        monkeypatch.setattr(EpochJournal, "append", append_then_stall)
        await soon(lambda: caplog.text.count("waiting for Redis") > 1, running)
        assert stream.releases() == []
        monkeypatch.setattr(EpochJournal, "append", opening)
        redis.config_set("appendfsync", "always")
        await soon(lambda: len(stream.releases()) == 20, running)
        worker.stop()
        await running

    with stream.redis() as redis:
        asyncio.run(work(redis))
    (charge,) = charges(stream)
    assert charge.end_offset is None
    journal = EpochJournal(stream.settings)
    assert (len(journal.opened), journal.closed) == (1, {})
    stream.check_everything()
