"""Events and barriers in one order, which depends on neither when nor how they were fetched."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.events.record import Record

LogEntry = Record | Barrier
"""What a stream counts: events, and the barriers that close rounds where its rounds end by ticks."""


class MergedLog:
    """Puts each barrier of a chain behind the events that it closes.

    An event is held back until the barrier that closes its round is known, and a barrier until everything before its
    offset has been read.  That is a question of offsets alone: aborted records and the marks of transactions have
    offsets too, and never come.
    """

    def __init__(self, chain: BarrierChain, next_offset: int) -> None:
        self._chain = chain
        self._reached = next_offset
        self._events: deque[Record] = deque()
        self._barriers: deque[Barrier] = deque()

    @property
    def events(self) -> int:
        """How many events are held back."""
        return len(self._events)

    @property
    def barriers(self) -> int:
        """How many barriers are held back."""
        return len(self._barriers)

    def add_barriers(self, records: Iterable[tuple[int, bytes | None]]) -> None:
        """The next records of the barriers topic, each with its offset.  Those that do not count are passed over."""
        for offset, value in records:
            barrier = self._chain.take(offset, value)
            if barrier is not None:
                self._barriers.append(barrier)

    def add_events(self, records: Sequence[Record], reached: int) -> None:
        """The next events; everything before the offset `reached` has been read with them."""
        self._events.extend(record for record in records if record.offset >= self._reached)
        self._reached = max(self._reached, reached)

    def take(self, most: int) -> list[LogEntry]:
        """What can be told to come next, up to `most` barriers: each behind the events that it closes."""
        taken: list[LogEntry] = []
        while most and self._barriers and self._barriers[0].end <= self._reached:
            barrier = self._barriers.popleft()
            while self._events and self._events[0].offset < barrier.end:
                taken.append(self._events.popleft())
            taken.append(barrier)
            most -= 1
        return taken

    def rest(self) -> list[Record]:
        """The events of the round that is open when both logs are at their end."""
        return list(self._events)


def merged(
    chain: BarrierChain,
    barriers: Iterable[tuple[int, bytes | None]],
    events: Iterable[tuple[int, Sequence[Record]]],
    next_offset: int,
) -> Iterator[LogEntry]:
    """The log that two topics give from `next_offset` of the events on.

    `barriers` are records with their offsets.  `events` come as they are fetched, each time with the offset before
    which all has been read.  At the end come those of the open round.
    """
    log, fetched = MergedLog(chain, next_offset), iter(events)
    for record in barriers:
        log.add_barriers([record])
        while log.barriers:
            taken = log.take(1)
            yield from taken
            if not taken:
                more = next(fetched, None)
                if more is None:  # the events end below the barrier
                    yield from log.rest()
                    return
                log.add_events(more[1], more[0])
    for reached, batch in fetched:
        log.add_events(batch, reached)
    yield from log.rest()
