"""Record batches as a producer would send them, built with kafka-python's encoder."""

from collections.abc import Sequence

import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

GZIP = 1


def batch(
    values: Sequence[bytes | None],
    timestamps: list[int] | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compression: int = 0,
    headers: Sequence[tuple[str, bytes | None]] = (),
    keyed: bool = False,
    size: int = 2**24,
) -> bytes:
    """One batch of records of at most `size` bytes; `producer` is (id, epoch, first sequence), times are in ms."""
    producer_id, epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=size,
    )
    for number, value in enumerate(values):
        key = b"key %d" % number if keyed else None
        builder.append(number, timestamps[number] if timestamps else 1_000, key, value, list(headers))
    return bytes(builder.build())


def crc_again(data: bytes | bytearray) -> bytes:
    """A batch that was changed, with the checksum of what it is now."""
    return bytes(data[:17]) + crc32c.crc32c(bytes(data[21:])).to_bytes(4) + bytes(data[21:])
