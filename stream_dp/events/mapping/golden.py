"""Known records and their events, decoded at each start, to notice a library that reads one of them differently.

Each format is shown what libraries have been seen to disagree about.  What changes here changes `MAPPING_VERSION`.
"""

from functools import cache
from typing import NamedTuple

from stream_dp.config.events_section import Format
from stream_dp.errors import Refused
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import MAPPING_VERSION, Mapping
from stream_dp.events.mapping.schema import Schema
from stream_dp.events.record import Record


class Vector(NamedTuple):
    """A record, and its items or, as one text, why it is none."""

    mapping: Mapping
    value: bytes
    expected: list[str] | str
    schema: str = ""


_PATH = Mapping(items="a[*].b")
_ALL = Mapping(items="a[?n > `1` && contains(b, 'x')].[b, n][]", where="a")
_FAMILIES = Mapping(families={"y": "b", "x": "to_array(b)", "j": "join('-', keys(@))"})
_NOTHING = "the mapping finds no item in it"

_ROW = Mapping(items="a", where="b", change_data_capture="inserts")
_NO_CHANGE = "not a change of a row as Debezium writes it"

_AVRO = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":["null","string","double"]}},'
    '{"name":"d","type":{"type":"int","logicalType":"date"}}]}'
)
_READ_AS = (
    '{"type":"record","name":"R","fields":[{"name":"b","aliases":["a"],"type":{"type":"array","items":'
    '["null","string","double"]}},{"name":"new","type":"string","default":"there"}]}'
)
_PROTO = (
    'syntax = "proto3"; package p; message R { map<string, int32> m = 1; optional int32 z = 2; int32 i = 3; '
    "Kind k = 4; repeated Kind ks = 5; oneof o { string s = 6; double f = 7; } enum Kind { NONE = 0; SOME = 1; } }"
)
_FRAMED = b"\0\0\0\0\7"

VECTORS: dict[Format, list[Vector]] = {
    "json": [
        Vector(
            _PATH,
            b'{"a":[{"b":"t\\u00e9"},{"b":7},{"b":7.0},{"b":1e16},{"b":0.1},'
            b'{"b":true},{"b":null},{"b":""},1]}',
            ["té", "7", "7", "1e+16", "0.1", "true"],
        ),
        Vector(_PATH, b'{"a":[{"b":1}],"a":[{"b":123456789012345678901234567890,"b":2}]}', ["2"]),
        Vector(
            _PATH,
            b'{"a":[{"b":123456789012345678901234567890,"c":1e999}]}',
            ["123456789012345678901234567890"],
        ),
        Vector(_PATH, b'{"a":[{"b":1e999}]}', "an item is a number that is not finite"),
        Vector(_PATH, b'{"a":[{"b":NaN}]}', "not valid UTF-8 JSON (DecodeError)"),
        Vector(_PATH, b'{"a":[{"b":"x"}],"u":"\xff"}', "not valid UTF-8 JSON (UnicodeDecodeError)"),
        Vector(_PATH, b'{"a":[{"b":"x"}]}x', "not valid UTF-8 JSON (DecodeError)"),
        Vector(_PATH, b'{"a":[{"b":["x"]}]}', "an item is an array: the path leads too high up"),
        Vector(_PATH, b'{"a":{"b":"x"}}', _NOTHING),
        Vector(
            _ALL, b'{"a":[{"b":"ax","n":2},{"b":"bx","n":1},{"b":"cx","n":2.5}]}', ["ax", "2", "cx", "2.5"]
        ),
        Vector(_ALL, b'{"a":[]}', []),
        Vector(_FAMILIES, b'{"b":false,"c":1}', ["j:b-c", "x:false", "y:false"]),
        Vector(_ROW, b'{"before":null,"after":{"a":1,"b":2},"op":"c"}', ["1"]),
        Vector(_ROW, b'{"schema":{},"payload":{"after":{"a":[1,2],"b":2},"op":"r"}}', ["1", "2"]),
        Vector(_ROW, b'{"after":{"a":1},"op":"c"}', []),
        Vector(_ROW, b'{"before":{"a":1},"after":{"a":1,"b":2},"op":"u"}', []),
        Vector(_ROW, b'{"before":{"a":1,"b":2},"after":null,"op":"d"}', []),
        Vector(_ROW, b"", []),
        Vector(_ROW, b'{"a":1,"b":2}', _NO_CHANGE),
        Vector(_ROW, b'{"after":{"a":1,"b":2},"op":["c"]}', _NO_CHANGE),
        Vector(_ROW, b'{"after":null,"op":"c"}', "a change that inserts a row does not hold the row"),
    ],
    "csv": [
        Vector(Mapping(format="csv", items="columns[1]"), b'7,"a ""b"", c",9\r\n', ['a "b", c']),
        Vector(Mapping(format="csv", items="columns[*]", delimiter=";"), "é;;7, ".encode(), ["é", "7, "]),
        Vector(Mapping(format="csv", items="columns[9]"), b"7,8", _NOTHING),
        Vector(Mapping(format="csv", items="b", header="a,b"), b"a,b\n", []),
        Vector(Mapping(format="csv", items="b", header="a,b"), b"b,a", ["a"]),
        Vector(
            Mapping(format="csv", items="b", header="a,b"), b"b", "it has not as many columns as the header"
        ),
        Vector(Mapping(format="csv", items="columns"), b"a,b\nc,d", "not one row of CSV"),
        Vector(Mapping(format="csv", items="columns"), b"\n", "not one row of CSV"),
        Vector(Mapping(format="csv", items="columns"), b'a,"b', "not a row of CSV"),
        Vector(Mapping(format="csv", items="columns"), b"a,\xff", "not valid UTF-8 text"),
    ],
    "json-schema": [
        Vector(Mapping(format="json-schema", framed=True, items="a"), _FRAMED + b'{"a":1}', ["1"]),
        Vector(
            Mapping(format="json-schema", framed=True, items="a"),
            b'{"a":1}',
            "no schema number of a registry stands in front of the value",
        ),
    ],
    "text": [
        Vector(Mapping(format="text", items="@"), "té ".encode(), ["té "]),
        Vector(Mapping(format="text", items="@"), b"\xff", "not valid UTF-8 text"),
    ],
    "avro": [
        Vector(
            Mapping(format="avro", items="[a[], d][]", schema=_AVRO),
            bytes.fromhex("0a00020274020004000000000000e03f04000000000000f03f000e"),
            ["t", "0.5", "1", "7"],
        ),
        Vector(
            Mapping(format="avro", items="[b[], [new]][]", schema=_READ_AS, framed=True),
            _FRAMED + bytes.fromhex("02020274000e"),
            ["t", "there"],
            _AVRO,
        ),
        Vector(
            Mapping(format="avro", items="a", schema=_AVRO),
            bytes.fromhex("02020274000e00"),
            "more bytes than its Avro schema says",
        ),
    ],
    "protobuf": [
        Vector(
            Mapping(format="protobuf", items="[keys(m), [z, i, k, s, f], ks][][]", schema=_PROTO),
            bytes.fromhex(
                "0a050a01621001 0a050a01611002 1000 1800 2001 2a020001 320568656c6c6f 39000000000000e03f"
            ),
            ["a", "b", "0", "SOME", "0.5", "NONE", "SOME"],
        ),
        Vector(
            Mapping(format="protobuf", items="s", framed=True),
            _FRAMED + bytes.fromhex("00320174"),
            ["t"],
            _PROTO,
        ),
        Vector(
            Mapping(format="protobuf", items="[s, k]", framed=True),
            _FRAMED + bytes.fromhex("00 0a0174 1001"),
            ["t", "SOME"],
            "CgFmEgFwIigKAVISDAoBcxgBIAEoCVIBcxIVCgFrGAIgASgOMgcucC5LaW5kUgFrKhoKBEtpbmQSCAoETk9ORRAAEggKBFNPTUUQAWIGcHJvdG8z",
        ),
        Vector(
            Mapping(format="protobuf", items="s", schema=_PROTO),
            bytes.fromhex("3201ff"),
            "not what its Protobuf schema says (DecodeError)",
        ),
    ],
}


def outcome(vector: Vector) -> list[str] | str:
    """What this machine makes of the record."""
    try:
        return decoder_of(vector.mapping, lambda _: Schema(vector.schema))(
            Record(0, 0, None, vector.value)
        ).items
    except BadRecord as bad:
        return str(bad)


@cache
def check_golden_mapping(kind: Format) -> None:
    """Raise `Refused` where records of a format are read otherwise here than they should be."""
    for number, vector in enumerate(VECTORS[kind], 1):
        if outcome(vector) != vector.expected:
            raise Refused(
                f"this machine reads record {number} of the golden ones of format {kind!r} otherwise than version "
                f"{MAPPING_VERSION} of the mapping does, so it would not count what others count: install the versions "
                "of msgspec, fastavro, jmespath and protobuf that stream_dp asks for"
            )
