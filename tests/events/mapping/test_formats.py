"""What each format makes of a record, and what a hostile one cannot do."""

import io
import json
from base64 import b64encode
from collections.abc import Mapping as Table
from functools import cache
from typing import Any

import fastavro
import pytest
from fastavro import _read_py
from google.protobuf.internal import api_implementation
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.config.secret import SettingsError
from stream_dp.errors import Refused
from stream_dp.events.event import LONGEST_LABEL, BadRecord
from stream_dp.events.mapping import golden
from stream_dp.events.mapping.decoder import Decoder, decoder_of
from stream_dp.events.mapping.golden import VECTORS, check_golden_mapping, outcome
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.mapping.proto_files import top_level_messages
from stream_dp.events.mapping.schema import Schema
from stream_dp.events.mapping.text import text_of
from stream_dp.events.record import Record

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
// An order.
message Order {
  option deprecated = true;
  string type = 1 [json_name = "kind"];
  repeated Line lines = 2;
  Order next = 3;
  map<string, Line> by_name = 4;
  google.protobuf.Timestamp at = 5;
  map<bool, int64> answers = 6;
  reserved 20 to 30;
  message Note { oneof text { string plain = 1; bytes raw = 2; } }
  repeated Note notes = 7;
}
message Line { string sku = 1; optional int32 quantity = 2; }
"""
ORDER = GetMessageClass(top_level_messages(Schema(PROTO))[0])


def record(value: bytes | None, **beside: Any) -> Record:
    return Record(0, 5, beside.get("key"), value, headers=beside.get("headers", ()))


def decoded(decode: Decoder, value: bytes) -> list[str] | str:
    """The items, or why there are none."""
    try:
        return decode(record(value)).items
    except BadRecord as bad:
        return str(bad)


def told(mapping: Mapping, value: bytes) -> list[str] | str:
    return decoded(decoder_of(mapping), value)


@pytest.mark.parametrize("vector", [each for kind in VECTORS.values() for each in kind])
def test_the_golden_records_are_what_they_should_be(vector: golden.Vector) -> None:
    assert outcome(vector) == vector.expected


def test_a_library_that_reads_one_otherwise_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in VECTORS:
        check_golden_mapping.__wrapped__(kind)
    first, *others = VECTORS["text"]
    monkeypatch.setitem(VECTORS, "text", [*others, first._replace(expected=["te "])])
    with pytest.raises(Refused, match="record 2 of the golden ones of format 'text'"):
        check_golden_mapping.__wrapped__("text")


def test_what_stands_beside_the_value_can_be_an_item_or_the_user() -> None:
    mapping = Mapping(families={"k": "$key", "t": "$timestamp", "h": "$headers.h"}, user="$headers.u")
    headers = (("h", b"1"), ("u", "ü".encode()), ("h", b"2"))
    found = decoder_of(mapping)(record(b"{}", key=b"key", headers=headers))
    assert (found.items, found.user) == (["h:2", "k:key", "t:5"], "ü")
    with pytest.raises(BadRecord, match="an item is bytes that are not UTF-8"):
        decoder_of(mapping)(record(b"{}", key=b"\xff"))
    found = decoder_of(Mapping(items="a", user="$key"))(record(b'{"a":1}'))
    assert found.user is None


def test_an_item_is_no_longer_than_a_label_with_its_family() -> None:
    longest = json.dumps({"a": "é" * LONGEST_LABEL}).encode()
    assert told(Mapping(items="a"), longest) == ["é" * LONGEST_LABEL]
    too_long = f"an item has more than {LONGEST_LABEL} characters"
    assert told(Mapping(families={"x": "a"}), longest) == too_long
    assert told(Mapping(items="a"), json.dumps({"a": 10**4000}).encode()) == too_long


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_a_number_is_written_so_that_it_can_be_read_again(number: float) -> None:
    text = text_of(number)
    assert text is not None
    assert float(text) == number
    assert text_of(float(number)) == text_of(number) or abs(number) >= 2**53


def test_what_is_left_out_by_where_is_an_empty_event_and_no_bad_record() -> None:
    decode = decoder_of(Mapping(items="a", where="type == 'x'"))
    assert decode(record(b'{"type":"y"}')).items == []
    with pytest.raises(BadRecord, match="finds no item"):
        decode(record(b'{"type":"x"}'))


@pytest.mark.parametrize("schema", [PROTO, b64encode(ORDER.DESCRIPTOR.file.serialized_pb).decode()])
def test_fields_of_protobuf_that_are_not_set_are_null(schema: str) -> None:
    note = ORDER.Note(raw=b"r")
    order = ORDER(
        type="t", by_name={"b": {"quantity": 0}, "a": {}}, answers={True: 1, False: 0}, notes=[note]
    )
    order.at.seconds = 9
    order.next.type = "next"
    value = order.SerializeToString()

    def items(expression: str) -> list[str] | str:
        return told(Mapping(format="protobuf", schema=schema, message="shop.Order", items=expression), value)

    assert items("keys(by_name)") == ["a", "b"]
    assert items("by_name.*.quantity") == ["0"]
    assert items("[answers.true, answers.false]") == ["1", "0"]
    assert items("[at.seconds, next.type, notes[0].raw, next.next.type]") == ["9", "next", "r"]
    assert items("lines[*].sku") == "the mapping finds no item in it"
    assert items("unknown.field") == "the mapping finds no item in it"
    assert items("keys(@)") == ["type", "next", "by_name", "at", "answers", "notes"]


def test_a_protobuf_message_that_is_nested_without_end_is_a_bad_record() -> None:
    value = b""
    for _ in range(300):
        length = len(value)
        size = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
        value = b"\x1a" + size + value
    mapping = Mapping(format="protobuf", schema=PROTO, message="Order", items="type")
    assert told(mapping, value) == "not what its Protobuf schema says (DecodeError)"


@cache
def golden_decoders() -> list[tuple[bytes, Decoder]]:
    """The value of each golden record, and what decodes it."""

    def decoder(vector: golden.Vector) -> Decoder:
        return decoder_of(vector.mapping, lambda _: Schema(vector.schema))

    return [(vector.value, decoder(vector)) for vectors in VECTORS.values() for vector in vectors]


@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_a_bad_record_in_every_format(value: bytes) -> None:
    for whole, decode in golden_decoders():
        for begun in {value, whole[:3] + value, whole[:6] + value, whole + value}:
            found = decoded(decode, begun)
            assert isinstance(found, list) or (0 < len(found) < 200 and "\n" not in found)


def chained(types: int, fields: str) -> str:
    """As many types of Avro, of which each has these fields of the one before it; the first one takes no bytes."""
    first = {"type": "record", "name": "T0", "fields": []}
    others = [
        {
            "type": "record",
            "name": f"T{n}",
            "fields": [{"name": name, "type": f"T{n - 1}"} for name in fields],
        }
        for n in range(1, types)
    ]
    return json.dumps([first, *others])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type":"array","items":"null"}', "array of what takes no bytes"),
        ('{"type":"array","items":{"type":"record","name":"E","fields":[]}}', "array of what takes no bytes"),
        ('{"type":"record","name":"N","fields":[{"name":"n","type":["null","N"]}]}', "N refers to itself"),
        (chained(40, "lr"), "written out it has more than 10000 values"),
        (chained(200, "l"), "its types are nested more than 100 deep"),
        (
            '{"type":"array","items":' * 101 + '"int"' + "}" * 101,
            "arrays and objects are nested more than 100",
        ),
        ('{"type":"record"}', "no Avro schema"),
        ('{"type":"record","name":"A","fields":"abc"}', "no Avro schema"),
        ('{"type":"fixed","name":"A","size":"large"}', "no Avro schema"),
        ("[", "no Avro schema"),
        ('"' + "x" * 10, "no Avro schema"),
    ],
)
def test_a_schema_by_which_a_few_bytes_could_cost_hours_is_refused(schema: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        decoder_of(Mapping(format="avro", items="n", schema=schema))
    decode = decoder_of(Mapping(format="avro", items="n", framed=True), lambda _: Schema(schema))
    with pytest.raises(BadRecord, match=f"its schema, 7, cannot be used: .*{why}"):
        decode(record(b"\0\0\0\0\x07" + b"\x01" * 20))


def test_a_library_without_its_compiled_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_implementation, "Type", lambda: "python")
    with pytest.raises(Refused, match="install protobuf with its extension"):
        decoder_of(Mapping(format="protobuf", items="a", schema="message A { optional string a = 1; }"))
    monkeypatch.setattr(fastavro, "schemaless_reader", _read_py.schemaless_reader)
    with pytest.raises(Refused, match="install fastavro from its wheel"):
        decoder_of(Mapping(format="avro", items="a", schema='"string"'))


def test_avro_types_that_lie_as_deep_as_they_may_are_read() -> None:
    decode = decoder_of(Mapping(format="avro", items="type(@)", schema=chained(98, "l")))
    assert decode(record(b"\xc2\x01")).items == ["object"]  # branch 97


def test_avro_with_references_is_read_by_them() -> None:
    line = '{"type":"record","name":"shop.Line","fields":[{"name":"sku","type":"string"}]}'
    order = '{"type":"record","name":"Order","fields":[{"name":"lines","type":{"type":"array","items":"shop.Line"}}]}'
    schemas = {7: Schema(order, (("shop.Line", line),)), 8: Schema(order)}
    decode = decoder_of(Mapping(format="avro", items="lines[*].sku", framed=True), schemas.get)
    value = b"\x02\x06tea\x00"
    assert decode(record(b"\0\0\0\0\x07" + value)).items == ["tea"]
    with pytest.raises(BadRecord, match="its schema, 8, cannot be used: it is no Avro schema"):
        decode(record(b"\0\0\0\0\x08" + value))


def test_lengths_that_an_avro_record_lies_about_cost_nothing() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "string"}}],
    }
    mapping = Mapping(format="avro", items="a", schema=json.dumps(schema))
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    for value in (huge, huge + b"\x02a", b"\x02" + huge, b"\x01" + huge + huge, huge * 3):
        assert isinstance(told(mapping, value), str)


def led_on(messages: int) -> str:
    """As many messages of Protobuf, of which each holds the next one."""
    chain = "".join(f"message M{n} {{ optional M{n + 1} m = 1; }}" for n in range(messages - 1))
    return f"{chain} message M{messages - 1} {{ optional string s = 1; }}"


def test_protobuf_messages_that_lead_on_as_far_as_they_may_are_read() -> None:
    mapping = Mapping(format="protobuf", items="keys(@)", schema=led_on(200), message="M0")
    assert told(mapping, b"\x0a\0") == ["m"]


def test_maps_whose_names_differ_in_capitals_are_read() -> None:
    schema = "message A { map<string, string> aB = 1; map<string, string> ab = 2; }"
    value = b"\x0a\x06\x0a\x01k\x12\x01v" + b"\x12\x06\x0a\x01k\x12\x01w"
    assert told(Mapping(format="protobuf", items="[aB.k, ab.k]", schema=schema), value) == ["v", "w"]


@pytest.mark.parametrize(
    ("schema", "message", "why"),
    [
        ("message A { string a = 1; } message B {}", None, "set message to one of its messages: A, B"),
        ("message A { string a = 1; }", "C", "set message to one of its messages: A"),
        ("message A { string a = ; }", None, "no Protobuf schema"),
        ("message A { Missing a = 1; }", None, "no Protobuf schema"),
        ("message A { string a = 1; string b = 1; }", None, "no Protobuf schema"),
        ("message A { group G = 1 { } }", None, "it has a group|no Protobuf schema"),
        ('edition = "2023"; message A {}', None, "edition"),
        ("message A {" * 40 + "}" * 40, None, "it is nested more than 32 deep"),
        (
            'option a = "}}}"; /* }}} */ // }}}\n' + "message A {" * 33 + "}" * 33,
            None,
            "nested more than 32 deep",
        ),
        (led_on(300), "M0", "its messages lead from one to the next more than 200 times"),
        ('syntax = "proto3";', None, "it has no message"),
    ],
)
def test_a_broken_protobuf_schema_is_refused_in_one_sentence(
    schema: str, message: str | None, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SettingsError, match=why):
        decoder_of(Mapping(format="protobuf", items="a", schema=schema, message=message))
    assert capfd.readouterr() == ("", "")


FIELDS: Table[str, Any] = {
    "a": st.text(max_size=5),
    "n": st.integers(-(2**31), 2**31 - 1),
    "d": st.floats(width=64),
}


@given(st.fixed_dictionaries(dict(FIELDS)))
def test_formats_agree_on_the_same_record(fields: dict[str, Any]) -> None:
    """Apart from what JSON cannot hold, which is no item in any of them."""
    names = {"a": "string", "n": "int", "d": "double"}
    avro = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in names.items()],
    }
    proto = "message R { required string a = 1; required int32 n = 2; required double d = 3; }"
    message = GetMessageClass(top_level_messages(Schema(proto))[0])(**fields)
    written = io.BytesIO()
    fastavro.schemaless_writer(written, avro, fields)
    items = "[a, n, d]"
    assert (
        told(Mapping(format="avro", items=items, schema=json.dumps(avro)), written.getvalue())
        == told(Mapping(format="protobuf", items=items, schema=proto), message.SerializeToString())
        == told(Mapping(items=items), json.dumps(fields).encode().replace(b"Infinity", b"1e999"))
    ) or fields["d"] != fields["d"]
