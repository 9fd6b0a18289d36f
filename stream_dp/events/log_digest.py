"""A running commitment to the records that were applied: tells a log from an edited, reordered or other one.

All digests are keyed.  A bare hash of a log that can be guessed would confirm the guess, so without the key they tell
nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from stream_dp.events.record import Record
from stream_dp.privacy.keyed_noise import subkey

_BYTES = 32


@dataclass(frozen=True)
class LogDigest:
    """What was applied so far: how many records, in which order, which contents in any order, and the last one.

    `sequence` depends on every record and its place; `contents` is the sum of the records' digests, the same in any
    order; `last` is the place and digest of the last record, empty before the first.
    """

    records: int = 0
    sequence: bytes = bytes(_BYTES)
    contents: bytes = bytes(_BYTES)
    last: bytes = b""

    @property
    def last_offset(self) -> int | None:
        """The offset of the last record; None before the first."""
        return int(self.last.partition(b" ")[0]) if self.last else None


class LogDigester:
    """Extends commitments under one noise key."""

    def __init__(self, noise_key: bytes) -> None:
        self._keyed = blake2b(key=subkey(noise_key, b"log"), digest_size=_BYTES)  # copied for every digest

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
        return LogDigest(count, sequence, (contents % 2 ** (8 * _BYTES)).to_bytes(_BYTES, "big"), last)

    def in_place(self, record: Record) -> bytes:
        """The record's offset and timestamp, and a digest of its key and value."""
        content = self._keyed.copy()
        content.update(_framed(record.key) + _framed(record.value))
        return b"%d %d %b" % (record.offset, record.timestamp, content.digest())


def _framed(part: bytes | None) -> bytes:
    return b"-" if part is None else b"%d:%b" % (len(part), part)


NOTHING = LogDigest()
"""The commitment to no records."""
