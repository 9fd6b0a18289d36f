"""Where rounds end: at every event, at every N events, or at barriers.  The log and the key alone decide.

Barriers (barriers/chain.py) end rounds at certain times, although nothing that decides about releases ever reads a
clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record

PER_EVENT, TICKS = "per-event", "ticks"
_EVERY = "every-"


def events_of(rounds: str) -> int | None:
    """How many events end a round under the setting `rounds`; None where barriers do.

    >>> events_of("per-event"), events_of("every-100"), events_of("ticks")
    (1, 100, None)
    """
    if rounds == TICKS:
        return None
    return 1 if rounds == PER_EVENT else int(rounds.removeprefix(_EVERY))


class Round(NamedTuple):
    """One round: its records, the offset that it ends before, and when it was closed, in milliseconds since 1970.

    That is the timestamp of the record that closed it or, where a barrier did, when that was due.
    """

    records: Sequence[Record]
    next_offset: int
    closed: int
    barrier: Barrier | None = None


@dataclass
class RoundCutter:
    """Cuts the log of one events partition into rounds.

    The records of the open round are kept as they came, and nothing of them has entered any state.  `next_offset` is
    the first that has not been taken, `barrier` the one that closed the last round.
    """

    events_per_round: int | None
    next_offset: int
    barrier: Barrier | None = None
    _records: list[Record] = field(default_factory=list)

    @property
    def open_records(self) -> int:
        """How many records the open round holds by now."""
        return len(self._records)

    def cut(self, entries: Sequence[LogEntry], most: int) -> list[Round]:
        """Take what comes next in the log; returns the rounds that it closes, at most `most` of them.

        What was taken before is skipped, and what comes after the last of `most` rounds is left.
        """
        if self.events_per_round == 1:  # nothing is ever left open: spare each event the look at what is
            return self._each_alone(entries, most)
        rounds: list[Round] = []
        for entry in entries:
            if self._was_taken(entry):
                continue
            if len(rounds) == most:
                break
            if isinstance(entry, Barrier):
                self.next_offset, self.barrier = max(self.next_offset, entry.end), entry
                rounds.append(self._closed(entry.due))
                continue
            self.next_offset = entry.offset + 1
            self._records.append(entry)
            if len(self._records) == self.events_per_round:
                rounds.append(self._closed(entry.timestamp))
        return rounds

    def _each_alone(self, entries: Sequence[LogEntry], most: int) -> list[Round]:
        fresh = [each for each in entries if isinstance(each, Record) and each.offset >= self.next_offset]
        rounds = [Round((each,), each.offset + 1, each.timestamp) for each in fresh[:most]]
        self.next_offset = rounds[-1].next_offset if rounds else self.next_offset
        return rounds

    def _was_taken(self, entry: LogEntry) -> bool:
        if isinstance(entry, Barrier):
            return self.barrier is not None and entry.number <= self.barrier.number
        return entry.offset < self.next_offset

    def _closed(self, closed: int) -> Round:
        records, self._records = self._records, []
        return Round(records, self.next_offset, closed, self.barrier)
