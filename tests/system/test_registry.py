"""Records that name the schemas of a registry: a real one, whose answers become part of the log."""

import json
import signal
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.events_section import EventsSection, Format
from stream_dp.verification.rebuild import verify_epoch
from tests.schema_registry.front import front, passed_on
from tests.schema_registry.orders import FIRST, JSON_SCHEMA, LATER, PROTOBUF, avro, framed
from tests.schema_registry.server import Registry
from tests.system.certificates import Authority
from tests.system.streams import Stream
from tests.system.test_mapping import check_verified
from tests.system.ticking import MakeStream
from tests.system.worker_process import Kill

pytestmark = pytest.mark.apache("beside", alone=True)


def register_as(registry: Registry, subject: str, wanted: int, schema: Mapping[str, Any]) -> bool:
    """Register under a number that is not taken yet: a registry that was started again begins with 1."""
    for other in range(1, wanted):
        filler = {"type": "record", "name": f"Filler{other}", "fields": []}
        if registry.register(f"{subject}-{other}", json.dumps(filler)) == wanted - 1:
            break
    return registry.register(f"{subject}-wanted", json.dumps(schema)) == wanted


def check_without(registry: Registry, stream: Stream) -> None:
    """The topics alone say what was released, and what the state is, also when there is no registry any more."""
    registry.stop()
    try:
        check_verified(stream)
    finally:
        registry.start()


def test_a_schema_that_changes_in_mid_stream_is_followed_and_what_is_broken_is_told(
    make_stream: MakeStream, registry: Registry, topic_prefix: str, tmp_path: Path
) -> None:
    """A field is added with a default, and one gets another name, of which the old one is an alias."""
    reader = tmp_path / "order.avsc"
    reader.write_text(json.dumps(LATER))
    first, later = (registry.register(f"{topic_prefix}-value", json.dumps(each)) for each in (FIRST, LATER))
    families = {"shop": "shop", "sku": "items[*]"}
    section = EventsSection(
        topic=f"{topic_prefix}-orders",
        format="avro",
        families=families,
        schema=str(reader),
        schema_registry=registry.address,
    )
    old, new = avro(first, FIRST, sku=["tea"]), avro(later, LATER, shop="south", items=["milk", "tea"])
    broken = {
        b"{}": "no schema number of a registry stands in front of the value",
        framed(1_000_000, b"x"): "the registry does not know its schema, 1000000",
        old[:-2]: "not what its Avro schema says (EOFError)",
    }
    values: list[bytes | None] = [*[old] * 10, *broken, *[new] * 10, old, *broken, new]
    with make_stream(mapping=section) as stream:
        stream.feed(values)
        for step in ("send a batch", "settle schemas"):
            assert stream.run(Kill(step, 2)) == -signal.SIGKILL
        assert stream.run(until_round=len(values)) == 0
        state = stream.checkpoint().state
        counts = dict(zip(state.labels, state.counts.tolist(), strict=True))
        assert counts == {"shop:north": 11, "sku:tea": 22, "shop:south": 11, "sku:milk": 11}
        letters = {letter.value: letter.headers["reason"] for letter in stream.dead_letters(at_least=6)}
        assert letters == broken
        check_without(registry, stream)


def test_protobuf_with_references_is_read_by_the_message_that_each_record_names(
    make_stream: MakeStream, registry: Registry, topic_prefix: str
) -> None:
    line = 'syntax = "proto3"; package shop; message Line { string sku = 1; }'
    order = (
        'syntax = "proto3"; package shop; import "shop/line.proto";'
        "message Note { string text = 1; } message Order { repeated Line lines = 2; }"
    )
    registry.register(f"{topic_prefix}-line", line, "PROTOBUF")
    number = registry.register(
        f"{topic_prefix}-value", order, "PROTOBUF", shop__line_proto=(f"{topic_prefix}-line", 1)
    )
    section = EventsSection(format="protobuf", items="lines[*].sku", schema_registry=registry.address)
    tea = framed(number, b"\x02\x02" + b"\x12\x05\x0a\x03tea")  # the second message
    note = framed(number, b"\x00" + b"\x0a\x01x")
    with make_stream(mapping=section) as stream:
        stream.feed([tea, note] * 10)
        assert stream.run(until_round=20) == 0
        state = stream.checkpoint().state
        assert dict(zip(state.labels, state.counts.tolist(), strict=True)) == {"tea": 10}
        assert {letter.headers["reason"] for letter in stream.dead_letters(at_least=10)} == {
            "the mapping finds no item in it"
        }
        check_without(registry, stream)


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json-schema"])
def test_in_every_format_a_field_is_added_and_another_one_renamed_in_mid_stream(
    make_stream: MakeStream, registry: Registry, topic_prefix: str, tmp_path: Path, kind: Format
) -> None:
    """Read by what wrote each record, from a registry behind TLS and a password, which is gone when it is verified."""
    texts = {"avro": (json.dumps(FIRST), json.dumps(LATER)), "protobuf": PROTOBUF, "json-schema": JSON_SCHEMA}
    name = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}[kind]
    first, later = (registry.register(f"{topic_prefix}-value", text, name) for text in texts[kind])
    old, new = {
        "avro": (avro(first, FIRST, sku=["tea"]), avro(later, LATER, shop="south", items=["milk", "tea"])),
        "protobuf": (
            framed(first, b"\0\x0a\x03tea"),
            framed(later, b"\0\x0a\x04milk\x0a\x03tea\x12\x05south"),
        ),
        "json-schema": (
            framed(first, b'{"sku": ["tea"]}'),
            framed(later, b'{"shop": "south", "items": ["milk", "tea"]}'),
        ),
    }[kind]
    values: list[bytes | None] = [*[old] * 10, *[new] * 10, old, new, b'{"sku": ["tea"]}']
    authority, password = Authority(tmp_path), tmp_path / "password"
    certificate = authority.certify("registry")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert, certificate.key)
    password.touch(0o600)
    password.write_text("let me in")
    with front(passed_on(registry.address), ("reader", "let me in"), context) as guarded:
        section = EventsSection(
            format=kind,
            families={"sku": "items || sku", "shop": "not_null(shop, 'north')"},
            schema_registry=guarded.address,
            registry_username="reader",
            registry_password=f"file:{password}",
            registry_ca_file=str(authority.file),
        )
        with make_stream(mapping=section) as stream:
            stream.feed(values)
            assert stream.run(until_round=len(values)) == 0
    state = stream.checkpoint().state
    counts = dict(zip(state.labels, state.counts.tolist(), strict=True))
    assert counts == {"shop:north": 11, "sku:tea": 22, "shop:south": 11, "sku:milk": 11}
    assert [letter.headers["reason"] for letter in stream.dead_letters(at_least=1)] == [
        "no schema number of a registry stands in front of the value"
    ]
    check_verified(stream)


def test_a_registry_that_is_away_is_waited_for_and_what_is_settled_needs_none(
    make_stream: MakeStream, registry: Registry, topic_prefix: str
) -> None:
    section = EventsSection(format="avro", items="sku[*]", schema_registry=registry.address)
    with make_stream(mapping=section) as stream:
        number = registry.register(f"{topic_prefix}-value", json.dumps(FIRST))
        tea, milk = avro(number, FIRST, sku=["tea"]), avro(number + 1, LATER, shop="s", items=["milk"])
        stream.feed([tea] * 20)
        assert stream.run(until_round=20) == 0
        registry.stop()
        try:
            stream.feed([tea] * 5 + [milk] * 5)
            worker = stream.start()
            stream.wait_until_logged("cannot be asked (ConnectError)")
            assert stream.last_round() <= 25
        finally:
            registry.start()
        assert register_as(registry, topic_prefix, number + 1, LATER)
        stream.wait_until_round(30, worker)
        stream.stop(worker)
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict == "identical"
        stream.check_everything()
