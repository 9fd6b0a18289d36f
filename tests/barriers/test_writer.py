"""When barriers are due, whatever the clock does."""

import pytest

from stream_dp.barriers.writer import Moments
from stream_dp.config.days import days_of


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_barrier_is_due_at_every_multiple_and_once() -> None:
    clock = Clock(1003.0)
    moments = Moments(10, clock)
    assert moments.due(0) is None
    assert moments.seconds_left() == pytest.approx(7.0)
    clock.now = 1010.3
    assert (moments.due(0), moments.due(0)) == (1_010_000, None)
    clock.now = 1019.9
    assert moments.due(1_010_000) is None
    assert moments.seconds_left() == pytest.approx(0.1)
    clock.now = 1020.0
    assert moments.due(1_010_000) == 1_020_000


def test_moments_that_were_missed_are_made_up_for_by_one() -> None:
    clock = Clock(1003.0)
    moments = Moments(10, clock)
    clock.now = 5003.0
    assert (moments.due(1_000_000), moments.due(5_000_000)) == (5_000_000, None)


def test_what_another_writer_has_written_for_the_same_moment_is_not_written_again() -> None:
    clock = Clock(1003.0)
    moments = Moments(10, clock)
    clock.now = 1010.0
    assert moments.due(1_010_000) is None
    clock.now = 1020.0
    assert moments.due(1_010_000) == 1_020_000


def test_a_clock_that_goes_back_does_not_stop_the_barriers() -> None:
    """The topic holds one that is due in a time that has not come: the next ones count on, one a moment."""
    clock = Clock(9_000.0)
    moments = Moments(10, clock)
    clock.now = 1_000.0
    assert moments.due(9_000_000) == 9_010_000
    assert moments.due(9_010_000) is None
    clock.now = 1_010.0
    assert moments.due(9_010_000) == 9_020_000


def test_one_that_is_due_a_moment_ahead_is_waited_for() -> None:
    """Clocks of two writers are never quite the same."""
    clock = Clock(1_000.0)
    moments = Moments(10, clock)
    clock.now = 1_010.0
    assert moments.due(1_020_000) is None
    clock.now = 1_030.0
    assert moments.due(1_020_000) == 1_030_000


def test_long_intervals_are_slept_through_in_stretches() -> None:
    moments = Moments(1e10, Clock(1_000.0))
    assert moments.seconds_left() == 60.0
    assert moments.due(0) is None


def test_where_days_count_barriers_are_due_around_each_midnight_too() -> None:
    """Berlin's clocks go back on 2026-10-25: that day has 25 hours, and no tick of seven hours ends with it."""
    berlin = days_of("Europe/Berlin")
    midnight = berlin.begins(berlin.at(1_792_929_600_000) + 1)
    clock = Clock(midnight / 1000 - 90)
    moments, last, found = Moments(7 * 3_600, clock, berlin), 0, []
    while clock.now < midnight / 1000 + 7 * 3_600:
        clock.now += moments.seconds_left()
        if (due := moments.due(last)) is not None:
            found.append(due - midnight)
            last = due
    assert found[:2] == [-1_000, 0]
    assert len(found) == 3
    clock.now = midnight / 1000 + 24 * 3_600 - 0.5
    assert moments.due(last) == midnight + 24 * 3_600_000 - 1_000
