"""The partition that Kafka's clients send a user's records to, computed from the user alone.

With one of these rules, and only then, all that is of one user stands in one partition.  It must hold for the user that
the mapping finds: a record whose key says something else is nobody's business, and one that stands in another partition
than its user's is no event.
"""

import struct
from collections.abc import Callable
from functools import partial
from zlib import crc32

import msgspec

from stream_dp.config.events_section import EventsSection, KeyEncoding, Partitioner
from stream_dp.errors import Refused
from stream_dp.events.event import BadRecord, Event
from stream_dp.events.mapping.decoder import Decoder
from stream_dp.events.record import Record
from stream_dp.events.records import Records

_INTEGERS = {"int32": 4, "int64": 8}
_MOST_DIGITS = 20
_LOW_31, _LOW_32 = 0x7FFF_FFFF, 0xFFFF_FFFF
_MURMUR_SEED, _MURMUR = 0x9747_B28C, 0x5BD1_E995
_FNV_OFFSET, _FNV_PRIME = 0x811C_9DC5, 0x0100_0193


class PartitionsAdded(Refused):
    """The events topic has got partitions, and users have moved to others; the message says what to do."""


class UserPartitions(msgspec.Struct, frozen=True):
    """In which partition each user's events stand, as an epoch freezes it."""

    partitioner: Partitioner
    partitions: int
    key_encoding: KeyEncoding = "utf-8"

    @classmethod
    def of(cls, section: EventsSection | None, partitions: int) -> "UserPartitions | None":
        """What the settings say; None where they say nothing."""
        if section is None or section.partitioner is None:
            return None
        return cls(section.partitioner, partitions, section.key_encoding)

    def checked(self, decode: Decoder) -> Decoder:
        """A decoder to which a record that stands in another partition than its user's is no event.

        It looks at the user that the mapping finds, and at no key: so all that is counted of a user is in one
        partition, whoever wrote it there.  The decoder raises `PartitionsAdded` for a record of a partition that was
        not there when the epoch was opened, whatever the record holds.
        """
        rule = partition_rule(self.partitioner, self.partitions, self.key_encoding)

        def check_partition(partition: int) -> None:
            if partition >= self.partitions:
                raise PartitionsAdded(
                    f"the events topic has got more partitions than the {self.partitions} that the epoch was opened "
                    "with, and users have moved among them: open a new epoch, which is charged, with --new-epoch"
                )

        def in_place(event: Event, partition: int) -> Event:
            if event.user is not None and rule(event.user) != partition:
                raise BadRecord("it does not stand in the partition of its user")
            return event

        def one(record: Record) -> Event:
            check_partition(record.partition)
            return in_place(decode(record), record.partition)

        def every(records: Records) -> list[Event]:
            check_partition(records.partition)
            return [in_place(event, records.partition) for event in decode.all(records)]

        return Decoder(one, every)


def partition_rule(
    partitioner: Partitioner, partitions: int, encoding: KeyEncoding = "utf-8"
) -> Callable[[str], int | None]:
    """A function from a user to their partition, from 0 up; None for a user that no key of this encoding says.

    >>> partition_rule("murmur2", 12)("c7"), partition_rule("crc32", 12)("c7"), partition_rule("fnv1a", 12)("c7")
    (11, 0, 1)
    >>> partition_rule("murmur2", 12, "int64")("c7") is None
    True
    """
    hashed, encoded = _HASHES[partitioner], _encoder(encoding)

    def partition(user: str) -> int | None:
        key = encoded(user)
        return None if key is None else hashed(key) % partitions

    return partition


def murmur2(key: bytes) -> int:
    """The 32-bit hash of Kafka's own clients, without a sign."""
    size = len(key)
    words, rest = divmod(size, 4)
    state = _MURMUR_SEED ^ size
    for word in struct.unpack_from(f"<{words}I", key):
        word = word * _MURMUR & _LOW_32
        word = (word ^ word >> 24) * _MURMUR & _LOW_32
        state = state * _MURMUR & _LOW_32 ^ word
    if rest:
        state = (state ^ int.from_bytes(key[-rest:], "little")) * _MURMUR & _LOW_32
    state = (state ^ state >> 13) * _MURMUR & _LOW_32
    return state ^ state >> 15


def fnv1a(key: bytes) -> int:
    """The 32-bit hash FNV-1a."""
    state = _FNV_OFFSET
    for byte in key:
        state = (state ^ byte) * _FNV_PRIME & _LOW_32
    return state


def _positive(state: int) -> int:
    """The number without its sign, where the highest bit is one, as Sarama takes it."""
    return state if state <= _LOW_31 else _LOW_32 + 1 - state


_HASHES: dict[Partitioner, Callable[[bytes], int]] = {
    "murmur2": lambda key: murmur2(key) & _LOW_31,
    "crc32": crc32,
    "fnv1a": lambda key: _positive(fnv1a(key)),
}


def _encoder(encoding: KeyEncoding) -> Callable[[str], bytes | None]:
    return _text if encoding == "utf-8" else partial(_number, _INTEGERS[encoding])


def _text(user: str) -> bytes | None:
    try:
        return user.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        return None


def _number(size: int, user: str) -> bytes | None:
    """There is one way to write a number: `07` and `+7` are other users than `7`, and no key says them."""
    if len(user) > _MOST_DIGITS:
        return None
    try:
        number = int(user)
        return number.to_bytes(size, "big", signed=True) if str(number) == user else None
    except (ValueError, OverflowError):
        return None
