"""A start asks Kafka many things over few connections, and each answer is what the broker says then."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError
from kafka.net.connection import KafkaConnection
from redis import Redis

from stream_dp.engine.epoch import EpochRefused
from stream_dp.epochs.registry import Registry
from stream_dp.events.record import Record
from stream_dp.kafka import clients, ends, log
from stream_dp.operations.watch import Watch
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.store.checkpoints import CheckpointStore, StateDamaged
from stream_dp.store.lease import Lease
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.republish import republish
from stream_dp.workers.resume import WarmState, resume
from stream_dp.workers.standby import Standby
from tests.system.damage import flip
from tests.system.example_events import some_events
from tests.system.streams import Stream


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many clients of each kind this process has made."""
    counted, make = Counter[str](), clients._made

    def counting(kind: Callable[..., Any], *place: Any) -> Any:
        counted[kind.__name__] += 1
        return make(kind, *place)

    monkeypatch.setattr(clients, "_made", counting)
    return counted


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many requests of each kind this process has sent to Kafka."""
    counted, send = Counter[str](), KafkaConnection.send_request

    def counting(connection: KafkaConnection, request: Any, **options: Any) -> Any:
        counted[type(request).__name__] += 1
        return send(connection, request, **options)

    monkeypatch.setattr(KafkaConnection, "send_request", counting)
    return counted


def resumed(stream: Stream, redis: Redis, warm: WarmState | None = None) -> Pipeline:
    """Take the stream over, and look at what is looked at before the first checkpoint."""
    store = CheckpointStore(redis, stream.settings.stream)
    registry = Registry(stream.settings.kafka_address)
    pipeline = resume(stream.settings, store, redis, registry, warm=warm).pipeline
    store.check_unread()
    assert isinstance(pipeline, Pipeline)
    return pipeline


def start(stream: Stream) -> int:
    """Take the stream over; returns the round that it goes on from."""
    with stream.redis() as redis:
        return resumed(stream, redis).round


def rehearsed(stream: Stream, redis: Redis) -> WarmState:
    """What a standby knows of the state as it is now."""
    settings = stream.settings
    watch = Watch(settings.stream, settings.data_source)
    standby = Standby(settings, redis, Lease(redis, settings.stream), watch)
    standby._rehearse()
    copy = standby._take_copy()
    assert copy is not None
    return copy


@pytest.mark.counts_clients
def test_one_client_of_a_kind_is_enough_for_a_start(stream: Stream, made: Counter[str]) -> None:
    with clients.kept_clients():
        assert start(stream) == 0
    assert made == {"KafkaAdminClient": 1, "KafkaConsumer": 1, "KafkaProducer": 1}  # it opened an epoch
    stream.feed(some_events(30, seed=1))
    assert stream.run(until_round=30) == 0
    made.clear()
    with clients.kept_clients():
        assert start(stream) == 30
    assert made == {"KafkaAdminClient": 1, "KafkaConsumer": 1}


def test_a_start_asks_kafka_for_little(stream: Stream, asked: Counter[str]) -> None:
    """Every request takes both sides' time, and those who wait for a stream wait for all of them."""
    start(stream)
    opening = asked.total()
    stream.feed(some_events(30, seed=1))
    assert stream.run(until_round=30) == 0
    asked.clear()
    assert start(stream) == 30
    assert opening < 120
    assert asked.total() < 80, asked


@pytest.mark.counts_clients
def test_clients_of_a_kind_are_as_many_as_are_read_at_once(stream: Stream, made: Counter[str]) -> None:
    """To verify is to read events and releases side by side."""
    stream.feed(some_events(30, seed=1))
    assert stream.run(until_round=30) == 0
    made.clear()  # the first test of a process makes the client by which all of them look
    with stream.redis() as redis:
        verify_epoch(stream.settings, redis)
        assert made == {"KafkaAdminClient": 1, "KafkaConsumer": 2}
        made.clear()
        assert republish(stream.settings, redis, dry_run=True) == []
        assert made == {"KafkaAdminClient": 1, "KafkaConsumer": 2}
        made.clear()
        rebuild(stream.settings, redis, replace=True)
        assert made["KafkaAdminClient"] == 1
        assert made["KafkaConsumer"] <= 2


@pytest.mark.apache("offsets")
def test_a_client_that_is_kept_reads_a_topic_that_was_made_anew(stream: Stream) -> None:
    def held() -> list[bytes | None]:
        offsets = log.offsets(own.kafka, own.events)
        return [record.value for record in log.read(own.kafka, own.events, offsets.first, offsets.end)]

    own = stream.settings
    stream.feed([b"one", b"two", b"three"])
    with clients.kept_clients():
        assert held() == [b"one", b"two", b"three"]
        stream.feed([b"four"])
        assert held()[-1] == b"four"
        stream.rewrite(own.events, [Record(0, 1, None, b"another"), Record(0, 1, None, b"log")])
        assert held() == [b"another", b"log"]


def test_a_start_goes_on_from_the_checkpoint_that_is_there_whatever_the_standby_has_read(
    stream: Stream,
) -> None:
    stream.feed(some_events(30, seed=1))
    assert stream.run(until_round=30) == 0
    with stream.redis() as redis:
        earlier = rehearsed(stream, redis)
        stream.feed(some_events(30, seed=2))
        assert stream.run(until_round=60) == 0
        pipeline = resumed(stream, redis, earlier)
    assert (earlier.pipeline.round, pipeline.round) == (30, 60)
    known = earlier.pipeline.histogram.state().labels
    assert pipeline.histogram.state().labels is known, "nothing was used, so this tests nothing"
    stream.check_state(pipeline)


def test_a_flipped_bit_of_any_key_is_refused_whatever_the_standby_has_read(stream: Stream) -> None:
    stream.feed(some_events(30, seed=1))
    assert stream.run(until_round=30) == 0
    random, unread = Random(3), (b"}:fence", b"}:lease")
    with stream.redis() as redis:
        for name, whole in stream.redis_keys().items():
            if not name.endswith(unread):
                earlier = rehearsed(stream, redis)
                flip(redis, name, random)
                with pytest.raises((StateDamaged, EpochRefused)):
                    pytest.fail(f"{name!r} went unnoticed at round {resumed(stream, redis, earlier).round}")
                redis.restore(name, 0, whole, replace=True)
        assert resumed(stream, redis, rehearsed(stream, redis)).round == 30


def test_where_a_partition_ends_is_asked_again_if_another_broker_leads_it_by_now(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = stream.settings
    stream.feed([b"one", b"two"])
    found = log.Offsets(0, 2)
    assert (log.offsets(own.kafka, own.events), log.offsets_of_all(own.kafka, own.events)) == (found, [found])
    with pytest.raises(UnknownTopicOrPartitionError):
        log.offsets(own.kafka, own.events, partition=1)
    asked = list[TopicPartition]()

    async def moved(admin: object, leaders: dict[TopicPartition, int]) -> None:
        asked.extend(leaders)
        raise NotLeaderForPartitionError

    monkeypatch.setattr(ends, "_asked", moved)
    assert log.offsets(own.kafka, own.events) == found
    assert asked == [TopicPartition(own.events, 0)]
