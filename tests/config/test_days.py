"""Days of a time zone: when they begin, how long they last, and what no clock change may do to them."""

from datetime import UTC, datetime

import pytest

from stream_dp.config.days import Days, UnknownZone, date_of
from stream_dp.config.times import milliseconds

HOUR = 3_600_000


def moment(text: str) -> int:
    return milliseconds(datetime.fromisoformat(text).astimezone(UTC))


@pytest.mark.parametrize(
    ("zone", "date", "hours"),
    [
        ("UTC", "2026-03-29", 24),
        ("Europe/Berlin", "2026-03-28", 24),
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("America/Sao_Paulo", "2018-11-04", 23),  # midnight itself is skipped
        ("Pacific/Apia", "2011-12-30", 0),  # a date that never was
    ],
)
def test_a_day_lasts_until_the_next_one(zone: str, date: str, hours: int) -> None:
    days, day = Days(zone), (datetime.fromisoformat(date) - datetime(1970, 1, 1)).days
    assert date_of(day) == date
    assert days.begins(day + 1) - days.begins(day) == hours * HOUR
    if hours:
        assert days.at(days.begins(day)) == day == days.at(days.begins(day + 1) - 1)
    assert days.at(days.begins(day) - 1) < day


def test_clocks_that_go_back_over_midnight_do_not_bring_a_day_back() -> None:
    """In Newfoundland clocks went from 0:01 back to 23:01 of the day before, until 2011."""
    days = Days("America/St_Johns")
    first = moment("2009-11-01T00:00:00-02:30")
    found = [days.at(first + minute * 60_000) for minute in range(-90, 150)]
    assert found == sorted(found)
    assert len({*found}) == 2
    assert found.index(found[-1]) == 90, "the day begins when its date is first shown"


def test_a_round_that_ends_as_a_day_begins_is_of_the_day_before() -> None:
    days = Days("Europe/Berlin")
    midnight = moment("2026-07-02T00:00:00+02:00")
    assert date_of(days.of_round(midnight)) == "2026-07-01"
    assert date_of(days.of_round(midnight + 1)) == "2026-07-02"


@pytest.mark.parametrize("zone", ["", "Berlin", "../../etc/passwd", "Europe", "\0"])
def test_a_zone_that_is_none_is_refused(zone: str) -> None:
    with pytest.raises(UnknownZone, match="does not know the time zone"):
        Days(zone)


@pytest.mark.parametrize("at", [0, -1, 2**63 - 1])
def test_any_moment_has_a_day(at: int) -> None:
    assert Days("Europe/Berlin").at(at) >= 0
