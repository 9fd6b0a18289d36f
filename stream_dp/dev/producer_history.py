"""Idempotent producers of one partition: a batch sent again after a lost answer is stored once.

Like Apache Kafka, the broker remembers the last five batches of each producer: so many may be in flight.
Part of the embedded broker, which is for trying out and for tests.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError

from stream_dp.dev.record_batch import BatchHeader, BatchRefused

_REMEMBERED_BATCHES = 5
_SEQUENCES = 2**31  # sequence numbers count 0 .. 2^31 - 1 and wrap


class _Stored(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


@dataclass
class _Producer:
    epoch: int
    recent: deque[_Stored] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class ProducerHistory:
    """What each producer id last wrote to one partition; rebuilt from the log at start."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def stored_before(self, header: BatchHeader) -> int | None:
        """The base offset this very batch already has in the log, or None if it is the next one to store.

        Raises BatchRefused for an older epoch of the producer and for a gap in its sequence.
        A producer the log does not know may start at any sequence number, as with Apache Kafka.
        """
        known = self._producers.get(header.producer_id)
        if header.producer_id < 0 or known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise BatchRefused(InvalidProducerEpochError, "a newer producer has taken this producer id over")
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise BatchRefused(OutOfOrderSequenceNumberError, "a new producer epoch starts at sequence 0")
            return None
        last_sequence = _last_sequence(header)
        for stored in known.recent:
            if (stored.first_sequence, stored.last_sequence) == (header.base_sequence, last_sequence):
                return stored.base_offset
        expected = (known.recent[-1].last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise BatchRefused(
                OutOfOrderSequenceNumberError, f"sequence {header.base_sequence} came, {expected} was due"
            )
        return None

    def remember(self, header: BatchHeader, base_offset: int) -> None:
        """Note a batch that is now in the log."""
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        known.recent.append(_Stored(header.base_sequence, _last_sequence(header), base_offset))


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
