"""Where rounds end: at every event, at every N events, or at barriers.  The log and the key alone decide.

Barriers (barrier_chain.py) end rounds at certain times, although nothing that decides about releases ever reads a
clock.  Where events of several partitions end rounds, barriers say in which order these come.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import NamedTuple

from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.merged_log import LogEntry, LogPart, in_columns, one_by_one
from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.privacy.vector import Vector, at

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
    """One round: its records, the offsets that it ends before, and when it was closed, in milliseconds since 1970.

    The records come in `runs`, which follow each other.

    That is the timestamp of the record that closed it or, where there are barriers, when the barrier was due that
    closed it or comes next.  `barrier` is the last one whose events are all in this round or earlier ones; `further`
    are the offsets of all partitions but the first.
    """

    runs: Sequence[Sequence[Record]]
    next_offset: int
    closed: int
    barrier: Barrier | None = None
    further: Vector = ()

    @property
    def records(self) -> Iterator[Record]:
        """The records of this round, one by one."""
        return chain.from_iterable(self.runs)


_made: "partial[Round]" = partial(tuple.__new__, Round)


@dataclass
class RoundCutter:
    """Cuts the log of an events topic into rounds.

    The records of the open round are kept as they came, and nothing of them has entered any state.  `next_offset` and
    `further` are the first offsets that have not been taken.  `barrier` is the one that closed the last round or, where
    so many events do, the last one whose events were all taken; these come behind the barrier up to which they stand.
    """

    events_per_round: int | None
    next_offset: int
    barrier: Barrier | None = None
    further: Vector = ()
    _records: list[Record] = field(default_factory=list)
    _runs: list[Records] = field(default_factory=list)
    _open: Barrier | None = None

    @property
    def open_records(self) -> int:
        """How many records the open round holds by now."""
        return len(self._records) + sum(map(len, self._runs))

    @property
    def offsets(self) -> Vector:
        """The first offset of each partition that has not been taken."""
        return self.next_offset, *self.further

    def cut(self, parts: Sequence[LogPart], most: int) -> list[Round]:
        """Take what comes next in the log; returns the rounds that it closes, at most `most` of them.

        What was taken before is skipped, and what comes after the last of `most` rounds is left.
        """
        if self.events_per_round is None:
            return self._by_barriers(in_columns(parts), most)
        if self.events_per_round == 1 and self.barrier is None:  # spare each event the look at what is open
            return self._each_alone(in_columns(parts), most)
        return self._by_events(one_by_one(parts), most)

    def _each_alone(self, parts: Iterable[Records | Barrier], most: int) -> list[Round]:
        rounds: list[Round] = []
        for part in parts:
            fresh = fresh_from(part, self.next_offset) if isinstance(part, Records) else None
            if fresh and (fresh := fresh[: most - len(rounds)]):
                runs = (((record,),) for record in fresh)
                ends = [offset + 1 for offset in fresh.offsets]
                rounds += map(_made, zip(runs, ends, fresh.timestamps, repeat(None), repeat(())))
                self.next_offset = ends[-1]
        return rounds

    def _by_barriers(self, parts: Iterable[Records | Barrier], most: int) -> list[Round]:
        rounds: list[Round] = []
        offsets, known = list(self.offsets), self.barrier.number if self.barrier is not None else 0
        for part in parts:
            if len(rounds) == most:
                break
            if isinstance(part, Records):
                offsets += [0] * (part.partition + 1 - len(offsets))
                if fresh := fresh_from(part, offsets[part.partition]):
                    offsets[part.partition] = fresh.offsets[-1] + 1
                    self._runs.append(fresh)
            elif part.number > known:
                offsets = [max(end, at(offsets, number)) for number, end in enumerate(part.ends)]
                self.barrier, known = part, part.number
                rounds.append(self._closed(part.due, offsets))
        self.next_offset, self.further = offsets[0], tuple(offsets[1:])
        return rounds

    def _by_events(self, entries: Iterable[LogEntry], most: int) -> list[Round]:
        rounds: list[Round] = []
        offsets = list(self.offsets)
        for entry in entries:
            if len(rounds) == most:
                break
            if isinstance(entry, Barrier):
                last = self._open or self.barrier
                if last is None or entry.number > last.number:
                    self.barrier, self._open = last, entry
                    offsets += [0] * (len(entry.offsets) - len(offsets))
            elif entry.offset >= offsets[entry.partition]:
                offsets[entry.partition] = entry.offset + 1
                self._records.append(entry)
                if len(self._records) == self.events_per_round:
                    rounds.append(
                        self._closed(self._open.due if self._open is not None else entry.timestamp, offsets)
                    )
        self.next_offset, self.further = offsets[0], tuple(offsets[1:])
        return rounds

    def _closed(self, closed: int, offsets: Sequence[int]) -> Round:
        runs: list[Sequence[Record]] = [*self._runs]
        runs += [run for run in in_columns(self._records) if isinstance(run, Records)]
        self._records, self._runs = [], []
        return Round(runs, offsets[0], closed, self.barrier, tuple(offsets[1:]))


def fresh_from(records: Records, offset: int) -> Records | None:
    """The records from `offset` on, each with a higher offset than the one before it; None if there are none."""
    if records.ascends_from(offset):
        return records
    fresh = []
    for record in records:
        if record.offset >= offset:
            fresh.append(record)
            offset = record.offset + 1
    return Records.of(fresh) if fresh else None
