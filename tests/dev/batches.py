"""Record batches as a producer would send them, built with kafka-python's encoder."""

from kafka.record.default_records import DefaultRecordBatchBuilder

GZIP = 1


def batch(
    values: list[bytes],
    timestamps: list[int] | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compression: int = 0,
) -> bytes:
    """One batch of records without keys; `producer` is (id, epoch, first sequence), times are in ms."""
    producer_id, epoch, sequence = producer
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=2**24,
    )
    for number, value in enumerate(values):
        builder.append(number, timestamps[number] if timestamps else 1_000, None, value, [])
    return bytes(builder.build())
