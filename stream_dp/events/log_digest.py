"""A running commitment to the records that were applied: tells a log from an edited or another one.

All digests are keyed.  A bare hash of a log that can be guessed would confirm the guess, so without the key they tell
nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

import numpy as np

from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.privacy.keyed_noise import subkey
from stream_dp.privacy.many_digests import chained_digests, digests

_BYTES = 32
_PLACE, _ONE = Struct("<QQ"), Struct("<QQqqqq")  # of one record: what the columns of one hold


@dataclass(frozen=True)
class LogDigest:
    """What was applied so far: how many records, a chain over the rounds that held them, and the last record.

    `sequence` depends on every record and its place; `last` is the place and digest of the last record of the first
    partition, empty before there was one, and `further` has those of the other partitions.
    """

    records: int = 0
    sequence: bytes = bytes(_BYTES)
    last: bytes = b""
    further: tuple[bytes, ...] = ()

    @property
    def begun_anew(self) -> "LogDigest":
        """The commitment to no records, which knows the last ones that came before."""
        return LogDigest(last=self.last, further=self.further)

    @property
    def lasts(self) -> tuple[bytes, ...]:
        """The place and digest of the last record of each partition."""
        return self.last, *self.further


class PartDigest(NamedTuple):
    """What the records of one partition bring to the digest of a round: their number, their digest, and the last."""

    partition: int
    records: int
    digest: bytes
    last: bytes


def offset_of(last: bytes) -> int | None:
    """The offset that one of `LogDigest.lasts` tells; None where there was no record."""
    return int(last.partition(b" ")[0]) if last else None


class LogDigester:
    """Extends commitments under one noise key."""

    def __init__(self, noise_key: bytes, headers: bool = False) -> None:
        """`headers`: whether headers of a record decide about its event."""
        self._headers = headers
        self._keyed = blake2b(key=subkey(noise_key, b"log"), digest_size=_BYTES)  # copied for every digest
        self._key = subkey(noise_key, b"log of partitions")
        self._joined = blake2b(key=self._key, digest_size=_BYTES)

    def extend(self, log: LogDigest, rounds: Sequence[Sequence[tuple[int, Sequence[Record]]]]) -> LogDigest:
        """The commitment to `log` followed by `rounds`: the records of each partition, in order.

        One digest a partition and round: a digest a record costs more than all else that is done with a record.
        """
        parts = [part for each in rounds for part in each if part[1]]
        found = iter(self._of_parts(parts))
        texts = [b"".join([next(found) for _, records in each if records]) for each in rounds]
        sequences = chained_digests(self._key, log.sequence, texts)
        count = log.records + sum(len(records) for _, records in parts)
        ends = {partition: records[-1] for partition, records in parts}
        lasts = {partition: self.in_place(record) for partition, record in ends.items()}
        return _followed_by(log, count, sequences[-1] if sequences else log.sequence, lasts)

    def of_part(self, partition: int, records: Sequence[Record]) -> PartDigest:
        """What one partition, whose records of a round these are, brings to `extend_joint`; at least one record."""
        digest, last = self._of_part(partition, records), self.in_place(records[-1])
        return PartDigest(partition, len(records), digest, last)

    def extend_joint(self, log: LogDigest, parts: Sequence[PartDigest]) -> LogDigest:
        """What `extend` gives for one round: `parts` are those of the partitions that have records in it, in order."""
        [sequence] = chained_digests(self._key, log.sequence, [b"".join([part.digest for part in parts])])
        count = log.records + sum(part.records for part in parts)
        return _followed_by(log, count, sequence, {part.partition: part.last for part in parts})

    def _of_parts(self, parts: Sequence[tuple[int, Sequence[Record]]]) -> list[bytes]:
        """The digest of each: of many at once if each is one record, as in most rounds of one event."""
        if any(len(records) > 1 for _, records in parts):
            return [self._of_part(*part) for part in parts]
        texts = [
            _ONE.pack(partition, 1, each.offset, each.timestamp, _size(each.key), _size(each.value))
            + (each.key or b"")
            + (each.value or b"")
            + (self._headers_of(each) if self._headers else b"")
            for partition, [each] in parts
        ]
        return digests(self._key, texts, _BYTES)

    def _of_part(self, partition: int, records: Sequence[Record]) -> bytes:
        """Of places, times and contents: numbers and lengths first, so that no two lists of records read the same."""
        columns, digest = Records.of(records), self._joined.copy()
        digest.update(_PLACE.pack(partition, len(records)))
        for numbers in (columns.offsets, columns.timestamps, _sizes(columns.keys), _sizes(columns.values)):
            digest.update(np.array(numbers, "<i8").tobytes())
        for column in (columns.keys, columns.values):
            digest.update(b"".join(filter(None, column)))
        for record in records if self._headers else ():
            digest.update(self._headers_of(record))
        return digest.digest()

    @staticmethod
    def _headers_of(record: Record) -> bytes:
        return b"%d " % len(record.headers) + _framed_headers(record.headers)

    def in_place(self, record: Record) -> bytes:
        """The record's offset and timestamp, and a digest of its key, value and, where they decide, headers."""
        content = self._keyed.copy()
        content.update(_framed(record.key) + _framed(record.value))
        if self._headers:
            content.update(_framed_headers(record.headers))
        return b"%d %d %b" % (record.offset, record.timestamp, content.digest())


def _followed_by(log: LogDigest, records: int, sequence: bytes, lasts: Mapping[int, bytes]) -> LogDigest:
    known = list(log.lasts)
    for partition, last in lasts.items():
        known += [b""] * (partition + 1 - len(known))
        known[partition] = last
    return LogDigest(records, sequence, known[0], tuple(known[1:]))


def _sizes(column: Sequence[bytes | None]) -> list[int]:
    return [*map(_size, column)]


def _size(part: bytes | None) -> int:
    """The length, -1 if there is nothing."""
    return -1 if part is None else len(part)


def _framed(part: bytes | None) -> bytes:
    return b"-" if part is None else b"%d:%b" % (len(part), part)


def _framed_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    return b"".join(_framed(name.encode()) + _framed(value) for name, value in headers)


NOTHING = LogDigest()
"""The commitment to no records."""
