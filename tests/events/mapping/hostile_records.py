"""Values made to cost as much as they can in each format that a mapping reads."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from stream_dp.config.events_section import Format
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import Decoder, decoder_of
from stream_dp.events.mapping.golden import VECTORS
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.mapping.schema import Schema
from stream_dp.events.record import Record
from tests.events.hostile_records import HostileRecord, hostile_records

Read = Callable[[bytes], list[str] | None]
"""The items of a value; None where it is no event."""

_BINARY = (
    b"\x00",
    b"\x01" * 11,  # a block of an array with one number, its type and two lengths
    b"\x02",
    b"\x80",  # a number that does not end
    b"\xff",
    b"\x02\x00",
    b"\x02\x02t",
    b"\x02\x04\x00\x00\x00\x00\x00\x00\xf0?",
    b"\x01\x02\x00",  # blocks of an array, with their sizes
    b"\xff\xff\xff\x7f",
    b"\x0a\x05\x0a\x01b\x10\x01",  # entries of a map, with the same key and without one
    b"\x0a\x00",
    b"\x0b",  # a group in a group
    b"\x0b\x0c",
    b"\x10\x00",
    b"\x28\x01",  # a repeated number, one by one and packed
    b"\x2a\x02\x00\x01",
    b"\x32\x01t",
    b"\xfa\x01\x01x",  # a field that the schema does not know
    b"a",
    b"\xc3\xa9",
)
_BEGUN_ROWS = (b"", b'"', b'a,"', b'a;"', b"a,b\n")
_CELLS = (
    *(b"a", b"a,", b",", b"a;", b'"a",', b'"a";', b'a"', b'"', b'""', b'",', b'\\"'),
    *(b"\n", b"\r", b"a\r\n", b"a,b\n", b'"\n', b"\\", b" ", b"\x00", b"\xc3\xa9", b"\xff"),
)


def readers(kind: Format) -> Iterator[Read]:
    """One for each mapping of the golden records."""
    told: list[tuple[Mapping, str]] = []
    for vector in VECTORS[kind]:
        if (vector.mapping, vector.schema) not in told:
            told.append((vector.mapping, vector.schema))
            schema = Schema(vector.schema)
            yield partial(_items, decoder_of(vector.mapping, partial(_always, schema)))


def _always(schema: Schema, _: int) -> Schema:
    return schema


def _items(decode: Decoder, value: bytes) -> list[str] | None:
    try:
        return decode(Record(0, 0, None, value)).items
    except BadRecord:
        return None


def hostile(kind: Format) -> Iterator[HostileRecord]:
    """Openings of the golden records, what their formats are made of without end, and endings."""
    if kind in ("json", "text"):
        yield from list(hostile_records())[::7]  # all of them are shown to our own format
        yield from (
            HostileRecord(opening, unit, b'0],"b":1}')
            for opening, unit in product((b'{"a":[', b'{"b":1,"a":['), _OBJECTS)
        )
        return
    if kind == "csv":
        yield from map(HostileRecord._make, product(_BEGUN_ROWS, _CELLS, (b"", b'"')))
        return
    whole = [vector.value for vector in VECTORS[kind]]
    openings = dict.fromkeys(value[:length] for value in whole for length in (0, 3, len(value)))
    framed = b"\0\0\0\0\7"
    ends = b"", b"\x00\x0e"
    openings |= dict.fromkeys((framed, framed + b"\x00", b"\xfe\xff\x7f", framed + b"\xfe\xff\x7f"))
    yield from map(HostileRecord._make, product(openings, _BINARY, ends))


_OBJECTS = (b'{"b":"aaaaaaaa"},', b'{"b":[1,2],"n":2},', b"[[[[]]]],", b"123456789,", b'{"\\u00e9":{}},')
