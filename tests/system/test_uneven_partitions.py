"""Partitions that differ: without a leader, without a beginning, idle, overloaded, or written in transactions."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import KafkaError

from stream_dp.barriers import writer
from stream_dp.barriers.key import barrier_key
from stream_dp.barriers.writer import _Connection
from stream_dp.config.events_section import EventsSection
from stream_dp.kafka import clients, log
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from tests.system.example_events import event, some_events
from tests.system.partitioned import KINDS, PARTITIONS
from tests.system.streams import Stream, ended
from tests.system.ticking import MakeStream, open_epoch
from tests.system.waiting import wait_until


def forget(stream: Stream, partition: int, before: int) -> None:
    """What retention does: the first records of a partition are removed."""
    with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
        admin.delete_records({TopicPartition(stream.settings.events, partition): before})


class WithoutLeader:
    """An admin client to whom nobody leads partition 1, and that may not be asked where it ends."""

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._admin.describe_topics(topics)
        for partition in found[0]["partitions"]:
            if partition["partition_index"] == 1:
                partition["leader_id"] = -1
        return found

    def list_partition_offsets(self, asked: dict[TopicPartition, Any], *more: Any) -> Any:
        if any(place.partition == 1 for place in asked):
            raise KafkaError("nobody leads it")
        return self._admin.list_partition_offsets(asked, *more)


@pytest.mark.apache("offsets")
@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_that_nobody_leads_repeats_its_last_offset_and_holds_up_no_other(
    spread: MakeStream, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spread(rounds=kind) as stream:
        open_epoch(stream)
        made, key = clients.admin_client, barrier_key(stream.key())
        said = []
        for due, leads in ((1_000, True), (2_000, False), (3_000, False), (4_000, True)):
            stream.spread(some_events(9, seed=due), PARTITIONS)
            monkeypatch.setattr(
                writer, "admin_client", made if leads else lambda kafka: WithoutLeader(made(kafka))
            )
            with _Connection(stream.settings, key, lambda: 0) as connection:
                connection.write(due)
            said.append((stream.chain().last.ends, stream.chain().last.repeated))
        repeated = {"1": 1_000}
        assert said == [((3, 3, 3), {}), ((6, 3, 6), repeated), ((9, 3, 9), repeated), ((12, 12, 12), {})]
        assert stream.run(until_round={"ticks": 4, "per-event": 36, "every-3": 12}[kind]) == 0
        stream.check_everything()


@pytest.mark.parametrize("kind", KINDS)
def test_idle_and_overloaded_partitions_give_what_the_log_gives(spread: MakeStream, kind: str) -> None:
    """Of twelve, one has nearly all events, one a few large ones, and the others nothing."""
    rng = random.Random(7)
    with spread(rounds=kind, partitions=12, horizon=16_383, batch_rounds=64) as stream:
        open_epoch(stream)
        events = 0
        for number in range(1, 7):
            stream.feed(some_events(120, seed=number), partition=7)
            if number % 2:
                large = event(*[f"long {rng.randrange(10**9)}" + "x" * 900 for _ in range(300)])
                stream.feed([large] * 2, partition=2)
            events += 120 + 2 * (number % 2)
            stream.close_rounds(1_000 * number)
        last = {"ticks": 6, "per-event": events, "every-3": events // 3}[kind]
        assert stream.run(until_round=last) == 0
        assert stream.checkpoint().position.offsets == (0, 0, 6, 0, 0, 0, 0, 720, 0, 0, 0, 0)
        stream.check_everything()
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict == Verdict.IDENTICAL


@pytest.mark.apache("retention", alone=True)
@pytest.mark.parametrize("while_it_runs", [True, False])
def test_a_partition_that_comes_without_its_beginning_stops_the_stream(
    spread: MakeStream, while_it_runs: bool
) -> None:
    with spread(rounds="ticks") as stream:
        open_epoch(stream)
        stream.spread(some_events(9, seed=1), PARTITIONS)
        stream.close_rounds(1_000)
        worker = stream.start()
        stream.wait_until_round(1, worker)
        if not while_it_runs:
            stream.stop(worker)
        stream.add_partition()
        stream.feed([event("lost"), event("kept")], partition=PARTITIONS)
        forget(stream, PARTITIONS, before=1)
        stream.close_rounds(2_000)
        if while_it_runs:
            assert ended(worker) == 2
            told = stream.logged().splitlines()[-1]
        else:
            told = stream.refusal()
        assert "no longer holds the next record to count" in told
        assert stream.last_round() == 1


def wait_until_stable(stream: Stream, *ends: int) -> None:
    """Return once the broker calls the partitions stable up to there, which may be after a transaction's end."""

    def found() -> list[int]:
        return [
            each.end for each in log.offsets_of_all(stream.settings.kafka_address, stream.settings.events)
        ]

    wait_until(lambda: found() == [*ends], lambda: f"{found()} instead of {ends}")


@contextmanager
def transaction(stream: Stream, name: str, *values: tuple[int, bytes]) -> Iterator[Producer]:
    """A transaction that holds these values, each for a partition, and is open yet; it is aborted unless committed."""
    producer = Producer(
        {"bootstrap.servers": stream.settings.kafka, "transactional.id": f"{stream.settings.stream}-{name}"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition, value in values:
        producer.produce(stream.settings.events, value, partition=partition)
    producer.flush(60)
    yield producer


@pytest.mark.apache("transactions", alone=True)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_aborted_counts_nowhere_and_what_is_open_waits(spread: MakeStream, kind: str) -> None:
    """Each partition ends where the broker calls it stable, though later records of others are there."""
    with spread(rounds=kind) as stream:
        open_epoch(stream)
        with _Connection(stream.settings, barrier_key(stream.key()), lambda: 0) as connection:
            both = [(0, event("tea", "both")), (1, event("tea", "both"))]
            with transaction(stream, "committed", *both, *both) as committed:
                committed.commit_transaction(60)
            with transaction(stream, "aborted", (0, event("bad")), (2, event("bad"))) as aborted:
                aborted.abort_transaction(60)
            stream.feed([event("plain")] * 2, partition=2)
            with transaction(stream, "late", (1, event("late")), (2, event("late"))) as late:
                stream.feed([event("behind")], partition=1)
                connection.write(1_000)
                assert stream.chain().last.ends == (5, 3, 4), "marks take offsets too"
                worker = stream.start()
                stream.wait_until_round({"ticks": 1, "per-event": 6, "every-3": 2}[kind], worker)
                late.commit_transaction(60)
            connection.write(2_000)
            assert stream.chain().last.ends == (5, 6, 6)
            stream.wait_until_round({"ticks": 2, "per-event": 9, "every-3": 3}[kind], worker)
        stream.stop(worker)
        state = stream.checkpoint().state
        counts = dict(zip(state.labels, state.counts.tolist(), strict=True))
        assert counts == {"tea": 4, "both": 4, "plain": 2, "late": 2, "behind": 1}
        stream.check_everything()
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict == Verdict.IDENTICAL
            assert rebuild(stream.settings, redis, replace=True).position == stream.checkpoint().position


@pytest.fixture
def foreign(make_stream: MakeStream, topic_prefix: str) -> Iterator[Stream]:
    """A stream that has counted five records of each partition of another team's topic, and stands still."""
    values: dict[str, Any] = {"rounds": "ticks", "write_barriers": False, "partitions": PARTITIONS}
    section = EventsSection(topic=f"{topic_prefix}-orders")
    with make_stream(mapping=section, **values) as stream:
        open_epoch(stream)
        stream.spread([event("tea")] * 15, PARTITIONS)
        stream.close_rounds(1_000)
        assert stream.run(until_round=1) == 0
        yield stream


@pytest.mark.apache("retention", alone=True)
def test_another_teams_retention_that_passes_what_was_counted_is_weaker_and_no_end(foreign: Stream) -> None:
    foreign.spread([event("milk")] * 6, PARTITIONS)
    forget(foreign, 2, before=5)
    foreign.close_rounds(2_000)
    assert foreign.run(until_round=2) == 0
    assert "no longer holds the last record counted of partition 2" in foreign.logged()
    assert "which is weaker than comparing records" in foreign.logged()
    state = foreign.checkpoint().state
    assert dict(zip(state.labels, state.counts.tolist(), strict=True)) == {"tea": 15, "milk": 6}


@pytest.mark.apache("retention", alone=True)
def test_what_it_removes_before_it_was_counted_stops_the_stream(foreign: Stream) -> None:
    foreign.spread([event("milk")] * 6, PARTITIONS)
    forget(foreign, 2, before=6)
    foreign.close_rounds(2_000)
    assert "is not the log that was counted" in foreign.refusal()


@pytest.mark.apache("retention", alone=True)
def test_a_topic_made_anew_that_has_forgotten_as_much_is_another_one(foreign: Stream) -> None:
    records = [each for number in range(PARTITIONS) for each in foreign.events(number)]
    foreign.rewrite(foreign.settings.events, [*records, *records])
    forget(foreign, 2, before=5)
    foreign.close_rounds(2_000)
    assert "is not the log that was counted" in foreign.refusal()
