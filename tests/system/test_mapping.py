"""A topic of another team, as it stands: its records are mapped, and everything else is as with events of our own."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dp.config.events_section import EventsSection, Format
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.workers.resume import NewEpoch
from tests.schema_registry.front import front, scripted
from tests.schema_registry.orders import FIRST, LATER, PROTOBUF, avro, framed
from tests.system.epoch_steps import releases
from tests.system.streams import Stream
from tests.system.ticking import MakeStream

BROKEN = {
    b"": "the record has no value",
    b'{"type": "purchase", "lines": [{"sku": "x"}': "not valid UTF-8 JSON (DecodeError)",
    b'{"type": "purchase", "lines": [{"sku": {"id": 1}}]}': "an item is an object: the path leads too high up",
    b'{"type": "purchase", "basket": ["x"]}': "the mapping finds no item in it",
}


def orders(count: int, seed: int) -> list[bytes | None]:
    """Orders, of which every third is broken in one way or another, and some are no purchases."""
    rng, broken = random.Random(seed), list(BROKEN)
    found: list[bytes | None] = []
    for number in range(count):
        lines = [{"sku": rng.choice(["tea", "milk", 7]), "qty": 1} for _ in range(rng.randint(1, 4))]
        order = {"type": rng.choice(["purchase", "purchase", "refund"]), "order": number, "lines": lines}
        found.append(broken[number // 3 % len(broken)] if number % 3 == 0 else json.dumps(order).encode())
    return found


def section(name: str) -> EventsSection:
    return EventsSection(topic=f"{name}-orders", items="lines[*].sku", where="type == 'purchase'")


def check_verified(stream: Stream) -> None:
    """What was released follows from the topics alone, and so does the state."""
    with stream.redis() as redis:
        assert verify_epoch(stream.settings, redis).certificate.verdict == "identical"
        assert rebuild(stream.settings, redis, replace=True).state.round == stream.last_round()
    stream.check_everything()


@pytest.mark.apache("roles")
def test_a_foreign_topic_is_counted_exactly_and_what_is_broken_is_accounted_for(
    make_stream: MakeStream, kafka: str, topic_prefix: str
) -> None:
    values = orders(300, seed=1)
    with make_stream(mapping=section(topic_prefix)) as stream:
        stream.feed(values, key=b"k")
        assert stream.run(until_round=300) == 0
        check_verified(stream)
        letters = stream.dead_letters(at_least=100)
        reasons = {int(letter.headers["offset"]): letter.headers["reason"] for letter in letters}
        assert reasons == {
            offset: BROKEN[value]
            for offset, value in enumerate(values)
            if value is not None and value in BROKEN
        }
        assert {letter.headers["topic"] for letter in letters} == {stream.settings.events}
        assert f"{topic_prefix}.events" not in log.topics(kafka)


def test_the_first_record_that_is_no_event_is_told_without_its_content(
    make_stream: MakeStream, topic_prefix: str
) -> None:
    with make_stream(mapping=section(topic_prefix)) as stream:
        stream.feed(
            [b'{"type": "purchase", "lines": [{"sku": "tea"}]}', b'{"type": "purchase", "secret": 1}'] * 9
        )
        assert stream.run(until_round=18) == 0
        told = [line for line in stream.logged().splitlines() if "is not an event" in line]
        assert len(told) == 1
        assert f"offset 1 of partition 0 of {topic_prefix}-orders" in told[0]
        assert "the mapping finds no item in it" in told[0]
        assert "secret" not in stream.logged()


def test_another_mapping_is_another_epoch(make_stream: MakeStream, topic_prefix: str) -> None:
    with make_stream(mapping=section(topic_prefix)) as stream:
        stream.feed([b'{"type": "purchase", "lines": [{"sku": "tea", "id": 7}]}'] * 9)
        assert stream.run(until_round=9) == 0
        other = EventsSection(topic=f"{topic_prefix}-orders", items="lines[*].id")
        told = stream.refusal(mapping=other)
        assert "items is lines[*].sku in the epoch and lines[*].id in the settings" in told
        assert "--new-epoch" in told


@pytest.mark.apache("batches")
def test_headers_that_the_mapping_reads_are_part_of_the_log(make_stream: MakeStream) -> None:
    mapping = EventsSection(families={"from": "$headers.shop", "sku": "sku"})
    with make_stream(mapping=mapping) as stream:
        records = [Record(0, 1, None, b'{"sku": "tea"}', headers=(("shop", b"north"),)) for _ in range(20)]
        stream.write(stream.settings.events, records)
        assert stream.run(until_round=20) == 0
        check_verified(stream)
        assert set(stream.checkpoint().state.labels) == {"from:north", "sku:tea"}
        changed = [*records[:-1], records[-1]._replace(headers=(("shop", b"south"),))]
        stream.rewrite(stream.settings.events, changed)
        assert "is not the log that was counted" in stream.refusal()


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_a_schema_file_needs_no_registry(make_stream: MakeStream, tmp_path: Path, kind: Format) -> None:
    """Fields that were added to Protobuf later than to the file are passed over."""
    file = tmp_path / "order.schema"
    file.write_text(json.dumps(FIRST) if kind == "avro" else PROTOBUF[0])
    value = avro(0, FIRST, sku=["tea"])[5:] if kind == "avro" else b"\x0a\x03tea\x12\x05south"
    section = EventsSection(format=kind, items="sku", schema=str(file))
    with make_stream(mapping=section) as stream:
        stream.feed([value] * 10 + [framed(1, value)])
        assert stream.run(until_round=11) == 0
        state = stream.checkpoint().state
        assert dict(zip(state.labels, state.counts.tolist(), strict=True)) == {"tea": 10}
        assert len(stream.dead_letters(at_least=1)) == 1
        check_verified(stream)
        file.write_text(json.dumps(LATER) if kind == "avro" else PROTOBUF[1])
        assert "schema is different" in stream.refusal()


@pytest.mark.parametrize("later", [{"schema": json.dumps(LATER)}, 404, 500])
def test_a_registry_that_says_something_else_later_changes_nothing(
    make_stream: MakeStream, later: Any
) -> None:
    types = {"/schemas/types": ["AVRO"]}
    with front(scripted({"/schemas/ids/7": {"schema": json.dumps(FIRST)}, **types})) as fickle:
        section = EventsSection(format="avro", items="sku || items", schema_registry=fickle.address)
        with make_stream(mapping=section) as stream:
            stream.feed([avro(7, FIRST, sku=["tea"])] * 10)
            assert stream.run(until_round=10) == 0
            fickle.answers, asked = scripted({"/schemas/ids/7": later, **types}), len(fickle.asked)
            stream.feed([avro(7, FIRST, sku=["tea"])] * 10)
            assert stream.run(until_round=20) == 0
            assert len(fickle.asked) == asked
    state = stream.checkpoint().state
    assert dict(zip(state.labels, state.counts.tolist(), strict=True)) == {"tea": 20}
    check_verified(stream)


@pytest.mark.parametrize(
    ("wish", "carries"),
    [(NewEpoch(), True), (NewEpoch(without_labels=True), False), (NewEpoch(recount=True), False)],
)
def test_a_changed_mapping_carries_on_what_was_shown_and_nothing_else(
    make_stream: MakeStream, topic_prefix: str, tmp_path: Path, wish: NewEpoch, carries: bool
) -> None:
    """The field `old` is called `new` now; a label that was seen and never shown must be carried on by nobody."""
    before = EventsSection(topic=f"{topic_prefix}-orders", items="old")
    after = EventsSection(topic=before.topic, items="new || old")
    with make_stream(mapping=before) as stream:
        stream.feed([b'{"old": "tea"}'] * 200 + [b'{"old": "secret"}'], key=b"k")
        assert stream.run(until_round=201) == 0
        last = releases(stream, 1)[-1]
        assert (last.labels, stream.checkpoint().state.labels) == (["tea"], ["tea", "secret"])
        listed = tmp_path / "list.txt"
        listed.write_text("listed\n")
        stream.settings = msgspec.structs.replace(
            stream.settings, mapping=after, known_labels=f"file:{listed}"
        )
        worker = stream.start(new_epoch=wish)
        stream.wait_until_logged("epoch 2, round")
        stream.feed([b'{"new": "milk"}'], key=b"k")
        rounds = 202 if wish.recount else 1
        stream.wait_until(lambda: len(releases(stream, 2)) >= rounds, worker)
        stream.stop(worker)
        first = releases(stream, 2)[0]
        if carries:
            assert first.labels == ["listed", "tea"]
            assert first.totals == [first.counts[0], last.counts[0] + first.counts[1]]
            assert first.since == [2, 1]
        else:
            assert (first.labels, first.totals) == (["listed"], None)
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict == "identical"
