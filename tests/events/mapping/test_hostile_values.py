"""Values and schemas made to cost as much as they can: time in proportion to their bytes, and a reason in one line."""

import json
from collections.abc import Callable, Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.mapping.schema import Schema
from stream_dp.events.record import LARGEST_VALUE, Record
from tests.events.hostile_records import HostileRecord
from tests.events.test_hostile_records import cost, grows_linearly

AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {
            "name": "a",
            "type": {
                "type": "array",
                "items": ["null", "string", "double", {"type": "map", "values": "bytes"}],
            },
        },
        {
            "name": "m",
            "type": {
                "type": "map",
                "values": {
                    "type": "record",
                    "name": "V",
                    "fields": [
                        {"name": "x", "type": "null"},
                        {"name": "k", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
                        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
                    ],
                },
            },
        },
        {"name": "z", "type": "string"},
    ],
}
LAST_FIELD = {"type": "record", "name": "R", "fields": [{"name": "z", "type": "string"}]}
PROTOBUF = """
syntax = "proto3";
message R {
  string s = 1; R next = 2; repeated R all = 3; map<string, R> by_name = 4; repeated int64 n = 5;
  oneof o { string t = 6; R other = 7; } repeated string texts = 8; map<int64, string> named = 9;
}
"""
_FRAME = b"\0\0\0\0\7"
_LARGEST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2^63 - 1, as Avro writes it
_SMALLEST = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"

_AVRO_OPENINGS = (
    b"",
    _LARGEST,
    _SMALLEST + b"\2",
    b"\0",
    b"\0" + _LARGEST,
    b"\0\0",
    b"\x80\x80\x04",
    b"\1\x80\x80\x04",
)
_AVRO_UNITS = (
    *(bytes([each]) for each in (0, 1, 2, 3, 4, 6, 0x7F, 0x80, 0xFF)),
    *(
        b"\2\0",
        b"\2\2\2a",
        b"\1\2\0",
        b"\2\6\0",
        b"\6\2\0\0\0",
        b"\2\2a\0ff",
        b"\2\0\2ff",
        b"\2\4\0\0\0\0\0\0\0\0",
    ),
    *(_LARGEST, _SMALLEST, b"\2\2\2\xff"),
)
_PROTOBUF_OPENINGS = (
    b"",
    b"\x12\xff\xff\x03",
    b"\x1a\xff\xff\x03" * 3,
    b"\x2a\xff\xff\x03",
    b"\x12\x02" * 100,
)
_PROTOBUF_UNITS = (
    *(
        b"\x12\x00",
        b"\x1a\x00",
        b"\x22\x00",
        b"\x22\x04\x0a\x02aa",
        b"\x28\x01",
        b"\x2a\x02\x01\x01",
        b"\x2a\x00",
    ),
    *(
        b"\x32\x00",
        b"\x3a\x00",
        b"\x32\x01a\x3a\x00",
        b"\x42\x00",
        b"\x0a\x01\xff",
        b"\x0b",
        b"\x0c",
        b"\x0b\x0c",
    ),
    *(b"\xa0\x06\x01", b"\xa2\x06\x00", b"\xa3\x06", b"\x00", b"\xff", b"\x80", b"\x4a\x04\x08\x01\x12\x00"),
    *(b"\x12\x02", b"\x12\x04\x12\x02\x12\x00", b"\x12\x02\x28\x01"),
)


def hostile_values(
    openings: tuple[bytes, ...], units: tuple[bytes, ...], front: bytes
) -> Iterator[HostileRecord]:
    for opening, unit, ending in product(openings, units, (b"", b"\0", b"\0\0\2a")):
        yield HostileRecord(front + opening, unit, ending)


def counted(decode: Callable[[Record], object]) -> Callable[[bytes], object]:
    """Decode a value; what is no event must say why, in one line."""

    def outcome(value: bytes) -> object:
        try:
            return decode(Record(0, 0, None, value))
        except BadRecord as bad:
            told = str(bad)
        assert 0 < len(told) < 300
        assert "\n" not in told
        return None

    return outcome


DECODERS = {
    "Avro": (
        Mapping(format="avro", items="[a[], m.*[].[k, f][], [z]][][]", framed=True),
        Schema(json.dumps(AVRO)),
    ),
    "Avro, of which most is skipped": (
        Mapping(format="avro", items="z", framed=True, schema=json.dumps(LAST_FIELD)),
        Schema(json.dumps(AVRO)),
    ),
    "Protobuf": (Mapping(format="protobuf", items="keys(@)", framed=True), Schema(PROTOBUF)),
    "Protobuf, by a path": (
        Mapping(format="protobuf", items="[all[*].next.s, keys(by_name), texts, n][]", framed=True),
        Schema(PROTOBUF),
    ),
}


def family_of(mapping: Mapping) -> Iterator[HostileRecord]:
    if mapping.format == "avro":
        return hostile_values(_AVRO_OPENINGS, _AVRO_UNITS, _FRAME)
    return hostile_values(_PROTOBUF_OPENINGS, _PROTOBUF_UNITS, _FRAME + b"\0")


@pytest.mark.parametrize("name", DECODERS)
def test_no_bytes_make_a_value_cost_more_than_its_size(name: str) -> None:
    mapping, schema = DECODERS[name]
    decode = counted(decoder_of(mapping, lambda _: schema))
    assert not [record for record in family_of(mapping) if not grows_linearly(decode, record, 4 << 10)]


@pytest.mark.parametrize("name", DECODERS)
def test_nor_do_they_up_to_the_largest_that_is_looked_into(name: str) -> None:
    mapping, schema = DECODERS[name]
    decode = counted(decoder_of(mapping, lambda _: schema))
    some = list(family_of(mapping))[::37]
    assert not [record for record in some if not grows_linearly(decode, record, LARGEST_VALUE // 8 - 1024)]


names = st.sampled_from(["A", "B", "a.B", "null", "string", "", "1", "\x00", "é", "__proto__", "bytes"])
parts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | names,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "fields",
                    "items",
                    "values",
                    "size",
                    "symbols",
                    "namespace",
                    "aliases",
                    "default",
                ]
            ),
            inner | st.sampled_from(["record", "array", "map", "enum", "fixed", "error"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)
words = st.sampled_from(
    [
        *(
            "syntax",
            "=",
            '"proto3"',
            '"proto2"',
            ";",
            "message",
            "enum",
            "A",
            "B",
            "{",
            "}",
            "optional",
            "repeated",
        ),
        *(
            "string",
            "int32",
            "map<string, A>",
            "a",
            "b",
            "1",
            "2",
            "0",
            "oneof",
            "import",
            '"x.proto"',
            "package",
        ),
        *(
            "reserved",
            "to",
            "max",
            "extensions",
            "extend",
            "service",
            "rpc",
            "option",
            "[",
            "]",
            "-1",
            "99999999999",
        ),
        *(
            '"google/protobuf/any.proto"',
            "google.protobuf.Any",
            "group",
            "required",
            "/*",
            "*/",
            "//",
            "'",
            '"',
            "\n",
        ),
    ]
)


def check_any_schema(mapping: Mapping, text: str, value: bytes) -> None:
    schema = Schema(text, (("x.proto", 'syntax = "proto3"; message X { string s = 1; }'),))
    counted(decoder_of(mapping, lambda _: schema))(value)


@settings(max_examples=500)
@given(parts, st.binary(max_size=30))
def test_any_json_is_a_schema_of_avro_or_told_to_be_none(schema: object, value: bytes) -> None:
    check_any_schema(Mapping(format="avro", items="keys(@)", framed=True), json.dumps(schema), _FRAME + value)


@settings(max_examples=300)
@given(st.lists(words, max_size=30).map(" ".join), st.binary(max_size=30))
def test_any_words_are_a_schema_of_protobuf_or_told_to_be_none(text: str, value: bytes) -> None:
    mapping = Mapping(format="protobuf", items="keys(@)", framed=True)
    check_any_schema(mapping, text, _FRAME + b"\0" + value)


_PROTO_UNITS = (
    *(
        "{",
        "}",
        "[",
        '"',
        "'",
        "//",
        "/*",
        "\n",
        "a",
        "1",
        ".",
        ";",
        "message A {",
        'option a = "b";',
        "(",
        "-",
        "=",
    ),
    *(
        "import 'a';",
        "message A {}",
        "enum A { B = 0; }",
        "optional string a = 1;",
        "reserved 1 to 2;",
        "<",
        "a.",
        '\\"',
    ),
)


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_no_schema_costs_more_than_its_size(kind: str) -> None:
    mapping = Mapping(format="avro" if kind == "avro" else "protobuf", items="a", framed=True)

    def read(text: bytes) -> object:
        schema = Schema(text.decode())
        return counted(decoder_of(mapping, lambda _: schema))(_FRAME + b"\0\0")

    if kind == "protobuf":
        openings: tuple[str, ...] = (
            "",
            "message A {",
            'syntax = "proto3"; option a = ',
            "message A { string a = 1 [",
        )
        units: tuple[str, ...] = _PROTO_UNITS
        endings: tuple[str, ...] = ("}",)
    else:
        openings = ("[", '{"type":"record","name":"A","fields":[', '{"type":"enum","name":"A","symbols":[')
        units = (
            '"null",',
            '["null"],',
            '{"name":"a","type":"int"},',
            '"A",',
            '{"type":"array","items":"int"},',
        )
        endings = ('"int"]', '"int"]}')
    family = [
        HostileRecord(opening.encode(), unit.encode(), ending.encode())
        for opening, unit, ending in product(openings, units, endings)
    ]
    for size in (256, 1 << 10, 4 << 10):  # what costs little is shown larger ones too
        assert family
        assert not [record for record in family if not grows_linearly(read, record, size)]
        family = [record for record in family if cost(read, record.value(size)) < 0.001]
