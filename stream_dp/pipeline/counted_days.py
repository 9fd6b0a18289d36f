"""Which rounds are counted where the privacy unit is a user's day.  Barriers alone decide, so all hosts agree.

An event came after the barrier before it was due and before the answer to its own barrier.  If midnight lies between
these two, nobody can tell of which day the event is, so it is counted nowhere.  A partition that nobody led has the
offset of an earlier barrier again, so its events may have come since that one was due.  Nor is anything counted before
the epoch's first day.
"""

from collections.abc import Iterable

from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import Barrier


class CountedDays:
    """The rounds of an epoch that follow `barrier`, in order; `day` is that of the last one that counts.

    `closed` is when that one was closed, in milliseconds since 1970.
    """

    def __init__(self, epoch: Epoch, barrier: Barrier | None, closed: int) -> None:
        self._days, self._first_day = epoch.days, epoch.first_day
        self._last = self._before = barrier
        self.day = epoch.day_of(closed)

    @property
    def count_all(self) -> bool:
        """Whether days mean nothing here."""
        return self._days is None

    def counts(self, barrier: Barrier | None) -> bool:
        """Whether the next round is counted, which `barrier` closes."""
        if self._days is None:
            return True
        assert barrier is not None, "days are read from barriers"
        self._before, self._last = self._last, barrier
        day = self._days.at(barrier.answered)
        counts = (
            day >= self._first_day and self._before is not None and self._days.at(self._before.due) == day
        )
        if counts:
            self.day = day
        return counts

    def numbers(self, rounds: int, barriers: Iterable[Barrier]) -> list[int]:
        """The numbers of the rounds that these barriers close, after `rounds` that count; 0 for one that does not."""
        found = list[int]()
        for barrier in barriers:
            counts = self.counts(barrier)
            rounds += counts
            found.append(rounds if counts else 0)
        return found

    def counts_part(self, partition: int) -> bool:
        """Whether what one partition brings to the last round is counted, if that round is."""
        if self._days is None:
            return True
        return (
            self._before is not None and self._days.at(self._before.asked_since(str(partition))) == self.day
        )
