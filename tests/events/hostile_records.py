"""Values of records made to cost as much as they can: openings, a unit repeated without end, endings."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

_OPENINGS = (
    b"",
    b"[" * 101,
    b'{"',
    b'{"items":["',
    b'{"items":[',
    b'{"items":["a"],',
    b'{"items":["a"],"x":',
    b'{"items":["a"],"x":"',
    b'{"items":["a"],"x":[' + b"[]," * 101,
    b'{"items":["a"],"x":1',
    b'{"items":["a"],"id":',
    b'{"items":["a"],"id":"',
    b'{"items":["a"],"user":"',
    b'{"items":["' + b"a" * 1024 + b'","',
)
_UNITS = (
    *(
        b'"',
        b'\\"',
        b"\\\\",
        b'\\\\"',
        b"\\u0041",
        b"\\ud83d\\ude00",
        b"\\ud800",
        b"\xc3\xa9",
        b"\xf0\x9f\x8d\xb5",
    ),
    *(
        b"\xff",
        b"\x00",
        b" ",
        b"a",
        b"[",
        b"]",
        b"{}",
        b"[],",
        b'{"a":',
        b'"a",',
        b'"a":1,',
        b'"items":["a"],',
    ),
    *(b"9", b"0.", b"-", b"1e9", b"1,", b"null,", b'"\\u00e9",'),
)
_ENDINGS = (b"", b'"', b'"]}')


class HostileRecord(NamedTuple):
    """What is repeated, between what begins and what ends it."""

    opening: bytes
    unit: bytes
    ending: bytes

    def value(self, size: int) -> bytes:
        """About so many bytes of it."""
        return self.opening + self.unit * (size // len(self.unit)) + self.ending


def hostile_records() -> Iterator[HostileRecord]:
    """More than a thousand of them."""
    return map(HostileRecord._make, product(_OPENINGS, _UNITS, _ENDINGS))
