"""The header of a Kafka record batch (format v2): all the embedded broker reads of what it stores.

The records inside stay as the producer encoded them, compressed or not.
Source of the layout: the Kafka protocol's message format, version 2; integers are big-endian.
"""

import struct
from typing import NamedTuple

import crc32c
from kafka.errors import (
    BrokerResponseError,
    CorruptRecordError,
    InvalidRecordError,
    InvalidTxnStateError,
    MessageSizeTooLargeError,
    UnsupportedForMessageFormatError,
)

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qii")  # base offset, length after this field, leader epoch: outside the checksum
_SIZE_FIELD_END = 12
_CHECKSUM_START = 21
_MAGIC = 2
_TRANSACTIONAL = 0x10
_CONTROL = 0x20

HEADER_BYTES = _HEADER.size
PREFIX_BYTES = _PREFIX.size
LEADER_EPOCH = 0  # one node, one leader, forever


class BatchHeader(NamedTuple):
    """What the broker needs of one batch; `size` is the whole batch in bytes, times are in milliseconds."""

    base_offset: int
    size: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


class BatchRefused(Exception):
    """The broker does not store this batch; `error` is the protocol's error class to answer with."""

    def __init__(self, error: type[BrokerResponseError], reason: str) -> None:
        super().__init__(reason)
        self.error = error


def read_header(data: bytes | memoryview, start: int = 0) -> BatchHeader | None:
    """The header of the batch that starts at `data[start]`, or None if fewer bytes than a header are left."""
    if len(data) - start < HEADER_BYTES:
        return None
    base_offset, length, _, magic, checksum, attributes, last_delta, _, *others = _HEADER.unpack_from(
        data, start
    )
    return BatchHeader(
        base_offset, length + _SIZE_FIELD_END, magic, checksum, attributes, last_delta, *others
    )


def is_intact(data: memoryview, start: int, header: BatchHeader) -> bool:
    """Whether the whole batch is there and its checksum (CRC-32C) is right."""
    end = start + header.size
    if header.magic != _MAGIC or header.size < HEADER_BYTES or end > len(data):
        return False
    return bool(crc32c.crc32c(data[start + _CHECKSUM_START : end]) == header.checksum)


def check_produced(data: memoryview | None, max_bytes: int) -> BatchHeader:
    """The header of the one batch a producer sent for a partition; BatchRefused if it may not be stored."""
    header = read_header(data) if data is not None else None
    if data is None or header is None:
        raise BatchRefused(InvalidRecordError, "a produce request must carry a record batch")
    if header.magic != _MAGIC:
        raise BatchRefused(UnsupportedForMessageFormatError, "only record format v2 is stored")
    if header.size != len(data):
        raise BatchRefused(InvalidRecordError, "a produce request must carry exactly one batch a partition")
    if header.size > max_bytes:
        raise BatchRefused(
            MessageSizeTooLargeError, f"the batch has {header.size} bytes, {max_bytes} allowed"
        )
    if not is_intact(data, 0, header):
        raise BatchRefused(CorruptRecordError, "the batch's checksum is wrong")
    if header.attributes & (_TRANSACTIONAL | _CONTROL):
        raise BatchRefused(InvalidTxnStateError, "the embedded broker has no transactions")
    if header.records < 1 or header.last_offset_delta != header.records - 1:
        raise BatchRefused(InvalidRecordError, "the batch's record count and last offset disagree")
    return header


def stored_prefix(base_offset: int, size: int) -> bytes:
    """The first `PREFIX_BYTES` bytes of a stored batch: its place in the log, which the broker decides."""
    return _PREFIX.pack(base_offset, size - _SIZE_FIELD_END, LEADER_EPOCH)
