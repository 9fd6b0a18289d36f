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
from stream_dp.engine.round_chain import head_before
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.merged_log import LogPart
from stream_dp.events.records import Records
from stream_dp.events.schema_book import SchemaBook
from stream_dp.pipeline.intake import Intake, Position
from stream_dp.pipeline.partition_frames import (
    HEAD_VERSION,
    PartitionFrame,
    PartitionFrameWriter,
    PartitionHead,
)
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY


@dataclass(frozen=True)
class PartOfRound:
    """What one partition brings to one round, no frames where it is not counted.

    `records` is how many it held, and private.
    """

    frames: Sequence[PartitionFrame]
    head: PartitionHead
    dead_letters: Sequence[DeadLetter]
    records: int


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
        self.intake = Intake(epoch, key, topic, position, pairs, schemas)
        self._noise = epoch.noise(key)
        self._head = state.history if state is not None else EMPTY_HISTORY
        self.round = state.round if state is not None else 0
        self._first = epoch.after_barrier.number
        self._writer = PartitionFrameWriter(epoch.number, epoch.nonce, number, shards, self._noise)

    @property
    def position(self) -> Position:
        """How far the partition has been counted; of other partitions it says where the last barrier stood."""
        return self.intake.position

    @property
    def barrier(self) -> Barrier:
        """The one that closed the last round, or the one before the epoch's first."""
        barrier = self.position.barrier
        assert barrier is not None
        return barrier

    @property
    def passed(self) -> int:
        """How many barriers have closed a round so far; `round` is how many of those are counted."""
        return self.barrier.number - self._first

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached: what follows belongs to another epoch."""
        return self.round == self.epoch.mechanism.horizon

    def state(self) -> HistogramState:
        """What is kept of it beside its position: the head of its hash chain, and no label."""
        return HistogramState(self._head, [], np.empty(0, np.int32), CounterState(self.round))

    def close(self, barrier: Barrier, records: Sequence[Records]) -> PartOfRound | None:
        """The partition's part of the round that `barrier`, the next one, closes; `records` are all of it, in order.

        None if the partition is not among those that it names: it joins later.
        """
        if barrier.number != self.barrier.number + 1:
            raise ValueError(f"barrier {barrier.number} does not follow barrier {self.barrier.number}")
        counted = self.intake.position.log
        self.intake.position = replace(self.intake.position, log=counted.begun_anew)  # this round's alone
        log_parts: list[LogPart] = [*records, barrier]
        closed = self.intake.process(log_parts, 1)
        if self.number >= len(barrier.offsets):
            self.round += len(closed.parts)
            return None
        log = self.position.log
        frames = list[PartitionFrame]()
        for parts in closed.parts:
            self.round += 1
            admitted = dict(parts or ())[self.number]
            before = head_before(self._head, self.round, self.epoch.mechanism.chain_rounds)
            self._head = self._noise.extend_partition(before, self.round, self.number, admitted)
            frames = list(self._writer.frames(self.round, self._head, Counter(admitted)))
        head = PartitionHead(
            HEAD_VERSION,
            self.epoch.number,
            self.epoch.nonce,
            self.number,
            self.passed,
            barrier.digest,
            self._head,
            log.records,
            log.contents if log.records else b"",
            log.lasts[self.number] if log.records else b"",
        )
        return PartOfRound(frames, head, closed.dead_letters, closed.records)
