"""What a member of the intake does with one partition: its part of every round, as frames and a head.

It reads no clock and no socket, and knows nothing of other partitions: what it gives is a function of the noise key,
the epoch, the partition's records and the barriers.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stream_dp.counters.protocol import CounterState
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.log_digest import LogDigester, PartDigest
from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.events.rounds import fresh_from
from stream_dp.events.schema_book import SchemaBook
from stream_dp.pipeline.admission import Admission
from stream_dp.pipeline.counted_days import CountedDays
from stream_dp.pipeline.intake import Position
from stream_dp.pipeline.partition_frames import (
    HEAD_VERSION,
    PartitionFrame,
    PartitionFrameWriter,
    PartitionHead,
)
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY
from stream_dp.privacy.vector import at, larger


@dataclass(frozen=True)
class PartOfRound:
    """What one partition brings to one round, no frames where it is not counted.

    `records` is how many it held, and private.
    """

    frames: Sequence[PartitionFrame]
    head: PartitionHead
    dead_letters: Sequence[DeadLetter]
    records: int


class PartitionChain:
    """What partition `number` brings to the hash chain, after the round of `state` or at the epoch's beginning."""

    def __init__(
        self, epoch: Epoch, key: bytes, number: int, shards: int, state: HistogramState | None = None
    ) -> None:
        self.round = state.round if state is not None else 0
        self._epoch, self._number, self._noise = epoch, number, epoch.noise(key)
        self._digest = EMPTY_HISTORY
        self._writer = PartitionFrameWriter(epoch.number, epoch.nonce, number, shards, self._noise)

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached."""
        return self.round == self._epoch.mechanism.horizon

    def state(self) -> HistogramState:
        """The round, and no label."""
        return HistogramState(EMPTY_HISTORY, [], np.empty(0, np.int32), CounterState(self.round))

    def extend(self, counts: Counter[str]) -> list[PartitionFrame]:
        """Go on by a round that brings these labels, each so often; returns its frames."""
        self.round += 1
        self._digest = self._noise.part_digest(self.round, self._number, counts)
        return list(self._writer.frames(self.round, self._digest, counts))

    def pass_over(self) -> None:
        """Go on by a round that does not name the partition: it joins later."""
        self.round += 1

    def told(self, passed: int, barrier: Barrier, part: PartDigest | None = None) -> PartitionHead:
        """The head after `barrier`, the epoch's barrier number `passed`; `part`: what the round holds of the log."""
        digest, self._digest = self._digest, EMPTY_HISTORY  # which a round that does not count has
        return PartitionHead(
            HEAD_VERSION,
            self._epoch.number,
            self._epoch.nonce,
            self._number,
            passed,
            barrier.digest,
            digest,
            part.records if part is not None else 0,
            part.digest if part is not None else b"",
            part.last if part is not None else b"",
        )


class PartitionIntake:
    """Counts partition `number` of an events topic for `shards` shards.

    `position`, `state` and `pairs` are what an earlier one had after a round: all of them, or none.  `schemas`: see
    `Intake`; several partitions may share them.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        number: int,
        shards: int,
        position: Position | None = None,
        state: HistogramState | None = None,
        pairs: bytes | bytearray = b"",
        schemas: SchemaBook | None = None,
    ) -> None:
        assert epoch.after_barrier is not None, "only rounds of barriers are read by many"
        self.epoch, self.number = epoch, number
        begun = position or Position.at_start_of(epoch)
        assert begun.barrier is not None
        self.barrier = begun.barrier
        """The one that closed the last round, or the one before the epoch's first."""
        self.next_offset = at(begun.offsets, number)
        """The first offset of the partition that has not been counted."""
        self._begun, self._closed = begun.offsets, begun.closed
        last = begun.log.lasts[number] if number < len(begun.log.lasts) else b""
        self._log = replace(begun.log, last=last, further=())  # of this partition alone
        days = CountedDays(epoch, begun.barrier, begun.closed)
        self._admission = Admission(epoch, key, topic, days, pairs, schemas)
        self._digester = LogDigester(key, epoch.reads_headers)
        self._first = epoch.after_barrier.number
        self._chain = PartitionChain(epoch, key, number, shards, state)

    @property
    def position(self) -> Position:
        """How far the partition has been counted; of other partitions it says where the last barrier stood."""
        first, *further = larger(self._begun, self.barrier.ends)
        before = [b""] * self.number if self._log.last else []
        last, *lasts = [*before, self._log.last]
        log = replace(self._log, last=last, further=tuple(lasts))
        return Position(first, log, self._closed, barrier=self.barrier, further=tuple(further))

    @property
    def pairs(self) -> bytearray:
        """What the bound remembers; see `Intake`."""
        return self._admission.pairs

    @property
    def round(self) -> int:
        """How many rounds have been counted."""
        return self._chain.round

    @property
    def passed(self) -> int:
        """How many barriers have closed a round so far; `round` is how many of those are counted."""
        return self.barrier.number - self._first

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached: what follows belongs to another epoch."""
        return self._chain.finished

    def state(self) -> HistogramState:
        """What is kept of it beside its position: its round, and no label."""
        return self._chain.state()

    def close(self, barrier: Barrier, records: Sequence[Records]) -> PartOfRound | None:
        """The partition's part of the round that `barrier`, the next one, closes; `records` are all of it, in order.

        None if the partition is not among those that it names: it joins later.
        """
        if barrier.number != self.barrier.number + 1:
            raise ValueError(f"barrier {barrier.number} does not follow barrier {self.barrier.number}")
        columns = self._fresh(records)
        self.barrier = barrier
        self.next_offset = max(self.next_offset, barrier.end_of(self.number))
        part = self._digester.of_part(self.number, columns) if columns else None
        in_log = [part._replace(partition=0)] if part is not None else []  # the only one that this log knows
        self._log = self._digester.extend_joint(self._log.begun_anew, in_log)
        joined = self.number < len(barrier.offsets)
        frames, letters = list[PartitionFrame](), list[DeadLetter]()
        if self._admission.counts(barrier):
            self._closed = barrier.due
            if joined:
                [admitted] = self._admission.admitted([(self.number, columns)], letters)
                frames = self._chain.extend(Counter(admitted))
            else:
                self._chain.pass_over()
        if not joined:
            return None
        return PartOfRound(frames, self._chain.told(self.passed, barrier, part), letters, len(columns))

    def _fresh(self, records: Sequence[Records]) -> Sequence[Record]:
        """The records that have not been counted."""
        runs = list[Records]()
        for each in records:
            if fresh := fresh_from(each, self.next_offset):
                self.next_offset = fresh.offsets[-1] + 1
                runs.append(fresh)
        return Records.joined(runs) if runs else ()
