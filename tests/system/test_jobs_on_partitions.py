"""Jobs on topics of several partitions, and on topics whose records are mapped to events."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka.structs import TopicPartition

from stream_dp.config.events_section import EventsSection
from stream_dp.jobs.result import JobResult
from stream_dp.jobs.store import Plan
from stream_dp.kafka.clients import consumer_client
from stream_dp.store.ledger import Ledger
from tests.system.job_place import Place
from tests.system.waiting import GIVE_UP_SECONDS

ALL_OF_IT: dict[str, Any] = {
    "job": "histogram",
    "mechanism": "gaussian",
    "epsilon": 20,
    "delta": 1e-6,
    "items_per_user": 3,
}
MORNING, NOON = 1_767_250_800_000, 1_767_265_200_000  # 2026-01-01, 7 and 11 o'clock
PARTITIONS, EMPTY = 4, 2


@pytest.fixture
def place(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Place]:
    """900 people over three of four partitions: all hold tea in the morning, and a third coffee at noon."""
    with closing(Place(kafka, redis_url, topic_prefix, tmp_path, "user", PARTITIONS)) as place:
        for number in range(900):
            put(place, number, {"user": f"u{number}", "items": ["tea"]}, MORNING)
        for number in range(0, 900, 3):
            put(place, number, {"user": f"u{number}", "items": ["coffee"]}, NOON)
        place.producer.flush(GIVE_UP_SECONDS)
        yield place


def put(place: Place, number: int, value: dict[str, Any], at: int) -> None:
    """In any partition but the empty one, and the events of one person in different ones."""
    partition = [0, 1, 3][(number + (at == NOON)) % 3]
    place.producer.send(
        place.settings.events, json.dumps(value).encode(), partition=partition, timestamp_ms=at
    )


def counts(result: JobResult) -> dict[str, int]:
    assert result.status == "done", result.reason
    return dict(zip(result.labels, result.counts or [], strict=True))


def test_a_job_reads_every_partition_and_one_person_counts_once_for_a_label(place: Place) -> None:
    Ledger(place.redis, place.settings.events).set_budget(100, 1e-4, "user")
    for number in range(900):  # everybody once more, elsewhere
        put(place, number + 1, {"user": f"u{number}", "items": ["tea"]}, NOON)
    place.producer.flush(GIVE_UP_SECONDS)
    [result] = place.answers({"id": "all", **ALL_OF_IT})
    found = counts(result)
    assert found["tea"] == pytest.approx(900, abs=10 * (result.sd or 0))
    assert found["coffee"] == pytest.approx(300, abs=10 * (result.sd or 0))
    ends = (result.end_offset, *result.further_ends)
    assert ends == (600, 900, 0, 600)
    assert (result.first_offset, *result.further_offsets) == (0, 0, 0, 0)
    [charge] = place.charges()
    assert (charge.first_offset, charge.further_offsets) == (0, (0, 0, 0))
    assert charge.ends == ends


@pytest.mark.apache("times")
def test_times_choose_records_of_every_partition_and_offsets_are_refused(place: Place) -> None:
    morning, noon, offset, never = place.answers(
        {"id": "morning", **ALL_OF_IT, "source": {"to": "2026-01-01T09:00:00Z"}},
        {"id": "noon", **ALL_OF_IT, "source": {"from": "2026-01-01T09:00:00Z", "to": "latest"}},
        {"id": "offset", **ALL_OF_IT, "source": {"from": 7}},
        {"id": "never", **ALL_OF_IT, "source": {"from": "2026-01-02", "to": "2026-01-01"}},
    )
    assert set(counts(morning)) == {"tea"}
    assert set(counts(noon)) == {"coffee"}
    assert (morning.end_offset, *morning.further_ends) == (noon.first_offset, *noon.further_offsets)
    assert "has 4 partitions, each with offsets of its own" in (offset.reason or "")
    assert "is empty in every partition" in (never.reason or "")
    first, second = place.charges()
    assert first.ends == (second.first_offset, *second.further_offsets)
    for partition, end in enumerate((noon.end_offset, *noon.further_ends)):
        read = [(first.covers(partition, each), second.covers(partition, each)) for each in range(end or 0)]
        assert all(one != other for one, other in read), "each record is paid for by the job that read it"


def test_a_job_that_is_taken_up_again_reads_what_it_was_admitted_for(place: Place) -> None:
    """Its result was lost after the charge; since then there are more records."""
    request = {"id": "again", **ALL_OF_IT}
    [first] = place.answers(request)
    plan = place.store.plan("again")
    assert plan is not None
    assert plan.further == ((0, 600), (0, 0), (0, 300))
    place.redis.hdel(f"stream_dp:{{{place.settings.stream}}}:job:again", "result")
    for number in range(500):
        put(place, number, {"user": f"v{number}", "items": ["milk"]}, NOON)
    place.producer.flush(GIVE_UP_SECONDS)
    [again] = place.answers(request)
    assert msgspec.structs.replace(again, ts=first.ts) == first
    assert len(place.charges()) == 1


def test_a_plan_of_an_earlier_program_has_one_partition() -> None:
    written = {"digest": "d", "job": "top-k", "key": b"k", "first": 3, "end": 9, "mark": None}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(written), type=Plan).further == ()


ORDERS = EventsSection(items="lines[*].sku", user="customer", where="paid")


def test_a_job_reads_records_as_its_stream_does(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with closing(Place(kafka, redis_url, topic_prefix, tmp_path, "user", 2, ORDERS)) as place:
        for number in range(400):
            order = {"customer": f"c{number}", "lines": [{"sku": "tea"}], "paid": number < 300}
            place.producer.send(place.settings.events, json.dumps(order).encode(), partition=number % 2)
        place.producer.flush(GIVE_UP_SECONDS)
        request = {"id": "orders", **ALL_OF_IT}
        [first] = place.answers(request)
        assert counts(first)["tea"] == pytest.approx(300, abs=10 * (first.sd or 0))
        place.redis.hdel(f"stream_dp:{{{place.settings.stream}}}:job:orders", "result")
        place.settings = msgspec.structs.replace(
            place.settings, mapping=EventsSection(items="lines[*].sku", user="customer")
        )
        [other] = place.answers(request)
        assert msgspec.structs.replace(other, ts=first.ts) == first, (
            "the same noise on other counts would tell"
        )
        place.settings = msgspec.structs.replace(
            place.settings,
            mapping=EventsSection(items="sku", format="avro", schema_registry="http://registry.invalid"),
        )
        [unread] = place.answers({**request, "id": "avro"})
        assert "read by the schemas that they name, and jobs cannot do that yet" in (unread.reason or "")
        assert len(place.charges()) == 1


def test_the_events_lie_where_these_tests_say(place: Place) -> None:
    with closing(consumer_client(place.settings.kafka_address)) as consumer:
        places = [TopicPartition(place.settings.events, number) for number in range(PARTITIONS)]
        assert consumer.end_offsets(places)[places[EMPTY]] == 0
