"""What it costs to turn a record of another team into what is counted: decode, map, bound.  Two items an event."""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from time import process_time
from typing import Any

import fastavro
from google.protobuf.message_factory import GetMessageClass
from rich.console import Console
from rich.table import Table

from benchmarks.measure import take_turns
from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.bounding import EventBound
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.mapping.proto_files import top_level_messages
from stream_dp.events.mapping.schema import Schema
from stream_dp.events.record import Record
from stream_dp.pipeline.intake import Intake

RECORDS, TURNS = 20_000, 7
_PLAIN = "JSON, a plain path"
LEAST = {_PLAIN: 350_000, "JSON, JMESPath": 150_000, "JSON, JMESPath with a function": 150_000}
"""Events a second of a core."""

MOST = {"Protobuf": 2.5, "Avro": 3.5, "Avro, read as another schema": 5.0}
"""Times the cost of JSON by a plain path."""

FOREIGN = 100_000
NUMBER = 7

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "type", "type": "string"},
        {"name": "customer", "type": "string"},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "quantity", "type": "int"}],
                },
            },
        },
        {"name": "total", "type": "double"},
    ],
}
READER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]},
            },
        }
    ],
}
PROTOBUF = """
syntax = "proto3";
message Order { string type = 1; string customer = 2; repeated Line lines = 3; double total = 4; }
message Line { string sku = 1; int32 quantity = 2; }
"""
_HEADER = b"\0" + NUMBER.to_bytes(4)
_ITEMS = "lines[*].sku"


def _orders() -> Iterator[dict[str, Any]]:
    for number in range(RECORDS):
        lines = [{"sku": f"sku {(number + step) % 997}", "quantity": 1 + step} for step in range(2)]
        yield {"type": "purchase", "customer": f"c{number}", "lines": lines, "total": number / 4}


def _avro(order: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, AVRO, order)
    return _HEADER + written.getvalue()


def _native(order: dict[str, Any]) -> bytes:
    items = [line["sku"] for line in order["lines"]]
    return json.dumps({"items": items, "user": order["customer"], "note": "x" * 30}).encode()


def main(console: Console) -> None:
    """Print microseconds an event, events a second, and the ratio to JSON by a plain path."""
    message = GetMessageClass(top_level_messages(Schema(PROTOBUF))[0])
    orders = list(_orders())
    in_json = [json.dumps(order, separators=(",", ":")).encode() for order in orders]
    in_avro = [_avro(order) for order in orders]
    in_protobuf = [_HEADER + b"\0" + message(**order).SerializeToString() for order in orders]
    mixed = [value if number % 3 else b'{"lines": 7}' for number, value in enumerate(in_json)]
    by_paths = Mapping(items="lines[?quantity > `0`].sku", where="type == 'purchase'")
    by_functions = Mapping(families={"sku": "lines[*].sku", "who": "join('-', [type, customer])"})
    avro, protobuf = (Mapping(format=each, framed=True, items=_ITEMS) for each in ("avro", "protobuf"))
    read_as = Mapping(format="avro", framed=True, items=_ITEMS, schema=json.dumps(READER))
    cases = {
        _PLAIN: _case(Mapping(items=_ITEMS), in_json),
        "events of our own format": _case(None, [_native(order) for order in orders]),
        "JSON, JMESPath": _case(by_paths, in_json),
        "JSON, JMESPath with a function": _case(by_functions, in_json, items=3),
        "JSON, one third broken": _case(Mapping(items=_ITEMS), mixed),
        "Protobuf": _case(protobuf, in_protobuf, PROTOBUF),
        "Avro": _case(avro, in_avro, json.dumps(AVRO)),
        "Avro, read as another schema": _case(read_as, in_avro, json.dumps(AVRO)),
    }
    taken = take_turns(cases, TURNS, process_time)
    plain = taken[_PLAIN]
    table = Table(
        *("records", "us an event", "events/s", "to JSON", "asked for"),
        title="Decode, map and bound: processor time",
    )
    for name, seconds in taken.items():
        rate, ratio = RECORDS / seconds, seconds / plain
        asked = f"{LEAST[name]:,}/s" if name in LEAST else f"{MOST[name]:.1f}" if name in MOST else ""
        held = rate >= LEAST.get(name, 0) and ratio <= MOST.get(name, inf)
        told = f"{asked}: {'yes' if held else 'NO'}" if asked else ""
        table.add_row(name, f"{seconds / RECORDS * 1e6:.2f}", f"{rate:,.0f}", f"{ratio:.2f}", told)
    console.print(table)
    _account(console)


BROKEN = {
    b"": "the record has no value",
    b'{"lines": [{"sku": "x"}': "not valid UTF-8 JSON (DecodeError)",
    b'{"lines": [{"sku": "\xff"}]}': "not valid UTF-8 JSON (UnicodeDecodeError)",
    b'{"lines": [{"sku": {}}]}': "an item is an object: the path leads too high up",
    b'{"basket": ["x"]}': "the mapping finds no item in it",
    b'{"lines": [{"sku": 1e999}]}': "an item is a number that is not finite",
}


def _account(console: Console) -> None:
    """Count 100,000 records of a foreign shape, one third of them broken, and see that each is accounted for."""
    good, broken = [json.dumps(order).encode() for order in _orders()], list(BROKEN)
    values = [
        broken[number // 3 % len(broken)] if number % 3 == 0 else good[number % RECORDS]
        for number in range(FOREIGN)
    ]
    settings = Settings(stream="shop", horizon=2**17 - 1, mapping=EventsSection(items=_ITEMS))
    intake = Intake(Epoch.open(settings, 1, 0), bytes(32), "shop.events")
    closed = intake.process([Record(offset, 0, None, value) for offset, value in enumerate(values)], FOREIGN)
    expected = [
        [] if value in BROKEN else [each["sku"] for each in json.loads(value)["lines"]] for value in values
    ]
    assert closed.admitted == expected
    reasons = {letter.offset: letter.reason for letter in closed.dead_letters}
    assert reasons == {offset: BROKEN[value] for offset, value in enumerate(values) if value in BROKEN}
    console.print(
        f"{FOREIGN:,} records of a foreign shape: {len(closed.admitted):,} rounds, exact; dead letters:"
    )
    for reason, count in Counter(reasons.values()).most_common():
        console.print(f"  {count:,}  {reason}")


def _case(
    mapping: Mapping | None, values: list[bytes], schema: str = "", items: int = 2
) -> Callable[[], int]:
    decode, bound = decoder_of(mapping, lambda _: Schema(schema)), EventBound(4)
    records = [Record(offset, 0, None, value) for offset, value in enumerate(values)]

    def run() -> int:
        counted = 0
        for record in records:
            with suppress(BadRecord):
                counted += len(bound.admit(decode(record)))
        return counted

    assert run() in (items * RECORDS, items * (RECORDS - RECORDS // 3 - 1))
    return run
