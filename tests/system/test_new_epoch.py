"""Epochs that are opened and closed while something goes wrong: none is lost for good, none is charged twice or not.

Most of it calls what a worker's start consists of in this process, to stop it at the moment that matters.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.errors import KafkaTimeoutError
from redis import Redis

from stream_dp.dev import redis_server
from stream_dp.epoch import EpochRefused
from stream_dp.journal import EpochClosed, EpochJournal
from stream_dp.privacy.composition import Charge
from stream_dp.resume import NewEpoch, Resumed, open_next, resume
from stream_dp.store import ledger as ledger_module
from stream_dp.store.checkpoints import CheckpointStore, Fenced
from stream_dp.store.ledger import Ledger
from stream_dp.worker import Worker
from tests.system.streams import GIVE_UP_SECONDS, Stream, ended, small_stream, some_events

REFUSED = 2


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


def started(stream: Stream, redis: Redis, wish: NewEpoch | None = None) -> tuple[Resumed, CheckpointStore]:
    """What a worker has before its first round, and the hold on the stream that it has taken."""
    store = CheckpointStore(redis, stream.settings.stream)
    return resume(stream.settings, store, redis, wish), store


def test_a_worker_that_was_superseded_cannot_close_the_epoch(stream: Stream) -> None:
    stream.feed(some_events(20, seed=2))
    assert stream.run(until_round=20) == 0
    with stream.redis() as redis:
        closing, store = started(stream, redis, NewEpoch())
        successor, _ = started(stream, redis)
        counted = closing.pipeline.position
        with pytest.raises(Fenced):
            open_next(stream.settings, store, redis, closing.epochs, NewEpoch(), counted)
    assert successor.pipeline.epoch.number == 1
    assert EpochJournal(stream.settings).closed == {}
    assert [charge.end_offset for charge in charges(stream)] == [None]


def test_who_takes_over_from_a_worker_that_closes_the_epoch_closes_it_too(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker stops between saying so in Redis and writing it into the epochs topic."""
    stream.feed(some_events(20, seed=3))
    assert stream.run(until_round=20) == 0
    with stream.redis() as redis:
        closing, store = started(stream, redis, NewEpoch())
        with monkeypatch.context() as away:
            away.setattr(EpochJournal, "append", unanswered)
            with pytest.raises(KafkaTimeoutError):
                open_next(
                    stream.settings, store, redis, closing.epochs, NewEpoch(), closing.pipeline.position
                )
        stream.feed(some_events(10, seed=4))
        with pytest.raises(EpochRefused, match="epoch 1 is closed"):
            started(stream, redis)
        started(stream, redis, NewEpoch())
        assert redis.get(f"stream_dp:{{{stream.settings.stream}}}:closing") is None
    assert EpochJournal(stream.settings).closed == {1: EpochClosed(1, 20)}
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, 20), (20, None)]


def unanswered(*_: object) -> None:
    raise KafkaTimeoutError("the broker is away")


def test_a_worker_whose_epoch_was_closed_meanwhile_stops(stream: Stream) -> None:
    stream.feed(some_events(20, seed=5))
    worker = stream.start()
    stream.wait_until_round(20, worker)
    EpochJournal(stream.settings).append(EpochClosed(1, 20))
    assert ended(worker) == REFUSED
    assert "epoch 1 was closed at offset 20 while it ran" in stream.logged()
