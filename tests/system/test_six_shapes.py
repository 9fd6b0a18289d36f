"""Topics of the shapes that people have, from `connect` to a first release with labels: by the README's lines alone."""

import io
import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest
from google.protobuf.message_factory import GetMessageClass
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.config.reading import load_settings
from stream_dp.events.mapping.proto_files import top_level_messages
from stream_dp.events.mapping.schema import Schema
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.release import decode_release
from tests.docs.shown import ROOT, blocks
from tests.schema_registry.front import front, scripted
from tests.schema_registry.orders import framed
from tests.system import forked_program
from tests.system.streams import Stream

README = (ROOT / "README.md").read_text()
WAY = README[README.index("## Use it on your topic") : README.index("## Read a release")]
LINES = [line for block in blocks(WAY, "sh") for line in block.splitlines() if line.startswith("stream-dp ")]
MOST_COMMANDS = 9
ORDERS = 1_200

PROTO = 'syntax = "proto3"; message Order { message Line { string sku = 1; } repeated Line lines = 1; }'
ORDER = GetMessageClass(top_level_messages(Schema(PROTO))[0])
LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "lines", "type": {"type": "array", "items": LINE}}],
}
LABELS = ["milk", "tea"]
BOTH = [{"sku": "tea"}, {"sku": "milk"}]


class Shape(NamedTuple):
    """A word of the README's line for it, its records, and what a registry says of them."""

    word: str
    values: list[bytes | None]
    registered: dict[str, Any] | None = None


def avro() -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, AVRO, {"lines": BOTH})
    return written.getvalue()


def change(operation: str, row: dict[str, str] | None) -> bytes:
    """As JsonConverter writes it; of a deleted row only `before` is there."""
    payload = {"op": operation, "before": None if row else {"sku": "salt"}, "after": row}
    return json.dumps({"schema": {"type": "struct"}, "payload": payload}).encode()


BYTES_OF_ORDER = ORDER(lines=BOTH).SerializeToString()
DESCRIPTOR = b64encode(ORDER.DESCRIPTOR.file.serialized_pb).decode()
SHAPES = {
    "json": Shape('--stream shop --items "lines[*].sku"', [json.dumps({"lines": BOTH}).encode()]),
    "avro": Shape("--schema-registry", [framed(7, avro())], {"schemaType": "AVRO", "schema": json.dumps(AVRO)}),
    "protobuf": Shape(
        "--schema-registry",
        [framed(7, b"\0" + BYTES_OF_ORDER)],
        {"schemaType": "PROTOBUF", "schema": DESCRIPTOR},
    ),
    "protobuf file": Shape("--format protobuf", [BYTES_OF_ORDER]),
    "csv": Shape("--format csv", [b"1,tea,2.50", b"2,milk,1", b"id,sku,price"]),
    "changes": Shape(
        "--change-data-capture",
        [change("r", {"sku": "tea"}), change("c", {"sku": "milk"}), change("u", {"sku": "salt"}),
         change("d", None), None],
    ),
    "nested": Shape("--public", [json.dumps({"boxes": [{"lines": BOTH}, {"lines": BOTH[:1]}]}).encode()]),
}  # fmt: skip


class Script:
    """Runs lines of the README for a topic of another name, and counts them."""

    def __init__(self, topic: str, registry: str, *places: str) -> None:
        self.topic, self.registry, self.places = topic, registry, places
        self.commands = 0

    def words(self, line: str) -> list[str]:
        self.commands += 1
        words = shlex.split(line, comments=True)[1:]
        changed = {"orders": self.topic, "http://localhost:8081": self.registry, "shop": self.topic}
        return [changed.get(each, each) for each in words]

    def run(self, line: str, *more: str) -> Result:
        return CliRunner().invoke(app, [*self.words(line), *more])


@contextmanager
def registry(shape: Shape, topic: str) -> Iterator[str]:
    answers = {
        f"/subjects/{topic}-value/versions/latest": shape.registered,
        "/schemas/ids/7": shape.registered,
    }
    with front(scripted(answers | {"/schemas/types": []})) as running:
        yield running.address


@pytest.mark.parametrize("name", SHAPES)
def test_a_topic_of_this_shape_comes_to_a_release_in_a_few_commands(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shape, topic = SHAPES[name], f"{topic_prefix}-orders"
    monkeypatch.chdir(tmp_path)
    Path("order.proto").write_text(f"// what the README calls order.proto\n{PROTO}")
    log.create_topics(kafka, topic)
    writer = Stream(load_settings(Path("/dev/null"), {}, stream=topic, kafka=kafka), tmp_path)
    some = shape.values * ORDERS
    writer.write(
        topic, [Record(0, 1_769_860_800_000 + number, b"k", each) for number, each in enumerate(some)]
    )
    with registry(shape, topic) as address:
        script = Script(topic, address)
        [connect] = [line for line in LINES if line.startswith("stream-dp connect") and shape.word in line]
        places = ["--kafka", kafka, "--redis", redis_url]
        asked = script.run(connect, *places)
        if asked.exit_code == 2:  # it has listed the fields, without a terminal to ask on
            [number] = re.findall(r"(\d+): [^ ]*sku \(", " ".join(asked.output.split()))
            asked = script.run(connect, *places, "--items", number)
        assert asked.exit_code == 0, asked.output
        for command in ("budget", "check"):
            [line] = [line for line in LINES if line.startswith(f"stream-dp {command}")]
            done = script.run(line)
            assert done.exit_code == 0, done.output
        [line] = [line for line in LINES if line.startswith("stream-dp worker")]
        stream = Stream(load_settings(Path("stream.toml"), {}), tmp_path)
        worker = forked_program.start_in(tmp_path, script.words(line), {}, stream.log_file)
        stream.workers.append(worker)
        stream.wait_until(lambda: shown(stream) == LABELS, worker)
        stream.stop_all()
    assert script.commands <= MOST_COMMANDS
    assert log.offsets(kafka, stream.settings.dead_letters).end == 0


def shown(stream: Stream) -> list[str]:
    """The labels of the newest release in their order, once there is one."""
    if not log.existing(stream.settings.kafka, stream.settings.releases):
        return []
    found = stream.releases()
    return sorted(decode_release(found[-1].value or b"").labels) if found else []
