"""What one partition brings to rounds that barriers close: a function of the noise key, the epoch and its records."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.bounding import Bound
from stream_dp.events.counted_round import PartitionOfRound
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.log_digest import LogDigester
from stream_dp.events.records import Records
from stream_dp.pipeline.admission import Admission
from stream_dp.pipeline.counted_days import CountedDays
from stream_dp.privacy.vector import at


@dataclass
class RoundOfPartition:
    """What a partition brings to one round: its part of the record, and its admitted labels with their counts."""

    part: PartitionOfRound
    counts: Counter[str]
    letters: list[DeadLetter] = field(default_factory=list)


class CountedPartition:
    """Partition `number` of the epoch's topic, after `rounds` rounds that count; `days` are those that follow.

    `schemas` are the records that settle what schemas stand for, and `bound` decides what of each event is admitted.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        number: int,
        rounds: int,
        days: CountedDays,
        schemas: Sequence[bytes],
        bound: Bound,
    ) -> None:
        self._number, self._round, self._noise = number, rounds, epoch.noise(key)
        self._admission = Admission(epoch, key, epoch.topic, days, bound)
        self._admission.schemas.take(*schemas)
        self._digester = LogDigester(key, epoch.reads_headers)
        self._counts_cells = epoch.mechanism.cap_share

    def close(self, barrier: Barrier, records: Sequence[Records]) -> RoundOfPartition:
        """The round that `barrier` closes; `records` are all of the partition, in order.

        If it does not count, nothing is admitted, and it has no head.
        """
        columns = Records.joined(records) if records else ()
        letters, counts, head = list[DeadLetter](), Counter[str](), b""
        cells = list[tuple[int, int]]() if self._counts_cells else None
        if self._admission.counts_all or self._admission.counts(barrier):
            self._round += 1
            [admitted] = self._admission.admitted([(self._number, columns)], letters, cells)
            counts = Counter(admitted)
            head = self._noise.part_digest(self._round, self._number, counts)
        if not columns:
            return RoundOfPartition(PartitionOfRound(head), counts, letters)
        part = self._digester.of_part(self._number, columns)
        units, over = cells[0] if cells else (0, 0)
        brought = PartitionOfRound(head, part.records, part.digest, part.last, units, over)
        return RoundOfPartition(brought, counts, letters)


def start_of(epoch: Epoch, barrier: Barrier, partition: int) -> int:
    """The first offset of a partition after the round that `barrier` closed."""
    return max(at(epoch.offsets, partition), barrier.end_of(partition))
