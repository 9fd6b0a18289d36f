"""Which rounds are counted where the privacy unit is a user's day.  Barriers alone decide, so all hosts agree.

Nobody can tell of which day the events are of a round that goes over midnight, so these are counted nowhere.  Nor is
anything before the epoch's first day.
"""

from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import Barrier


class CountedDays:
    """The rounds of an epoch that follow `barrier`, in order; `day` is that of the last one."""

    def __init__(self, epoch: Epoch, barrier: Barrier | None) -> None:
        self._days, self._first_day = epoch.days, epoch.first_day
        self._began = barrier.due if barrier is not None else 0
        self.day = epoch.day_of(self._began)

    @property
    def count_all(self) -> bool:
        """Whether days mean nothing here."""
        return self._days is None

    def counts(self, closed: int) -> bool:
        """Whether the next round is counted, which is closed at `closed`, in milliseconds since 1970."""
        if self._days is None:
            return True
        began, self._began = self._began, closed
        self.day = self._days.of_round(closed)
        return self.day >= self._first_day and self._days.at(began) == self.day
