"""Events and barriers in one order, which depends on neither when nor how they were fetched.

Between two barriers the events are ordered by partition and offset.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.events.counted_round import CountedRound
from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.privacy.vector import Vector, at

LogEntry = Record | Barrier
"""What a stream counts: events, and the barriers that close rounds where its rounds end by ticks."""

LogPart = LogEntry | Records | CountedRound
"""A piece of a log: an entry of it, events of one partition that follow each other, or what an engine counted."""

Fetched = tuple[int, Sequence[Record]]
"""Events of one partition as they are fetched, with the offset before which all of them have been read."""


class MergedLog:
    """Puts each barrier of a chain behind the events that it closes; with `barriers_first`, before them.

    An event is held back until the barrier that closes its round is known, and a barrier until everything before its
    offsets has been read.  That is a question of offsets alone: aborted records and the marks of transactions have
    offsets too, and never come.  A partition that a barrier is the first to name is read from its beginning.
    """

    def __init__(self, chain: BarrierChain, *starts: int, barriers_first: bool = False) -> None:
        """`starts`: the next offset of each partition."""
        self._chain = chain
        self._starts = starts
        self._first = barriers_first
        self._reached: list[int] = []
        self._events: list[deque[Records]] = []
        self._barriers: deque[Barrier] = deque()
        self._know_of(len(starts))

    def _know_of(self, partitions: int) -> None:
        for number in range(len(self._reached), partitions):
            self._reached.append(at(self._starts, number))
            self._events.append(deque())

    @property
    def partitions(self) -> int:
        """How many partitions are known."""
        return len(self._reached)

    @property
    def events(self) -> int:
        """How many events are held back."""
        return sum(len(records) for partition in self._events for records in partition)

    @property
    def barriers(self) -> int:
        """How many barriers are held back."""
        return len(self._barriers)

    @property
    def awaited(self) -> list[int]:
        """The partitions that have not been read up to the first barrier that is held back."""
        if not self._barriers:
            return []
        ends = self._barriers[0].ends
        return [number for number, end in enumerate(ends) if self._reached[number] < end]

    def wanted(self, most: int) -> Vector:
        """The offset up to which to read each partition now, from the barriers that are held back.

        That is what the first of them closes, and what those behind it close as far as that is at most `most` events.
        """
        wanted: Vector = ()
        for barrier in self._barriers:
            if wanted and sum(map(max, barrier.ends, self._reached)) - sum(self._reached) > most:
                break
            wanted = barrier.ends
        return wanted

    def add_barriers(self, records: Iterable[tuple[int, bytes | None]]) -> None:
        """The next records of the barriers topic, each with its offset.  Those that do not count are passed over."""
        for offset, value in records:
            barrier = self._chain.take(offset, value)
            if barrier is not None:
                self._barriers.append(barrier)
                self._know_of(len(barrier.offsets))

    def add_events(self, records: Sequence[Record], reached: int, partition: int = 0) -> None:
        """The next events of a partition; everything before the offset `reached` has been read with them."""
        before = self._reached[partition]
        if records and records[0].offset < before:
            records = [record for record in records if record.offset >= before]
        if records:
            self._events[partition].append(Records.of(records))
        self._reached[partition] = max(before, reached)

    def take(self, most: int) -> list[LogPart]:
        """What can be told to come next, up to `most` barriers, each with the events that it closes."""
        taken: list[LogPart] = []
        while most and self._barriers and not self.awaited:
            barrier = self._barriers.popleft()
            if self._first:
                taken.append(barrier)
            for events, end in zip(self._events, barrier.ends, strict=False):
                taken += taken_before(events, end)
            if not self._first:
                taken.append(barrier)
            most -= 1
        return taken

    def rest(self) -> list[Record]:
        """The events that no barrier has closed when all logs are at their end; none where barriers come first."""
        if self._first:
            return []
        return [event for partition in self._events for records in partition for event in records]


def taken_before(held: deque[Records], end: int) -> Iterator[Records]:
    """Take away the events before the offset `end`, which are the first ones."""
    while held and held[0].offsets[0] < end:
        records = held.popleft()
        if records.offsets[-1] >= end:
            here = bisect_left(records.offsets, end)
            held.appendleft(records[here:])
            records = records[:here]
        yield records


def first_of(held: deque[Records], most: int, end: int) -> Iterator[Records]:
    """Take away the first events, at most so many, and none from the offset `end` on.

    >>> held = deque([Records(0, (3, 5, 6, 9), (1, 1, 1, 1), (None,) * 4, (b"",) * 4)])
    >>> [records.offsets for records in first_of(held, 9, 9)], [records.offsets for records in held]
    ([(3, 5, 6)], [(9,)])
    """
    for records in taken_before(held, end):
        if len(records) > most:
            held.appendleft(records[most:])
            records = records[:most]
        if records:
            yield records
        most -= len(records)
        if not most:
            return


def one_by_one(parts: Iterable[LogPart]) -> Iterator[LogEntry]:
    """Each entry of a log that comes in parts; what an engine counted is none."""
    for part in parts:
        if isinstance(part, Records):
            yield from part
        elif not isinstance(part, CountedRound):
            yield part


def in_columns(parts: Iterable[LogPart]) -> Iterator[Records | Barrier]:
    """The merged log with its events in columns: as many at once as follow each other in one partition."""
    held: list[Record] = []
    for part in parts:
        if held and not (isinstance(part, Record) and part.partition == held[0].partition):
            yield Records.of(held)
            held = []
        if isinstance(part, Record):
            held.append(part)
        elif not isinstance(part, CountedRound):
            yield part
    if held:
        yield Records.of(held)


def merged(
    chain: BarrierChain,
    barriers: Iterable[tuple[int, bytes | None]],
    events: Callable[[int], Iterable[Fetched]],
    *starts: int,
    barriers_first: bool = False,
) -> Iterator[LogEntry]:
    """The log that two topics give from the offsets `starts` of the events on.

    `barriers` are records with their offsets; `events` gives those of a partition as they are fetched.  At the end
    come the events that no barrier has closed.
    """
    log = MergedLog(chain, *starts, barriers_first=barriers_first)
    fetched: list[Iterator[Fetched]] = []
    for record in barriers:
        log.add_barriers([record])
        fetched += [iter(events(number)) for number in range(len(fetched), log.partitions)]
        while log.barriers:
            for number in log.awaited:
                more = next(fetched[number], None)
                if more is None:  # the events end below the barrier
                    yield from log.rest()
                    return
                log.add_events(more[1], more[0], number)
            yield from one_by_one(log.take(1))
    fetched += [iter(events(number)) for number in range(len(fetched), log.partitions)]
    for number, batches in enumerate(fetched):
        for reached, batch in batches:
            log.add_events(batch, reached, number)
    yield from log.rest()
