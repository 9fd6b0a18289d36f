"""The worker's work where a group reads the events: the heads of all partitions in, seals of rounds out.

It sees neither events nor labels.  Its rounds, hash chain, log digest and position are those of a worker that reads all
partitions itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from stream_dp.counters.protocol import CounterState
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.round_chain import head_before
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.log_digest import LogDigester
from stream_dp.events.merged_log import LogPart, one_by_one
from stream_dp.events.record import Record
from stream_dp.pipeline.counted_days import CountedDays
from stream_dp.pipeline.frames import FrameRefused, seal
from stream_dp.pipeline.intake import Position
from stream_dp.pipeline.partition_frames import PartitionHead, decode_head
from stream_dp.pipeline.pipeline import Output, Pipeline
from stream_dp.pipeline.sequencer import Sequencer
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY
from stream_dp.privacy.vector import Vector, at


class HeadsOfRounds:
    """Heads that wait for those of the other partitions of their round, which is told by its barrier's number."""

    def __init__(self, epoch: Epoch, reached: int) -> None:
        """Heads of rounds up to `reached` are passed over; see `PartitionHead.round`."""
        self._epoch, self._reached = epoch, reached
        self._held: dict[int, dict[int, tuple[PartitionHead, Record]]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Take records of the heads topic.

        Raises `FrameRefused` where one is no head, or contradicts another.  Those of older epochs come from members
        that slept, and are passed over.
        """
        for record in records:
            head = decode_head(record.value)
            if head.epoch < self._epoch.number or (
                head.nonce == self._epoch.nonce and head.round <= self._reached
            ):
                continue
            if head.nonce != self._epoch.nonce:
                raise FrameRefused(
                    f"the heads topic holds heads of epoch {head.epoch}, which is not the one that is open: another "
                    "stream or program wrote to this topic; nothing is sent"
                )
            first, _ = self._held.setdefault(head.round, {}).setdefault(head.partition, (head, record))
            if first != head:
                raise FrameRefused(
                    f"partition {head.partition} was counted in two ways in round {head.round}: another log, another "
                    "key or another version; nothing is sent"
                )

    def missing(self, round_number: int, partitions: int) -> list[int]:
        """The partitions whose heads of a round have not come."""
        return [number for number in range(partitions) if number not in self._held.get(round_number, {})]

    def take(self, round_number: int, partitions: int) -> list[Record]:
        """The heads of a round of which none is missing, in the order of their partitions."""
        held = self._held.pop(round_number)
        self._reached = round_number
        return [held[number][1] for number in range(partitions)]


class JointIntake:
    """What a session asks of an intake, where others read the events: `position` is all there is."""

    pairs = bytearray()
    open_records = 0

    def __init__(self, position: Position) -> None:
        self.position = position

    @property
    def offsets(self) -> Vector:
        """The next offset of each partition."""
        return self.position.offsets


class Coordinator:
    """Seals the rounds of an events topic that the members of a group read, for `shards` shards.

    `position` and `state` are what an earlier one had at the end of a round: both, or neither.  `heads_offset` is from
    where on the heads topic has to be read.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        shards: int,
        position: Position | None = None,
        state: HistogramState | None = None,
        heads_offset: int = 0,
    ) -> None:
        self.epoch, self.heads_offset = epoch, heads_offset
        self.intake = JointIntake(position or Position.at_start_of(epoch))
        self.round = state.round if state else 0
        self._first = epoch.after_barrier.number if epoch.after_barrier is not None else 0
        self._days = CountedDays(epoch, self.position.barrier, self.position.closed)
        self._history = state.history if state else EMPTY_HISTORY
        self._shards, self._noise = shards, epoch.noise(key)
        self._digester = LogDigester(key, epoch.reads_headers)

    @property
    def position(self) -> Position:
        """See `Sequencer.position`."""
        return self.intake.position

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached: what follows belongs to another epoch."""
        return self.round == self.epoch.mechanism.horizon

    @property
    def passed(self) -> int:
        """How many barriers have closed a round so far; `round` is how many of those are counted."""
        known = self.position.barrier
        return known.number - self._first if known is not None else 0

    def process(self, log: Sequence[LogPart]) -> Output:
        """Seal rounds: each barrier comes after the heads of all partitions, in order, as records.

        What was taken before is skipped; what lies beyond the horizon is left.
        Raises `FrameRefused` for heads that belong to other barriers.
        """
        first, before, closed_before = self.round + 1, self._history, self.position.closed
        heads, closed, records = list[bytes](), list[int](), 0
        waiting: list[Record] = []
        for entry in one_by_one(log):
            if isinstance(entry, Record):
                waiting.append(entry)
                continue
            known = self.position.barrier
            if not self.finished and (known is None or entry.number > known.number):
                counted = self.round
                records += self._close(entry, waiting)
                if self.round > counted:
                    heads.append(self._history)
                    closed.append(entry.due)
            waiting = []
        if not heads:
            return Output(records=records)
        schedule, horizon = self.epoch.release_schedule, self.epoch.mechanism.horizon
        wanted = schedule.wanted(first, closed, closed_before, horizon)
        if wanted.any():
            released = first + int(np.flatnonzero(wanted)[-1])
            self.intake.position = replace(self.position, released=released)
        seals = seal(self.epoch.number, self.epoch.nonce, self._shards, first, before, heads, closed)
        return Output(frames=list(seals), records=records, heads=heads)

    def _close(self, barrier: Barrier, records: Sequence[Record]) -> int:
        """Close the round of a barrier; returns how many events it held."""
        heads = [decode_head(record.value) for record in records]
        number = self.passed + 1
        if [(head.partition, head.round) for head in heads] != [
            (place, number) for place in range(len(barrier.offsets))
        ]:
            raise ValueError(f"these are not the heads of round {number}")
        for head in heads:
            if head.barrier != barrier.digest:
                raise FrameRefused(
                    f"a member of the intake closed round {number} of partition {head.partition} by another barrier "
                    "than the one that counts: the topic of the barriers or that of the heads was changed; nothing is "
                    "sent"
                )
        position = self.position
        first, *further = [max(end, at(position.offsets, place)) for place, end in enumerate(barrier.ends)]
        begins = self.epoch.log_rounds and self.round % self.epoch.log_rounds == 0
        log = position.log.begun_anew if begins else position.log
        log = self._digester.extend_joint(log, [part for head in heads for part in head.in_log])
        self.intake.position = replace(
            position, next_offset=first, further=tuple(further), log=log, barrier=barrier
        )
        if self._days.counts(barrier):
            self._count(barrier, heads)
        self.heads_offset = min(record.offset for record in records)
        return sum(head.records for head in heads)

    def _count(self, barrier: Barrier, heads: Sequence[PartitionHead]) -> None:
        """Extend the chain by a round that counts."""
        self.round += 1
        before = head_before(self._history, self.round, self.epoch.mechanism.chain_rounds)
        parts = [(head.partition, head.head) for head in heads]
        self._history = self._noise.join_history(before, self.round, parts)
        self.intake.position = replace(self.position, closed=barrier.due)

    def state(self) -> HistogramState:
        """What a checkpoint keeps: how far the rounds are, and no label."""
        return HistogramState(self._history, [], np.empty(0, np.int32), CounterState(self.round))


AnyPipeline = Pipeline | Sequencer | Coordinator
"""What a worker drives: all of the work, all but what shards do, or all but what shards and a group do."""
