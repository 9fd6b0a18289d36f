"""From records to what each round admits: cut into rounds, decode, bound.  All that happens before anything is counted.

Like the histogram it reads no clock and no socket: what it gives is a function of the noise key, the epoch and the
records alone, however they are cut into batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from stream_dp.bounding import Bound, EventBound, UserBound
from stream_dp.epoch import Epoch
from stream_dp.log_digest import NOTHING, LogDigest, LogDigester
from stream_dp.records import BadRecord, DeadLetter, Record, decode_event
from stream_dp.release_schedule import NEVER
from stream_dp.rounds import RoundCutter, TickCodec, events_of


@dataclass(frozen=True)
class Position:
    """How far the events topic has been applied: the next offset, and a commitment to all before it.

    It only ever stands at the end of a round.  `tick` is the number of the tick that closed the last one, `closed` the
    broker's timestamp of the record that did, and `released` the last round that was released, 0 before any.
    """

    next_offset: int
    log: LogDigest = NOTHING
    tick: int = 0
    closed: int = NEVER
    released: int = 0


@dataclass
class ClosedRounds:
    """What one batch closed: per round its admitted labels, a label as often as events held it, and its timestamp.

    A timestamp is the broker's of the record that closed the round, in milliseconds.
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
        self.position = position or Position(epoch.first_offset, tick=epoch.first_tick)
        self.ticks = TickCodec(key, epoch.privacy["stream"])
        self._bound = _bound(epoch, key, pairs)
        self._cutter = RoundCutter(
            events_of(epoch.privacy["rounds"]),
            self.ticks,
            self.position.next_offset,
            self.position.tick,
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

    def process(self, records: Sequence[Record], most: int) -> ClosedRounds:
        """Take records in the order of their offsets, and close at most `most` rounds.

        Records that were taken before are skipped; those after the last of `most` rounds are left.
        """
        closed = ClosedRounds()
        rounds = self._cutter.cut(records, most)
        for each in rounds:
            admitted: list[str] = []
            for record in each.events:
                admitted += self._admitted(record, closed)
            closed.admitted.append(admitted)
            closed.timestamps.append(each.records[-1].timestamp)
        if rounds:
            applied = chain.from_iterable(each.records for each in rounds)
            log = self._digester.extend(self.position.log, applied)
            last = rounds[-1].records[-1]
            self.position = Position(last.offset + 1, log, rounds[-1].tick, last.timestamp)
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
