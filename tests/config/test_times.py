"""One rule for times: ISO 8601, UTC unless a zone is given, and never digits alone."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.config.times import milliseconds, parse_time

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES)


@given(MOMENTS)
def test_what_is_written_is_what_is_read(moment: datetime) -> None:
    assert parse_time(moment.isoformat()) == moment
    assert parse_time(moment.replace(tzinfo=None).isoformat()) == moment.replace(tzinfo=UTC)


@given(MOMENTS)
def test_milliseconds_are_whole_and_not_later_than_the_moment(moment: datetime) -> None:
    rest = moment - datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=milliseconds(moment))
    assert timedelta(0) <= rest < timedelta(milliseconds=1)


@pytest.mark.parametrize("text", ["", "12:00", "20260131", "1769860800000", "tomorrow", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_time(text)


def test_a_day_is_its_first_moment_and_half_a_second_counts() -> None:
    assert milliseconds(parse_time("1970-01-02")) == 86_400_000
    assert milliseconds(parse_time("1970-01-01T01:00:00.5+01:00")) == 500
    assert milliseconds(parse_time("1969-12-31T23:59:59Z")) == -1000
