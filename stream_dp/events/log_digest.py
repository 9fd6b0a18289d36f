"""A running commitment to the records that were applied: tells a log from an edited, reordered or other one.

All digests are keyed.  A bare hash of a log that can be guessed would confirm the guess, so without the key they tell
nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.privacy.keyed_noise import subkey

_BYTES = 32


@dataclass(frozen=True)
class LogDigest:
    """What was applied so far: how many records, in which order, which contents in any order, and the last one.

    `sequence` depends on every record and its place; `contents` is the sum of the records' digests, the same in any
    order; `last` is the place and digest of the last record, empty before the first.

    Of a log with several partitions both are over the digests that each partition has in each round, and `last` is that
    of the first partition; `further` has those of the others.
    """

    records: int = 0
    sequence: bytes = bytes(_BYTES)
    contents: bytes = bytes(_BYTES)
    last: bytes = b""
    further: tuple[bytes, ...] = ()

    @property
    def begun_anew(self) -> "LogDigest":
        """The commitment to no records, which knows the last ones that came before."""
        return LogDigest(last=self.last, further=self.further)

    @property
    def last_offset(self) -> int | None:
        """The offset of the last record of the first partition; None before it."""
        return offset_of(self.last)

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
        self._joined = blake2b(key=subkey(noise_key, b"log of partitions"), digest_size=_BYTES)

    def extend(self, log: LogDigest, records: Iterable[Record]) -> LogDigest:
        """The commitment to `log` followed by `records`."""
        count, sequence, contents, last = (
            log.records,
            log.sequence,
            int.from_bytes(log.contents, "big"),
            log.last,
        )
        for record in records:
            last = self.in_place(record)
            place = self._keyed.copy()
            place.update(sequence + last)
            sequence = place.digest()
            contents += int.from_bytes(last[-_BYTES:], "big")
            count += 1
        total = (contents % 2 ** (8 * _BYTES)).to_bytes(_BYTES, "big")
        return LogDigest(count, sequence, total, last, log.further)

    def extend_round(self, log: LogDigest, parts: Sequence[tuple[int, Sequence[Record]]]) -> LogDigest:
        """The commitment to `log` followed by a round of several partitions: the records of each, which are in order.

        One digest a partition: a digest a record costs more than all else that is done with a record.
        """
        return self.extend_joint(
            log, [self.of_part(partition, records) for partition, records in parts if records]
        )

    def of_part(self, partition: int, records: Sequence[Record]) -> PartDigest:
        """What one partition, whose records of a round these are, brings to `extend_joint`; at least one record."""
        digest, last = self._of_part(partition, records), self.in_place(records[-1])
        return PartDigest(partition, len(records), digest, last)

    def extend_joint(self, log: LogDigest, parts: Iterable[PartDigest]) -> LogDigest:
        """The commitment to `log` followed by a round: what each partition that has records in it brings, in order."""
        lasts, count, contents = list(log.lasts), log.records, int.from_bytes(log.contents, "big")
        sequence = self._joined.copy()
        sequence.update(log.sequence)
        for part in parts:
            sequence.update(part.digest)
            contents += int.from_bytes(part.digest, "big")
            count += part.records
            lasts += [b""] * (part.partition + 1 - len(lasts))
            lasts[part.partition] = part.last
        total = (contents % 2 ** (8 * _BYTES)).to_bytes(_BYTES, "big")
        return LogDigest(count, sequence.digest(), total, lasts[0], tuple(lasts[1:]))

    def _of_part(self, partition: int, records: Sequence[Record]) -> bytes:
        """Of places, times and contents: numbers and lengths first, so that no two lists of records read the same."""
        columns = Records.of(records)
        digest = self._joined.copy()
        digest.update(b"%d %d " % (partition, len(records)))
        for numbers in (columns.offsets, columns.timestamps, _sizes(columns.keys), _sizes(columns.values)):
            digest.update(np.array(numbers, "<i8").tobytes())
        for column in (columns.keys, columns.values):
            digest.update(b"".join(filter(None, column)))
        for record in records if self._headers else ():
            digest.update(b"%d " % len(record.headers) + _framed_headers(record.headers))
        return digest.digest()

    def in_place(self, record: Record) -> bytes:
        """The record's offset and timestamp, and a digest of its key, value and, where they decide, headers."""
        content = self._keyed.copy()
        content.update(_framed(record.key) + _framed(record.value))
        if self._headers:
            content.update(_framed_headers(record.headers))
        return b"%d %d %b" % (record.offset, record.timestamp, content.digest())


def _sizes(column: Sequence[bytes | None]) -> list[int]:
    """The length of each, -1 where it is none."""
    return [-1 if part is None else len(part) for part in column]


def _framed(part: bytes | None) -> bytes:
    return b"-" if part is None else b"%d:%b" % (len(part), part)


def _framed_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    return b"".join(_framed(name.encode()) + _framed(value) for name, value in headers)


NOTHING = LogDigest()
"""The commitment to no records."""
