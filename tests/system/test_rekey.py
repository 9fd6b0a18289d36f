"""Copying a topic by user, on Apache Kafka: each record once, whoever is killed, and a group reads the copy."""

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from stream_dp.config.events_section import EventsSection, Format
from stream_dp.events.event import BadRecord, decode_event
from stream_dp.events.user_partitions import partition_rule
from stream_dp.kafka import log
from stream_dp.workers.rekey import SOURCE_HEADER
from tests.schema_registry.front import front, passed_on, scripted
from tests.schema_registry.orders import FIRST, avro, framed
from tests.schema_registry.server import Registry
from tests.system.example_events import some_events
from tests.system.shard_process import STEPS
from tests.system.sharded import ShardedStream, sharded_stream
from tests.system.streams import ended, wake_up
from tests.system.test_group_intake import KILLED, is_stopped
from tests.system.ticking import open_epoch
from tests.system.waiting import wait_until
from tests.system.worker_process import Kill, Pause

SOURCES, COPIES = 4, 3
BY_USER: dict[str, Any] = {
    "rounds": "ticks",
    "write_barriers": False,
    "intake": "group",
    "unit": "user",
    "items_per_user": 3,
    "mapping": EventsSection(partitioner="murmur2"),
}
Copy = tuple[int, int, int, bytes | None]
"""The partition of a copy, the partition and the offset of what it is a copy of, and its value."""


@pytest.fixture
def settings(topic_prefix: str) -> dict[str, Any]:
    return {**BY_USER, "partitions": COPIES, "source": f"{topic_prefix}-orders"}


def produce(stream: ShardedStream, seed: int) -> None:
    """Events by whatever key, and what is no event, into all partitions of the source."""
    rng = random.Random(seed)
    with KafkaProducer(bootstrap_servers=stream.settings.kafka) as producer:
        for value in [*some_events(40, seed=seed, users=20), b"{}", b"no event", b""]:
            key = rng.choice([None, b"any"]) if value is not None else b"any"
            producer.send(stream.settings.data_source, value, key, partition=rng.randrange(SOURCES))


def originals(stream: ShardedStream) -> list[tuple[int, int]]:
    """Partition and offset of all records of the source."""
    held = log.offsets_of_all(stream.settings.kafka, stream.settings.data_source)
    return [(number, offset) for number, each in enumerate(held) for offset in range(each.end)]


def copies(stream: ShardedStream) -> list[Copy]:
    """The committed records of the copy, in order within each partition."""
    settings, found = stream.settings, list[Copy]()
    with KafkaConsumer(
        bootstrap_servers=settings.kafka, isolation_level="read_committed", enable_auto_commit=False
    ) as reader:
        for number, held in enumerate(log.offsets_of_all(settings.kafka, settings.events)):
            place = TopicPartition(settings.events, number)
            reader.assign([place])
            reader.seek(place, 0)
            while reader.position(place) < held.end:
                for record in reader.poll(500).get(place, []):
                    [told] = [value for name, value in record.headers if name == SOURCE_HEADER]
                    partition, _, offset = told.decode().partition(":")
                    found.append((number, int(partition), int(offset), record.value))
    return found


def check_copied(stream: ShardedStream) -> None:
    """Each record once, in order, and where its user belongs."""
    found, rule = copies(stream), partition_rule("murmur2", COPIES)
    assert sorted((partition, offset) for _, partition, offset, _ in found) == originals(stream)
    for number in range(COPIES):
        for source in range(SOURCES):
            order = [offset for copy, partition, offset, _ in found if (copy, partition) == (number, source)]
            assert order == sorted(order)
    users = list[tuple[int, str]]()
    for number, *_, value in found:
        with suppress(BadRecord):
            user = decode_event(value).user
            users += [(number, user)] if user is not None else []
    assert len(users) > len(found) / 2
    assert all(rule(user) == number for number, user in users)


def test_killed_at_every_step_it_copies_each_record_once_and_a_group_reads_the_copy(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, 2, **settings) as stream:
        log.create_topics(kafka, stream.settings.data_source, partitions=SOURCES)
        open_epoch(stream)
        seed = 0
        for step in STEPS["rekey"]:
            for after in (False, True):
                produce(stream, seed := seed + 1)
                assert ended(stream.run_in_role("rekey", Kill(step, 1, after))) == KILLED, stream.logged()
        copying = stream.run_in_role("rekey")
        wait_until(lambda: len(copies(stream)) >= len(originals(stream)), stream.logged)
        check_copied(stream)
        stream.close_rounds(1_000)
        roles = "worker", "shard", "merge", "intake", "intake"
        stream.finish(1, copying, *[stream.run_in_role(role) for role in roles])
        assert not any(
            "does not stand in the partition" in str(each) for each in stream.dead_letters(at_least=1)
        )


def test_one_that_slept_is_fenced_off_and_writes_nothing_twice(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, 2, **settings) as stream:
        log.create_topics(kafka, stream.settings.data_source, partitions=SOURCES)
        produce(stream, 1)
        zombie = stream.run_in_role("rekey", Pause("commit"))
        wait_until(lambda: is_stopped(zombie), lambda: "it does not sleep")
        successor = stream.run_in_role("rekey")
        wait_until(lambda: len(copies(stream)) >= len(originals(stream)), stream.logged)
        wake_up(zombie)
        assert ended(zombie) == 2, stream.logged()
        assert "has taken over" in stream.logged()
        produce(stream, 2)
        wait_until(lambda: len(copies(stream)) >= len(originals(stream)), stream.logged)
        successor.terminate()
        assert ended(successor) == 0, stream.logged()
        check_copied(stream)


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {
            "name": "customer",
            "type": {"type": "record", "name": "Customer", "fields": [{"name": "id", "type": "string"}]},
        },
        *FIRST["fields"],
    ],
}
PROTO_ORDER = (
    'syntax = "proto3"; message Order { message Customer { string id = 1; } Customer customer = 1; '
    "repeated string sku = 2; }"
)


def order(kind: Format, number: int, user: str, item: str) -> bytes:
    """An order of a user, whose name stands within the value."""
    if kind == "avro":
        return avro(number, ORDER, customer={"id": user}, sku=[item])

    def field(tag: int, content: bytes) -> bytes:
        return bytes([tag << 3 | 2, len(content)]) + content

    return framed(number, b"\0" + field(1, field(1, user.encode())) + field(2, item.encode()))


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_records_that_name_schemas_are_copied_by_the_user_within_them_once_the_registry_answers(
    kafka: str,
    redis_url: str,
    topic_prefix: str,
    tmp_path: Path,
    settings: dict[str, Any],
    registry: Registry,
    kind: Format,
) -> None:
    """Byte for byte, and a group reads the copy by the same registry; 20 users count once for each of 2 items."""
    number = registry.register(
        f"{topic_prefix}-value",
        json.dumps(ORDER) if kind == "avro" else PROTO_ORDER,
        "AVRO" if kind == "avro" else "PROTOBUF",
    )
    users = {
        order(kind, number, f"c{user}", item): f"c{user}" for user in range(20) for item in ("tea", "milk")
    }
    broken = [b"no event", framed(1_000_000, b"x"), next(iter(users))[:-2]]
    rng, rule = random.Random(1), partition_rule("murmur2", COPIES)
    with front(scripted({}, status=503)) as between:
        settings["mapping"] = EventsSection(
            format=kind,
            items="sku",
            user="customer.id",
            partitioner="murmur2",
            schema_registry=between.address,
        )
        with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, 2, **settings) as stream:
            source = stream.settings.data_source
            log.create_topics(kafka, source, partitions=SOURCES)
            open_epoch(stream)
            with KafkaProducer(bootstrap_servers=kafka) as producer:
                for value in [*users] * 2:
                    producer.send(source, value, b"any", partition=rng.randrange(SOURCES))
            waiting = stream.run_in_role("rekey")
            stream.wait_until_logged("cannot be asked (it answers with status 503)")
            assert copies(stream) == []
            between.answers = passed_on(registry.address)
            wait_until(lambda: len(copies(stream)) == 2 * len(users), stream.logged)
            waiting.kill()
            assert ended(waiting) == KILLED
            with KafkaProducer(bootstrap_servers=kafka) as producer:
                for value in broken:
                    producer.send(source, value, b"any", partition=rng.randrange(SOURCES))
            copying = stream.run_in_role("rekey")
            wait_until(lambda: len(copies(stream)) == len(originals(stream)), stream.logged)
            found = copies(stream)
            assert sorted((partition, offset) for _, partition, offset, _ in found) == originals(stream)
            for place, partition, offset, copy in found:
                [original] = log.read(kafka, source, offset, offset + 1, partition)
                assert copy == original.value
                assert copy in broken or place == rule(users[copy or b""])
            stream.close_rounds(1_000)
            roles = "worker", "shard", "merge", "intake", "intake"
            stream.finish(1, copying, *[stream.run_in_role(role) for role in roles])
            assert stream.counts() == {"tea": 20, "milk": 20}
            letters = [letter.headers["reason"] for letter in stream.dead_letters(at_least=len(broken))]
            assert len(letters) == len(broken)
            assert "the registry does not know its schema, 1000000" in letters
