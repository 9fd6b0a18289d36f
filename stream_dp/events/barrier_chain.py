"""The records of `<stream>.barriers`, and which of them count.

A barrier says how many events there were after it was due and before its answer came.  It closes a round: the events
before its offsets that no earlier barrier closed.  Each one names its predecessor and carries a keyed tag, so the topic
alone decides which ones count, whoever else writes there: two writers can never split a stream.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Annotated, Literal

import msgspec

from stream_dp.privacy.vector import Vector

PARTITION = "0"
"""The first partition of an events topic, and of many the only one, as barriers name it."""

_DIGEST_BYTES = 16
_NO_BARRIER = "0" * 2 * _DIGEST_BYTES

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}\\Z")]
_Partition = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,9})\\Z")]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class BarrierRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Barrier `n` of its chain: the broker gave `offsets`, by partition, between `due` and `answered`.

    Both are milliseconds since 1970.  Nobody led the partitions in `repeated`: their offsets are those of an earlier
    barrier, the one that was due then, or 0 if no barrier had one.  `previous` is the digest of barrier n - 1, `tag` a
    keyed digest of all the rest.
    """

    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    due: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    answered: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    offsets: dict[_Partition, _Offset]
    repeated: dict[_Partition, _Offset]
    previous: _Digest
    tag: _Digest
    v: Literal[1] = 1


class Barrier(msgspec.Struct, frozen=True):
    """A barrier that counts, number `number` of the chain `chain`; number 0 stands for the beginning of the chain.

    The next one is at or after the offset `next_offset` of the barriers topic.  `due`, `answered`, `offsets` and
    `repeated` are those of its record, and `digest` tells it from all others.
    """

    chain: str
    next_offset: int
    number: int
    due: int
    answered: int
    offsets: dict[str, int]
    repeated: dict[str, int]
    digest: str

    @classmethod
    def of(cls, chain: str, offset: int, record: BarrierRecord) -> "Barrier":
        """The barrier that `record`, at this offset of the topic, is in its chain."""
        said = record.n, record.due, record.answered, record.offsets, record.repeated
        return cls(chain, offset + 1, *said, _digest(record))

    @property
    def end(self) -> int:
        """The events of the first partition before this offset are in its round, or in an earlier one."""
        return self.offsets[PARTITION]

    @property
    def ends(self) -> Vector:
        """The end of this round in every partition that existed then."""
        return ends_of(self.offsets)

    def end_of(self, partition: int) -> int:
        """The end of this round in one partition: 0 where that came later."""
        return self.offsets.get(str(partition), 0)

    def asked_since(self, partition: str) -> int:
        """When this end of a partition was due: what follows it came later.  0 if the partition has no end yet."""
        if partition not in self.offsets:
            return 0
        return self.repeated.get(partition, self.due)


def beginning(chain: str, next_offset: int, *starts: int) -> Barrier:
    """Where a chain begins: at `next_offset` of the barriers topic, when partitions are counted from `starts` on."""
    return Barrier(chain, next_offset, 0, 0, 0, named(starts), {}, _NO_BARRIER)


def ends_of(offsets: Mapping[str, int]) -> Vector:
    """The offsets of partitions 0, 1, ... that a barrier names."""
    return tuple([offsets.get(str(number), 0) for number in range(len(offsets))])


def named(ends: Sequence[int]) -> dict[str, int]:
    """The offsets of partitions 0, 1, ... as barriers name them."""
    return {str(number): end for number, end in enumerate(ends)}


_DECODER = msgspec.json.Decoder(BarrierRecord)


def decode_barrier(value: bytes | None) -> BarrierRecord | None:
    """The barrier in a record's value, its tag unchecked; None for anything else."""
    try:
        return _DECODER.decode(value or b"")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def is_at(barrier: Barrier, offset: int, value: bytes | None) -> bool:
    """Whether the record of this offset and value is `barrier`, which was counted."""
    found = decode_barrier(value)
    return offset + 1 == barrier.next_offset and found is not None and _digest(found) == barrier.digest


class BarrierChain:
    """One chain of barriers, followed from `last` on, the one that counted last."""

    def __init__(self, key: bytes, stream: str, last: Barrier) -> None:
        """`key` is that of `barriers.key.barrier_key`."""
        self.last = last
        self._key = blake2b(f"{last.chain} {stream}".encode(), key=key).digest()

    def encode(
        self, due: int, offsets: dict[str, int], answered: int = 0, unled: Iterable[int] = ()
    ) -> bytes:
        """The value of the record that would be the next barrier.

        `answered`: when the broker's answer came, unless that was at once.  `unled`: partitions that nobody led, whose
        offsets are those of the last barrier.
        """
        repeated = {str(number): self.last.asked_since(str(number)) for number in unled}
        said = self.last.number + 1, due, max(due, answered), offsets, repeated, self.last.digest
        return _encoded(BarrierRecord(*said, self._tag(*said)))

    def take(self, offset: int, value: bytes | None) -> Barrier | None:
        """The next record of the barriers topic: returns it as `last` if it counts, None where it is passed over."""
        found = decode_barrier(value)
        if found is None or offset < self.last.next_offset or not self._follows(found):
            return None
        self.last = Barrier.of(self.last.chain, offset, found)
        return self.last

    def _follows(self, found: BarrierRecord) -> bool:
        last = self.last
        return (
            (found.n, found.previous) == (last.number + 1, last.digest)
            and last.due < found.due <= found.answered
            and all(found.offsets.get(partition, -1) >= end for partition, end in last.offsets.items())
            and self.is_tagged(found)
        )

    def named_at(self, number: int, records: Iterable[tuple[int, bytes | None]]) -> Barrier | None:
        """The barrier of this number among these records of the topic, the first of them, if one names it that follows.

        It counts: writers only ever name one that does.  Where a copy of it stands before these records, a later copy
        is found.
        """
        found: dict[str, Barrier] = {}
        for offset, value in records:
            record = decode_barrier(value)
            if record is None or not number <= record.n <= number + 1 or not self.is_tagged(record):
                continue
            if record.n == number:
                barrier = Barrier.of(self.last.chain, offset, record)
                found.setdefault(barrier.digest, barrier)
            elif record.previous in found:
                return found[record.previous]
        return None

    def latest_named(self, records: Iterable[tuple[int, bytes | None]]) -> Barrier | None:
        """The latest among these records of the topic that another one names as the barrier before it.

        It counts: writers only ever name one that does.
        """
        tagged = [
            (offset, found)
            for offset, value in records
            if (found := decode_barrier(value)) is not None and self.is_tagged(found)
        ]
        named = {found.previous for _, found in tagged}
        counted = [(found.n, -offset, found) for offset, found in tagged if _digest(found) in named]
        if not counted:
            return None
        _, before, found = max(counted, key=lambda each: each[:2])
        return Barrier.of(self.last.chain, -before, found)

    def is_tagged(self, found: BarrierRecord) -> bool:
        """Whether a writer of this chain wrote it."""
        tag = self._tag(found.n, found.due, found.answered, found.offsets, found.repeated, found.previous)
        return compare_digest(found.tag.encode(), tag.encode())

    def _tag(self, *said: int | str | dict[str, int]) -> str:
        """The tag of a record that says this in front of it."""
        encoded = msgspec.json.encode(said, order="deterministic")
        return blake2b(encoded, key=self._key, digest_size=_DIGEST_BYTES).hexdigest()


def _digest(record: BarrierRecord) -> str:
    return blake2b(_encoded(record), digest_size=_DIGEST_BYTES).hexdigest()


def _encoded(record: BarrierRecord) -> bytes:
    return msgspec.json.encode(record, order="deterministic")
