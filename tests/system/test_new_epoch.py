"""Epochs that are opened and closed while something goes wrong: none is lost for good, none is charged twice or not.

Most of it calls what a worker's start consists of in this process, to stop it at the moment that matters.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError
from redis import Redis

from stream_dp.dev import redis_server
from stream_dp.engine import epoch
from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs import lifecycle as epochs_module
from stream_dp.epochs.charges import charge_of
from stream_dp.epochs.journal import EpochClosed, EpochJournal
from stream_dp.epochs.lifecycle import Epochs
from stream_dp.epochs.registry import Registry
from stream_dp.kafka import outages
from stream_dp.kafka.log import LogRefused
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.keyed_noise import NOISE_VERSION
from stream_dp.releases.release import decode_release
from stream_dp.store import ledger as ledger_module
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.store.fence import Fenced
from stream_dp.store.ledger import Ledger, LedgerRefused
from stream_dp.verification.rebuild import rebuild
from stream_dp.workers import session
from stream_dp.workers.histogram import Worker
from stream_dp.workers.resume import NewEpoch, Resumed, open_next, resume
from tests import redis_contents
from tests.system.epoch_steps import charges
from tests.system.example_events import some_events
from tests.system.streams import Stream, small_stream
from tests.system.waiting import GIVE_UP_SECONDS
from tests.system.worker_process import Kill

REFUSED = 2


@pytest.fixture
def stream_on_own_redis(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    """Its Redis may be told to do badly."""
    with (
        redis_server.running(tmp_path / "redis") as server,
        small_stream(kafka, server.url, topic_prefix, tmp_path) as stream,
    ):
        yield stream


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
    monkeypatch.setattr(outages, "AGAIN_SECONDS", 0.0)
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
    return resume(stream.settings, store, redis, Registry(stream.settings.kafka_address), wish), store


def test_a_worker_that_was_superseded_cannot_close_the_epoch(stream: Stream) -> None:
    stream.feed(some_events(20, seed=2))
    assert stream.run(until_round=20) == 0
    with stream.redis() as redis:
        closing, _ = started(stream, redis, NewEpoch())
        successor, _ = started(stream, redis)
        counted = closing.pipeline.position
        with pytest.raises(Fenced):
            open_next(stream.settings, closing.epochs, NewEpoch(), counted)
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
        closing, _ = started(stream, redis, NewEpoch())
        with monkeypatch.context() as away:
            away.setattr(EpochJournal, "append", unanswered)
            with pytest.raises(KafkaTimeoutError):
                open_next(stream.settings, closing.epochs, NewEpoch(), closing.pipeline.position)
        stream.feed(some_events(10, seed=4))
        with pytest.raises(EpochRefused, match="epoch 1 is closed"):
            started(stream, redis)
        started(stream, redis, NewEpoch())
        assert redis.get(f"stream_dp:{{{stream.settings.stream}}}:closing") is None
    assert EpochJournal(stream.settings).closed == {1: EpochClosed(1, 20)}
    assert [(charge.first_offset, charge.end_offset) for charge in charges(stream)] == [(0, 20), (20, None)]


def unanswered(*_: object) -> None:
    raise KafkaTimeoutError("the broker is away")


def test_a_worker_whose_epoch_was_closed_meanwhile_stops(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_CONFIRM_SECONDS", 0.1)
    stream.feed(some_events(20, seed=5))

    async def work() -> None:
        running = asyncio.create_task(Worker(stream.settings).run())
        await soon(lambda: len(stream.releases()) == 20, running)
        await asyncio.to_thread(EpochJournal(stream.settings).append, EpochClosed(1, 20), 1)
        await asyncio.wait_for(running, GIVE_UP_SECONDS)

    with pytest.raises(EpochRefused, match="epoch 1 was closed at offset 20 while it ran"):
        asyncio.run(work())


@pytest.mark.apache("retention")
def test_a_new_epoch_goes_on_where_the_log_lost_what_was_released(stream: Stream) -> None:
    """The broker has lost the records that were counted after the last checkpoint."""
    stream.feed(some_events(40, seed=6))
    assert stream.run(Kill("prepare a checkpoint", nth=2)) < 0  # whatever was sent is in the broker then
    released = len(stream.releases())
    assert stream.checkpoint().state.round < released - 1
    stream.rewrite(stream.settings.events, stream.events()[: released - 1])
    assert f"the releases go up to round {released}" in stream.refusal()
    check_that_a_new_epoch_releases(stream)


def check_that_a_new_epoch_releases(stream: Stream) -> None:
    """Asked for, it opens, counts what comes from then on, and is charged; the one before is closed."""
    worker = stream.start(new_epoch=NewEpoch())
    stream.wait_until_logged("epoch 2, round")
    before = len(stream.releases())
    stream.feed(some_events(10, seed=9))
    stream.wait_until(lambda: len(stream.releases()) == before + 10, worker)
    stream.stop(worker)
    assert {decode_release(record.value or b"").epoch for record in stream.releases()[before:]} == {2}
    journal = EpochJournal(stream.settings)
    assert (len(journal.opened), set(journal.closed)) == (2, {1})
    assert len(charges(stream)) == 2


def test_under_another_noise_version_the_old_epoch_is_not_counted_on(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.feed(some_events(20, seed=10))
    assert stream.run(until_round=20) == 0
    stream.feed(some_events(10, seed=11))
    with stream.redis() as redis:
        monkeypatch.setattr(epoch, "NOISE_VERSION", NOISE_VERSION + 1)
        with pytest.raises(EpochRefused, match=r"draws noise of version .* --new-epoch"):
            started(stream, redis)
        resumed, _ = started(stream, redis, NewEpoch())
    assert (resumed.closing, resumed.pipeline.epoch.number) == (False, 2)


@pytest.mark.parametrize("step", [Epochs.finish_opening, CheckpointStore.commit])
def test_an_outage_while_an_epoch_is_opened_does_not_open_another(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, step: Callable[..., object]
) -> None:
    """The first attempt does the step, and gets no answer; the second one is asked the same."""
    stream.feed(some_events(20, seed=12))
    assert stream.run(until_round=20) == 0
    owner = Epochs if step is Epochs.finish_opening else CheckpointStore

    def then_no_answer(*arguments: object) -> None:
        step(*arguments)
        raise KafkaTimeoutError("no answer")

    settings, wish = stream.settings, NewEpoch(recount=True)
    with stream.redis() as redis:
        store = CheckpointStore(redis, settings.stream)
        redis.delete(
            f"stream_dp:{{{settings.stream}}}:meta"
        )  # so that the first attempt opens the epoch at once
        with monkeypatch.context() as away:
            away.setattr(owner, step.__name__, then_no_answer)
            with pytest.raises(KafkaTimeoutError):
                resume(settings, store, redis, Registry(settings.kafka_address), wish)
        resumed = resume(settings, store, redis, Registry(settings.kafka_address), wish)
    assert (resumed.closing, resumed.pipeline.epoch.number) == (False, 2)
    assert len(EpochJournal(settings).opened) == len(charges(stream)) == 2


def test_an_epoch_that_an_earlier_version_has_charged_is_opened_at_that_charge(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker died before the first checkpoint; since then the same epoch would be charged another delta."""
    stream.feed(some_events(5, seed=12))
    now = charge_of

    def before(opened: epoch.Epoch) -> Charge:
        charge = now(opened)
        return msgspec.structs.replace(charge, delta=charge.delta * 1.5)

    def dies(*_: object) -> None:
        raise KafkaTimeoutError("the worker is gone")

    with stream.redis() as redis:
        with monkeypatch.context() as earlier:
            earlier.setattr(epochs_module, "charge_of", before)
            earlier.setattr(CheckpointStore, "commit", dies)
            with pytest.raises(KafkaTimeoutError):
                started(stream, redis)
        made = charges(stream)
        resumed, _ = started(stream, redis)
    assert charges(stream) == made == [before(resumed.pipeline.epoch)]


def test_an_outage_after_an_epoch_was_opened_does_not_open_another(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.feed(some_events(20, seed=13))
    assert stream.run(until_round=20) == 0
    with stream.redis() as redis:
        redis.delete(f"stream_dp:{{{stream.settings.stream}}}:meta")
    starts = iter([KafkaConnectionError("the broker is away")])
    start = AIOKafkaProducer.start

    async def fail_once(producer: AIOKafkaProducer) -> None:
        for failure in starts:
            raise failure
        await start(producer)

    async def work() -> None:
        worker = Worker(stream.settings, NewEpoch())
        running = asyncio.create_task(worker.run())
        await soon(lambda: len(EpochJournal(stream.settings).opened) == 2, running)
        await asyncio.to_thread(stream.feed, some_events(5, seed=14))
        await soon(lambda: bool(stream.releases()[20:]), running)
        worker.stop()
        await running

    monkeypatch.setattr(AIOKafkaProducer, "start", fail_once)
    asyncio.run(work())
    assert list(starts) == []
    assert len(EpochJournal(stream.settings).opened) == len(charges(stream)) == 2


def lose_redis(stream: Stream) -> None:
    """All but the noise key, the ledger included."""
    with stream.redis() as redis:
        own, source = f"{{{stream.settings.stream}}}", f"{{{stream.settings.data_source}}}"
        names = {
            **redis_contents.dumps(redis, f"stream_dp:{own}:*"),
            **redis_contents.dumps(redis, f"stream_dp:{source}:*"),
        }
        redis.delete(*(name for name in names if not name.endswith(b":key")))


def test_a_rebuilt_epoch_is_charged(stream: Stream) -> None:
    """Redis has lost its charge, and the topic that remembers it, too."""
    stream.feed(some_events(20, seed=15))
    assert stream.run(until_round=20) == 0
    before = charges(stream)
    lose_redis(stream)
    stream.rewrite(f"{stream.settings.data_source}.ledger", [], **{"retention.ms": "-1"})
    with stream.redis() as redis:
        assert rebuild(stream.settings, redis).state.round == 20
        assert charges(stream) == before
        rebuild(stream.settings, redis, replace=True)
        assert charges(stream) == before
        lose_redis(stream)
        Ledger(redis, stream.settings.data_source).set_budget(1.0, 1e-9, "event")
        stream.rewrite(f"{stream.settings.data_source}.ledger", [], **{"retention.ms": "-1"})
        with pytest.raises(LedgerRefused, match="does not fit the budget"):
            rebuild(stream.settings, redis)
    assert not any(name.endswith(b":meta") for name in stream.redis_keys())


def test_an_epoch_that_was_never_charged_is_not_rebuilt(stream: Stream) -> None:
    stream.feed(some_events(20, seed=16))
    assert stream.run(Kill("charge the ledger")) < 0
    lose_redis(stream)
    with stream.redis() as redis:
        Ledger(redis, stream.settings.data_source).set_budget(1.0, 1e-9, "event")
        with pytest.raises((EpochRefused, LedgerRefused)):
            rebuild(stream.settings, redis)
    assert not any(name.endswith(b":meta") for name in stream.redis_keys())


def topic_of(stream: Stream, name: str, partitions: int = 1, **configs: str) -> None:
    options = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
    with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
        admin.create_topics({name: options}, wait_for_metadata=True)


@pytest.mark.apache("topics")
@pytest.mark.parametrize(
    ("name", "partitions", "retention", "told"),
    [
        ("epochs", 1, "604800000", "retention.ms"),
        ("events.ledger", 1, "604800000", "retention.ms"),
        ("events.ledger", 3, "-1", "has 3 partitions"),
    ],
)
def test_a_journal_that_could_forget_is_refused(
    stream: Stream, name: str, partitions: int, retention: str, told: str
) -> None:
    topic_of(stream, f"{stream.settings.stream}.{name}", partitions, **{"retention.ms": retention})
    with stream.redis() as redis, pytest.raises((LogRefused, LedgerRefused), match=told):
        started(stream, redis)
