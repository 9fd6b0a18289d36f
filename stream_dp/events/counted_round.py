"""The records of `<stream>.counts`: rounds that an engine counted, with what is shown of them.  PRIVATE.

An engine reads, bounds and counts the events, and keeps the labels that are not shown.  Of each round that a barrier
closes, the worker is told what it needs to release it: what each partition brings to the hash chain and to the digest
of the log, the counts of the labels that are shown, and after a test those that it found.  docs/operations/spark.md has
the contract.

A round is a function of the noise key, the epoch, the log and the barriers.  So it may come again, from an engine that
went on from an earlier state, and is passed over; one that says something else is refused.
"""

from collections.abc import Iterator
from hashlib import blake2b
from hmac import compare_digest
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import Refused
from stream_dp.events.log_digest import PartDigest
from stream_dp.privacy.keyed_noise import subkey

LARGEST_PART = 900_000
"""Most bytes of a round in one record, to stay below Kafka's default limit."""

_MOST_PARTS = 10_000
_TAG_BYTES = 16
_NUMBERS = np.dtype("<i4")


class CountsRefused(Refused):
    """The worker cannot go on with what the counts topic holds; the message says what to do."""


class PartitionOfRound(msgspec.Struct, frozen=True, array_like=True):
    """What one partition brings to a round, but for its labels.

    `head` is its digest of the admitted labels.  `records`, `digest` and `last` are what it brings to the log's digest:
    see `PartDigest`.  Without a record, the first is 0 and the others are empty.  `units` and `over` are what it brings
    to the cells beside the labels (engine/cap_cells.py), 0 in an epoch that has none.
    """

    head: bytes
    records: int = 0
    digest: bytes = b""
    last: bytes = b""
    units: int = 0
    over: int = 0


class CountedRound(msgspec.Struct, frozen=True, array_like=True):
    """What the barrier of digest `barrier` closes, which is barrier `number` of the epoch `nonce`, counted from 1.

    It is a round, unless it is of no day that counts: then it has records, and no head, count or test.
    `partitions` are those that the barrier names, in order.  Label number `places[i]`, in the order in which labels
    were found, was admitted `counts[i]` times; both are int32, little-endian.  `found` are the labels that the test of
    this round found, in their order, with what was measured; None if it has no test.
    """

    nonce: bytes
    number: int
    barrier: str
    partitions: list[PartitionOfRound]
    places: bytes
    counts: bytes
    found: list[tuple[str, int]] | None = None

    @property
    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """`places` and `counts`, int64 of equal shape.  Raises ValueError for others."""
        places, counts = (
            np.frombuffer(each, _NUMBERS).astype(np.int64) for each in (self.places, self.counts)
        )
        if len(places) != len(counts) or np.any(np.diff(places) <= 0) or np.any(counts < 1):
            raise ValueError("places and counts do not belong together")
        return places, counts

    @property
    def cells(self) -> tuple[int, int]:
        """What it brings to the cells beside the labels: units, and those over the cap."""
        return sum(part.units for part in self.partitions), sum(part.over for part in self.partitions)

    @property
    def in_log(self) -> list[PartDigest]:
        """What it brings to the log's digest."""
        return [
            PartDigest(number, part.records, part.digest, part.last)
            for number, part in enumerate(self.partitions)
            if part.records
        ]


class _Part(msgspec.Struct, frozen=True, array_like=True):
    """A record: part `part` of `parts` of the bytes of a round.  `tag` is keyed, and covers all the rest."""

    v: Literal[1]
    nonce: bytes
    number: int
    part: int
    parts: int
    data: bytes
    tag: bytes


_ENCODER = msgspec.msgpack.Encoder()
_PARTS = msgspec.msgpack.Decoder(_Part)
_ROUNDS = msgspec.msgpack.Decoder(CountedRound)


class CountsWire:
    """Writes and reads the records of `topic` under one noise key."""

    def __init__(self, key: bytes, topic: str) -> None:
        self._keyed = blake2b(key=subkey(key, b"counted rounds"), digest_size=_TAG_BYTES)
        self._topic = topic

    def encode(self, counted: CountedRound) -> Iterator[bytes]:
        """The values of the records of a round, at least one."""
        data = _ENCODER.encode(counted)
        parts = max(1, -(-len(data) // LARGEST_PART))
        for part in range(parts):
            piece = data[part * LARGEST_PART : (part + 1) * LARGEST_PART]
            said = 1, counted.nonce, counted.number, part + 1, parts, piece
            yield _ENCODER.encode((*said, self._tag(said)))

    def decode(self, offset: int, value: bytes | None) -> _Part:
        """A record's part.  Raises `CountsRefused` for anything that no engine of this stream wrote."""
        try:
            found = _PARTS.decode(value or b"")
        except (msgspec.DecodeError, UnicodeError):
            raise self.refused(offset, "is not a counted round of this version") from None
        said = found.v, found.nonce, found.number, found.part, found.parts, found.data
        if not compare_digest(found.tag, self._tag(said)):
            raise self.refused(offset, "was not written with this stream's noise key")
        if not 1 <= found.part <= found.parts <= _MOST_PARTS:
            raise self.refused(offset, "is no part of a round")
        return found

    def refused(self, offset: int, why: str) -> CountsRefused:
        """What to raise about the record at `offset`."""
        return CountsRefused(
            f"the record at offset {offset} of the topic {self._topic!r} {why}: nobody but the engine of this stream "
            "may write there; nothing of it is released"
        )

    def _tag(self, said: tuple[object, ...]) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(_ENCODER.encode(said))
        return keyed.digest()


class CountedRounds:
    """Puts together what the barriers of the epoch `nonce` close that follow the one at `reached`, in order."""

    def __init__(self, wire: CountsWire, nonce: bytes, reached: int) -> None:
        self._wire, self._nonce, self._next = wire, nonce, reached + 1
        self._held: dict[int, dict[int, _Part]] = {}
        self._first: dict[int, int] = {}  # the offset of the first part that came of each

    def add(self, offset: int, value: bytes | None) -> None:
        """The next record of the topic.  Raises `CountsRefused` if it contradicts one that is held."""
        part = self._wire.decode(offset, value)
        if part.nonce != self._nonce or part.number < self._next:
            return  # of another epoch, or of a round that was taken
        held = self._held.setdefault(part.number, {})
        self._first.setdefault(part.number, offset)
        for other in held.values():
            if other.parts != part.parts or (other.part == part.part and other.data != part.data):
                raise self._wire.refused(offset, f"contradicts an earlier one about round {part.number}")
        held[part.part] = part

    @property
    def first_offset(self) -> int | None:
        """Where the first record stands that still waits; None if none does."""
        return min(self._first.values(), default=None)

    def has_next(self) -> bool:
        """Whether the next round is whole."""
        held = self._held.get(self._next)
        return held is not None and len(held) == next(iter(held.values())).parts

    def take(self) -> CountedRound:
        """The next round; `has_next` says that it is there."""
        number = self._next
        held, offset = self._held.pop(number), self._first.pop(number)
        self._next += 1
        try:
            found = _ROUNDS.decode(b"".join(held[part].data for part in sorted(held)))
        except (msgspec.DecodeError, UnicodeError):
            raise self._wire.refused(offset, "is not a counted round of this version") from None
        if (found.nonce, found.number) != (self._nonce, number):
            raise self._wire.refused(offset, "says two things about which round it is")
        return found
