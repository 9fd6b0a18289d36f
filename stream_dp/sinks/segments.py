"""The topic of the shards, read in segments: each ends where all partitions ended when it began.

So the rounds that are merged together do not depend on how much a fetch happened to hold (framing.py).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from aiokafka.structs import ConsumerRecord


class Reading(NamedTuple):
    """How far the reader of a partition is.

    `end` is where the partition ends, as far as the broker has told, and `position` the next offset to be read.
    `is_ahead`: it is not read now, because others are behind it.
    """

    end: int | None
    position: int
    is_ahead: bool


class Segments:
    """Keeps back what was read beyond the end of the segment."""

    def __init__(self, partitions: int) -> None:
        self._waiting: list[deque[ConsumerRecord]] = [deque() for _ in range(partitions)]
        self._ends: list[int] | None = None  # of the segment that has begun

    def add(self, partition: int, records: Iterable[ConsumerRecord]) -> None:
        """Take what was read of a partition, in the order of its offsets."""
        self._waiting[partition].extend(records)

    def keeps_back(self, partition: int) -> bool:
        """Whether something of this partition belongs to a later segment: more of it need not be read yet."""
        return bool(self._waiting[partition])

    def take(self, readings: Sequence[Reading]) -> Iterator[tuple[list[ConsumerRecord], bool]]:
        """What there is of the segment that has begun, and whether it is over; where it is, then of the next one."""
        while self._has_begun(readings):
            over = self._is_over(readings)
            yield list(self._of_segment()), over
            if not over:
                return
            self._ends = None

    def _has_begun(self, readings: Sequence[Reading]) -> bool:
        known = [max(each.end, each.position) for each in readings if each.end is not None]
        if self._ends is None and any(self._waiting) and len(known) == len(readings):
            self._ends = known
        return self._ends is not None

    def _of_segment(self) -> Iterator[ConsumerRecord]:
        assert self._ends is not None
        for waiting, end in zip(self._waiting, self._ends, strict=True):
            while waiting and waiting[0].offset < end:
                yield waiting.popleft()

    def _is_over(self, readings: Sequence[Reading]) -> bool:
        assert self._ends is not None
        return all(
            reading.position >= end or reading.is_ahead
            for end, reading in zip(self._ends, readings, strict=True)
        )
