"""From records to what each round admits: cut into rounds, decode, bound.  All that happens before anything is counted.

Like the histogram it reads no clock and no socket: what it gives is a function of the noise key, the epoch and the
records alone, however they are cut into batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from stream_dp.engine.epoch import Epoch
from stream_dp.engine.release_schedule import NEVER
from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.bounding import Bound, EventBound, UserBound
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.event import BadRecord, decode_event
from stream_dp.events.log_digest import NOTHING, LogDigest, LogDigester
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record
from stream_dp.events.rounds import RoundCutter, events_of


@dataclass(frozen=True)
class Position:
    """How far the events topic has been applied: the next offset, and a commitment to all before it.

    It only ever stands at the end of a round, which was closed at `closed`: see `Round`.  `released` is the last round
    that was released, 0 before any.  `barrier` is the one that closed the last round, or the one before the epoch's
    first; None where rounds do not end by ticks.
    """

    next_offset: int
    log: LogDigest = NOTHING
    closed: int = NEVER
    released: int = 0
    barrier: Barrier | None = None

    @classmethod
    def at_start_of(cls, epoch: Epoch) -> "Position":
        """Where an epoch begins."""
        return cls(epoch.first_offset, barrier=epoch.after_barrier)


@dataclass
class ClosedRounds:
    """What one batch closed: per round its admitted labels, a label as often as events held it, and its timestamp.

    A timestamp is that of the record that closed the round, or when its barrier was due, in milliseconds.
    """

    admitted: list[list[str]] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)


class Intake:
    """What stands before the histogram of one events partition.

    `position` is where an earlier one stood, and `pairs` what its bound remembered then.
    """

    def __init__(
        self,
        epoch: Epoch,
        key: bytes,
        topic: str,
        position: Position | None = None,
        pairs: bytes | bytearray = b"",
    ) -> None:
        self.position = position or Position.at_start_of(epoch)
        self._bound = _bound(epoch, key, pairs)
        self._cutter = RoundCutter(
            events_of(epoch.privacy["rounds"]), self.position.next_offset, self.position.barrier
        )
        self._digester = LogDigester(key)
        self._topic = topic
        self._check_value = epoch.check_value

    @property
    def next_offset(self) -> int:
        """The first offset that has not been read; records from `position` on up to it belong to the open round."""
        return self._cutter.next_offset

    @property
    def open_records(self) -> int:
        """How many records the open round holds by now, all of them in memory."""
        return self._cutter.open_records

    @property
    def pairs(self) -> bytearray:
        """What the bound remembers at `position`: bytes that only ever grow.  The live ones: copy what is kept."""
        return self._bound.pairs

    def process(self, entries: Sequence[LogEntry], most: int) -> ClosedRounds:
        """Take what comes next in the log, and close at most `most` rounds.

        What was taken before is skipped; what comes after the last of `most` rounds is left.
        """
        closed = ClosedRounds()
        rounds = self._cutter.cut(entries, most)
        for each in rounds:
            admitted: list[str] = []
            for record in each.records:
                admitted += self._admitted(record, closed)
            closed.admitted.append(admitted)
            closed.timestamps.append(each.closed)
        if rounds:
            applied = chain.from_iterable(each.records for each in rounds)
            log = self._digester.extend(self.position.log, applied)
            last = rounds[-1]
            self.position = Position(last.next_offset, log, last.closed, barrier=last.barrier)
        return closed

    def _admitted(self, record: Record, closed: ClosedRounds) -> list[str]:
        """What is counted of the record; a bad one becomes a dead letter and counts as an event without items."""
        self._check_value(record)
        try:
            return self._bound.admit(decode_event(record.value))
        except BadRecord as reason:
            closed.dead_letters.append(
                DeadLetter(str(reason), self._topic, 0, record.offset, record.key, record.value)
            )
            return []


def _bound(epoch: Epoch, key: bytes, pairs: bytes | bytearray) -> Bound:
    items = epoch.mechanism.items_per_event
    return UserBound(items, key, epoch.nonce, pairs) if epoch.guarantee.unit == "user" else EventBound(items)
