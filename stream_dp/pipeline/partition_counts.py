"""A partition that another engine has counted: counts records in, its part of every round out, as frames and a head.

This is `PartitionIntake` for records that hold counts.  The engine is inside the trust boundary.  Still, no record is
taken at its word where barriers, which are public, say what is possible.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.events.barrier_chain import Barrier, bears
from stream_dp.events.counts_record import CountsRecord, CountsRefused, decode_counts
from stream_dp.events.log_digest import LogDigest, LogDigester
from stream_dp.events.record import Record
from stream_dp.pipeline.intake import Position
from stream_dp.pipeline.partition_intake import PartitionChain, PartOfRound
from stream_dp.privacy.vector import at, larger

_BYTES_HELD = 64 << 20
"""Most bytes of counts that may wait while the next round is not whole."""


@dataclass
class _Held:
    """The parts that have come of one round, each with its place: where it stands, and a digest of it."""

    parts: dict[int, tuple[CountsRecord, int, bytes]] = field(default_factory=dict)
    size: int = 0

    @property
    def is_whole(self) -> bool:
        return bool(self.parts) and len(self.parts) == next(iter(self.parts.values()))[0].parts


class PartitionCounts:
    """Partition `number` of the counts topic `topic`, for `shards` shards.

    `position` and `state` are what an earlier one had after a round: both, or neither.  `position` tells where the last
    barrier stood in the events topic, and where in the counts topic to read on: see `last`.
    """

    pairs = bytearray()
    """The engine has bounded, and nothing is remembered for it."""

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        number: int,
        shards: int,
        position: Position | None = None,
        state: HistogramState | None = None,
    ) -> None:
        assert epoch.after_barrier is not None
        assert epoch.guarantee.unit == "event"
        self.epoch, self.number = epoch, number
        self.position = position or Position.at_start_of(epoch)
        self._topic = topic
        self._first = epoch.after_barrier.number
        self._chain = PartitionChain(epoch, key, number, shards, state)
        self._digester = LogDigester(key)
        self._held: dict[tuple[int, str], _Held] = {}
        self._last = (-1, b"")  # the last record that was read

    @property
    def last(self) -> bytes:
        """The record from which on the counts topic must be read again; empty for its beginning: see `offset_of`."""
        lasts = self.position.log.lasts
        return lasts[self.number] if self.number < len(lasts) else b""

    @property
    def barrier(self) -> Barrier:
        """The one that closed the last round, or the one before the epoch's first."""
        barrier = self.position.barrier
        assert barrier is not None
        return barrier

    @property
    def passed(self) -> int:
        """How many barriers have closed a round so far."""
        return self.barrier.number - self._first

    @property
    def round(self) -> int:
        """How many rounds have been counted."""
        return self._chain.round

    @property
    def finished(self) -> bool:
        """Whether the horizon is reached: what follows belongs to another epoch."""
        return self._chain.finished

    @property
    def held_bytes(self) -> int:
        """How much waits for barriers."""
        return sum(each.size for each in self._held.values())

    def state(self) -> HistogramState:
        """See `PartitionIntake.state`."""
        return self._chain.state()

    def add(self, record: Record) -> None:
        """Keep a record of the counts topic until its barrier comes.

        Raises `CountsRefused` for what is no counts record of this partition, and for one that contradicts another.
        """
        try:
            found = decode_counts(record.value)
        except ValueError as reason:
            raise self._refused(record.offset, f"holds no counts: {reason}") from None
        if found.partition != self.number:
            raise self._refused(
                record.offset, f"holds counts of partition {found.partition}: it is in the wrong one"
            )
        place = self._digester.in_place(record)
        self._last = record.offset, place
        if found.n <= self.barrier.number:
            return  # of a round that is closed, or before the epoch
        held = self._held.setdefault((found.n, found.tag), _Held())
        for other, offset, _ in held.parts.values():
            if _frame_of(other) != _frame_of(found):
                raise self._refused(
                    record.offset,
                    f"contradicts the one at offset {offset} about the parts, the bound or the first offset of "
                    f"barrier {found.n}",
                )
        known = held.parts.get(found.part)
        if known is not None:
            if _pairs(known[0]) != _pairs(found):
                raise self._refused(
                    record.offset,
                    f"counts part {found.part} of barrier {found.n} differently from the one at offset {known[1]}",
                )
            return
        held.parts[found.part] = found, record.offset, place
        held.size += len(record.value or b"")
        if self.held_bytes > _BYTES_HELD:
            raise self._refused(
                record.offset,
                f"is beyond the {_BYTES_HELD} bytes that may wait until all parts of barrier "
                f"{self.barrier.number + 1} have come",
            )

    def has(self, barrier: Barrier) -> bool:
        """Whether all that `barrier` closes has come; nothing has to where it does not name the partition."""
        return self.number >= len(barrier.offsets) or self._parts_of(barrier).is_whole

    def _parts_of(self, barrier: Barrier) -> _Held:
        """What has come of the round that `barrier`, the next one, closes.

        Others of its number are of barriers that do not count.
        """
        for (number, tag), held in self._held.items():
            if number == barrier.number and bears(barrier, self.barrier, tag):
                return held
        return _Held()

    def close(self, barrier: Barrier) -> PartOfRound | None:
        """See `PartitionIntake.close`; `has` says that it may be called.  Raises `CountsRefused`."""
        if barrier.number != self.barrier.number + 1 or not self.has(barrier):
            raise ValueError(
                f"barrier {barrier.number} cannot close a round after barrier {self.barrier.number}"
            )
        here = self.number < len(barrier.offsets)
        counts = self._checked(barrier) if here else Counter[str]()
        self._held = {place: each for place, each in self._held.items() if place[0] > barrier.number}
        first, *further = larger(self.position.offsets, barrier.ends)
        self.position = replace(
            self.position,
            next_offset=first,
            further=tuple(further),
            log=self._read_on(),
            closed=barrier.due,
            barrier=barrier,
        )
        if not here:
            self._chain.pass_over()
            return None
        frames = self._chain.extend(counts)
        return PartOfRound(frames, self._chain.told(self.passed, barrier), [], 0)

    def _checked(self, barrier: Barrier) -> Counter[str]:
        """The counts of the round, once nothing in them is impossible."""
        first = at(self.position.offsets, self.number)
        most = barrier.end_of(self.number) - first
        bound = self.epoch.mechanism.items_per_event
        counts, total = Counter[str](), 0
        for found, offset, _ in self._parts_of(barrier).parts.values():
            if found.bound != bound:
                raise self._refused(
                    offset,
                    f"was bounded at {found.bound} items an event, and the epoch counts {bound}: set the "
                    "engine's bound to items_per_event",
                )
            if found.first != first:
                raise self._refused(
                    offset,
                    f"was counted from offset {found.first} on, and the round begins at offset {first}: where an epoch "
                    "begins with barriers of its own, tell the engine this offset",
                )
            for each in found.counts:
                if each.label in counts:
                    raise self._refused(
                        offset,
                        f"names a label that barrier {barrier.number} has already: each comes once a round",
                    )
                if each.count > most:
                    raise self._refused(
                        offset,
                        f"counts a label more often than barrier {barrier.number} closes offsets, which are {most}",
                    )
                counts[each.label] = each.count
                total += each.count
            if total > bound * most:
                raise self._refused(
                    offset,
                    f"brings barrier {barrier.number} to more labels than its {most} offsets can hold at {bound} "
                    "items an event",
                )
        return Counter(dict(sorted(counts.items())))  # frames must not depend on the order

    def _read_on(self) -> LogDigest:
        """A commitment to nothing but the record from which on to read: the first that still waits, or the last one."""
        waiting = [
            (offset, place) for held in self._held.values() for _, offset, place in held.parts.values()
        ]
        _, place = min(waiting, default=self._last)
        lasts = [*[b""] * self.number, place]
        return LogDigest(last=lasts[0], further=tuple(lasts[1:])) if place else self.position.log

    def _refused(self, offset: int, why: str) -> CountsRefused:
        return CountsRefused(
            f"the record at offset {offset} of partition {self.number} of the topic {self._topic!r} {why}; nothing of "
            "it is counted: repair what writes there, and then the topic, as docs/operations/counts.md says"
        )


def _frame_of(record: CountsRecord) -> tuple[int, int, int]:
    """What all parts must agree about."""
    return record.parts, record.bound, record.first


def _pairs(record: CountsRecord) -> list[tuple[str, int]]:
    """What it counts, in an order that says nothing."""
    return sorted((each.label, each.count) for each in record.counts)
