"""Days of a time zone, for the privacy unit that is one user on one day.

A day is a number: how many days its date is after 1970-01-01.  It begins with the first moment that its date is shown
and lasts until the next one begins, so no moment is in two.  A day on which clocks change has 22 to 26 hours.
"""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from stream_dp.config.times import milliseconds

_FIRST = date(1970, 1, 1)
_START = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = date(9999, 12, 30)
LONGEST_DAYS = (_LAST - _FIRST).days


class UnknownZone(ValueError):
    """This machine knows no time zone of that name."""


@dataclass
class Days:
    """The days of the time zone `zone`, a name of the IANA database such as "Europe/Berlin".  Raises `UnknownZone`."""

    zone: str
    _rules: tzinfo = field(init=False, repr=False, compare=False)
    _known: tuple[int, int, int] = field(default=(0, 0, 0), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._rules = _rules_of(self.zone)

    def of_round(self, closed: int) -> int:
        """The day of a round that was closed at `closed`, in milliseconds since 1970.

        One that is closed as a day begins holds the events before it, so it belongs to the day that ends.
        """
        return self.at(closed - 1)

    def at(self, moment: int) -> int:
        """The day of a moment, in milliseconds since 1970.

        >>> Days("UTC").at(86_400_000)
        1
        """
        first, end, day = self._known
        if not first <= moment < end:
            shown = (
                _START + timedelta(milliseconds=min(max(moment, 0), self.begins(LONGEST_DAYS)))
            ).astimezone(self._rules)
            day = (shown.date() - _FIRST).days
            while self.begins(day + 1) <= moment and day < LONGEST_DAYS:  # clocks went back over midnight
                day += 1
            self._known = self.begins(day), self.begins(day + 1), day
        return day

    def begins(self, day: int) -> int:
        """The first moment of a day, in milliseconds since 1970."""
        return milliseconds(datetime.combine(_FIRST + timedelta(days=day), time(), self._rules))


@lru_cache(maxsize=16)
def days_of(zone: str) -> Days:
    """The days of a time zone.  Raises `UnknownZone`."""
    return Days(zone)


def date_of(day: int) -> str:
    """The date of a day.

    >>> date_of(20_779)
    '2026-11-22'
    """
    return (_FIRST + timedelta(days=min(day, LONGEST_DAYS))).isoformat()


def _rules_of(zone: str) -> tzinfo:
    if zone == "UTC":
        return UTC
    try:
        return ZoneInfo(zone)
    except (OSError, ValueError, KeyError):  # a folder of zones, no name of one, none of that name
        raise UnknownZone(f"this machine does not know the time zone {zone!r}") from None
