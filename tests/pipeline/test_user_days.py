"""`unit = "user-day"` without a broker: what one user's day can change, by looking at every small log there is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise, product
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_dp.config.days import Days, days_of
from stream_dp.config.settings import Settings
from stream_dp.config.times import milliseconds
from stream_dp.counters.blt_parameters import residues
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import PARTITION, beginning
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record
from stream_dp.pipeline.intake import Intake
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.accounting import gaussian_delta
from tests.events.barrier_chains import CHAIN, chain

KEY = bytes(range(32))
HOUR = 3_600_000
BERLIN = days_of("Europe/Berlin")
LONG = BERLIN.at(milliseconds(datetime(2026, 10, 25, 12, tzinfo=UTC)))
"""A day of 25 hours."""
SHORT = BERLIN.at(milliseconds(datetime(2026, 3, 29, 12, tzinfo=UTC)))
"""One of 23."""

Brought = list[tuple[int, list[tuple[str, str]]]]
"""The rounds: when each is closed, and who brought what in it."""


def epoch(items: int = 1, first_day: int = 0, horizon: int = 1023, **changed: Any) -> Epoch:
    settings = Settings(
        stream="s",
        unit="user-day",
        items_per_user=items,
        rounds="ticks",
        epsilon=30.0,
        horizon=horizon,
        time_zone="Europe/Berlin",
        **{"mechanism": "binary", **changed},
    )
    opened = Epoch.open(settings, 1, 0, first_day=first_day)
    return replace(opened, nonce=bytes(16), after_barrier=beginning(CHAIN, 0, 0))


def log_of(brought: Brought) -> list[LogEntry]:
    """As a writer gives it, with a barrier a second before each midnight, before which the last events come."""
    entries: list[LogEntry] = []
    following, offset = chain(), 0
    begins = (brought[0][0] - HOUR, list[tuple[str, str]]())
    for due, events in [begins, *brought]:
        for user, item in events:
            value = msgspec.json.encode({"items": [item], "user": user})
            entries.append(Record(offset, due, None, value))
            offset += 1
        ends_day = due == BERLIN.begins(BERLIN.at(due))
        for moment in (due - 1_000, due) if ends_day else (due,):
            value = following.encode(moment, {PARTITION: offset})
            barrier = following.take(following.last.next_offset, value)
            assert barrier is not None
            entries.append(barrier)
    return entries


def admitted(of: Epoch, brought: Brought) -> list[Counter[str]]:
    """What each round counts."""
    intake = Intake(of, KEY, "s.events")
    return [Counter(labels) for labels in intake.process(log_of(brought), len(brought)).admitted]


@pytest.mark.parametrize(("day", "hours"), [(LONG, 25), (SHORT, 23), (LONG + 3, 24)])
def test_a_pair_counts_once_in_each_day_however_long_it_is(day: int, hours: int) -> None:
    """One item of one user in any two rounds of an hour, on three days: pairs around midnight and far from it."""
    first, last = BERLIN.begins(day - 1), BERLIN.begins(day + 2)
    dues = range(first + HOUR, last + 1, HOUR)
    assert len(dues) == 48 + hours
    day_of, of = [BERLIN.at(due - HOUR) for due in dues], epoch()
    near = [
        place
        for place, of_hour in enumerate(day_of)
        if day_of[max(0, place - 2)] != day_of[min(place + 2, len(dues) - 1)]
    ]
    assert len(near) == 8, "two hours before and after each midnight"
    for one, other in product([*near, 0, 36, len(dues) - 1], repeat=2):
        if one < other:
            rounds = {one: [("u", "tea")], other: [("u", "tea")]}
            found = admitted(of, [(due, rounds.get(place, [])) for place, due in enumerate(dues)])
            assert sum(found, Counter[str]()).total() == (1 if day_of[one] == day_of[other] else 2)


def worst_change(of: Epoch, day: int) -> int:
    """The most counts, of any round and label, that taking one day of one user out of a small log changes."""
    midnight, next_one = BERLIN.begins(day), BERLIN.begins(day + 1)
    moments = [midnight, midnight + HOUR, next_one, next_one + HOUR]
    day_of = [day - 1, day, day, day + 1]
    others = [("v", "b"), ("v", "a"), ("w", "a"), ("v", "c")]
    found = 0
    for course in product(["", "a", "b", "ab"], repeat=len(moments)):
        logs: list[Brought] = []
        for taken in (None, *sorted({*day_of})):
            mine = [
                [("u", item) for item in items] if day_of[place] != taken else []
                for place, items in enumerate(course)
            ]
            rounds = [(due, [*mine[place], others[place]]) for place, due in enumerate(moments)]
            logs.append([*rounds[:2], (next_one - HOUR, []), *rounds[2:]])
        larger, *without = [admitted(of, log) for log in logs]
        for smaller in without:
            differ = [(one - other) + (other - one) for one, other in zip(larger, smaller, strict=True)]
            found = max(found, sum(each.total() for each in differ))
    return found


@pytest.mark.parametrize("day", [LONG, SHORT])
@pytest.mark.parametrize("items", [1, 2])
def test_a_users_day_changes_no_more_than_it_may(day: int, items: int) -> None:
    assert worst_change(epoch(items), day) == items


def test_days_of_24_hours_change_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a day ends 24 hours after it began.  Whoever comes in the last hour of a long day counts twice."""

    def at(_: Days, moment: int) -> int:
        return (moment - BERLIN.begins(LONG)) // (24 * HOUR) + LONG

    assert worst_change(epoch(), LONG) == 1
    monkeypatch.setattr(Days, "at", at)
    assert worst_change(epoch(), LONG) > 1


def hourly(first: int, rounds: int) -> Brought:
    """The same user brings the same item every hour."""
    return [(first + HOUR * (number + 1), [("u", "tea")]) for number in range(rounds)]


def test_a_restart_at_any_round_forgets_nothing_of_the_day() -> None:
    log = log_of(hourly(BERLIN.begins(LONG) + 20 * HOUR, 12))
    whole = Pipeline(epoch(), KEY, "s.events")
    expected = whole.process(log).releases
    ends = [place for place, entry in enumerate(log) if not isinstance(entry, Record)]
    for end in ends[1:-1]:
        before = Pipeline(epoch(), KEY, "s.events")
        first = before.process(log[: end + 1]).releases
        state, pairs = before.histogram.state(), bytes(before.intake.pairs)
        after = Pipeline(epoch(), KEY, "s.events", before.position, state, pairs)
        assert first + after.process(log).releases == expected
        assert after.intake.pairs == whole.intake.pairs


@pytest.mark.parametrize("cut", [1, 3, 7, 40])
def test_what_is_left_of_a_day_before_the_first_one_is_neither_counted_nor_released(cut: int) -> None:
    """However it is cut into batches, and also where the horizon is shorter than what is passed over."""
    brought = hourly(BERLIN.begins(LONG) - 7 * HOUR, 10)
    of = epoch(first_day=LONG, horizon=2)
    pipeline, log = Pipeline(of, KEY, "s.events"), log_of(brought)
    releases = []
    for start in range(0, len(log), cut):
        releases += pipeline.process(log[start : start + cut]).releases
    assert [release.round for release in releases] == [1, 2]
    assert pipeline.position.closed == BERLIN.begins(LONG) + 2 * HOUR
    assert pipeline.state().counts.tolist() == [1]
    assert pipeline.finished
    assert pipeline.position.log.records == 9, "the commitment is to all that was read"


def test_a_round_over_midnight_is_counted_nowhere() -> None:
    """After an outage nobody can tell of which day its events are: those of one day would count in two."""
    midnight = BERLIN.begins(LONG)
    dues = [midnight - 2 * HOUR, midnight + HOUR, midnight + 2 * HOUR]
    pipeline = Pipeline(epoch(), KEY, "s.events")
    closed = pipeline.intake.process(log_of([(due, [("u", f"at {due}")]) for due in dues]), 9)
    assert closed.admitted == [[f"at {dues[0]}"], [f"at {dues[2]}"]]
    assert closed.timestamps == [dues[0], dues[2]]


SECOND = 1_000
ARRIVALS = (-2_500, -1_900, -1_100, -900, -100, 100, 900, 1_100)
"""When records come, in milliseconds around midnight, all of one user and with the same item."""


def around_midnight(
    late: Sequence[int], unled: Sequence[bool], days: Sequence[int], told: Sequence[str]
) -> list[LogEntry]:
    """The log of a broker that answers so many milliseconds late, or for whose first partition there is no leader.

    Barriers are due every second around midnight, and have the ends that the broker gives as it answers.  Records hold
    nothing but on `days`.  `told`: what the barriers say of all that.
    """
    midnight = BERLIN.begins(LONG)
    entries: list[LogEntry] = []
    following, end = chain(start=beginning(CHAIN, 0, 0, 0)), 0
    for place, (after, leaderless) in enumerate(
        zip([0, 0, *late, 0, 0], [False, False, *unled, False, False], strict=True)
    ):
        due = midnight + (place - 3) * SECOND
        answered = due + after
        while not leaderless and end < len(ARRIVALS) and midnight + ARRIVALS[end] < answered:
            came = midnight + ARRIVALS[end]
            items = ["tea"] if BERLIN.at(came) in days else []
            entries.append(Record(end, came, None, msgspec.json.encode({"items": items, "user": "u"})))
            end += 1
        repeats = [0] if leaderless and "repeated" in told else []
        ends = {PARTITION: end, "1": 0}
        value = following.encode(due, ends, answered if "answered" in told else 0, repeats)
        barrier = following.take(place, value)
        assert barrier is not None
        entries.append(barrier)
    return entries


def most_counts_of_a_day(*told: str) -> int:
    """The most counts that one day of a user changes, over every broker that answers late or has no leader."""
    of = replace(epoch(), further_offsets=(0,), after_barrier=beginning(CHAIN, 0, 0, 0))
    found = 0
    for late, unled in product(product([0, 300, 1_300], repeat=3), product([False, True], repeat=3)):
        counted = {
            days: Intake(of, KEY, "s.events").process(around_midnight(late, unled, days, told), 9).admitted
            for days in [(), (LONG - 1,), (LONG,), (LONG - 1, LONG)]
        }
        for (more, larger), (less, smaller) in product(counted.items(), repeat=2):
            if {*less} < {*more} and len(more) == len(less) + 1:
                found = max(found, sum(abs(len(x) - len(y)) for x, y in zip(larger, smaller, strict=True)))
    return found


def test_a_calendar_day_counts_once_whatever_the_broker_answers_and_when() -> None:
    """Wrong: barriers that do not say when the answer came, or which offsets they repeat, as in earlier versions.

    With both counts in the first two rounds of a block, the exact delta of that day is thousands of times the promise.
    """
    assert most_counts_of_a_day("answered", "repeated") == 1
    assert most_counts_of_a_day("repeated") == most_counts_of_a_day("answered") == 2
    window, guarantee = calibrate(1.0, 1e-6, 60, 1, "window", "user-day", "window")
    assert isinstance(window, WindowMechanism)
    theta = np.array(window.block.theta_gaps)
    weights = residues(np.array(window.block.hat_gaps), theta)
    column = np.array([1.0, *(weights @ (1 - theta) ** power for power in range(59))])
    once = float(column @ column)
    assert once == pytest.approx(window.block.squared_sensitivity)
    twice = once + float(column[:-1] @ column[:-1]) + 2 * float(column[1:] @ column[:-1])
    assert gaussian_delta(window.rho, 1.0) <= guarantee.delta - guarantee.threshold_delta <= 5e-7
    assert 1e-3 < gaussian_delta(window.rho * twice / once, 1.0) < gaussian_delta(4 * window.rho, 1.0)


def test_a_month_of_days_takes_no_more_memory_than_one() -> None:
    sizes = []
    pipeline = Pipeline(epoch(), KEY, "s.events")
    everybody = [(f"user {number}", "tea") for number in range(20)]
    brought = [
        (BERLIN.begins(LONG + day) + hour * HOUR, everybody if hour else [])
        for day in range(30)
        for hour in (0, 1)
    ]
    log = log_of(brought)
    ends = [place for place, entry in enumerate(log) if not isinstance(entry, Record)]
    for start, end in pairwise([-1, *ends]):
        pipeline.process(log[start + 1 : end + 1])
        sizes.append(len(pipeline.intake.pairs))
    assert max(sizes) == 20 * 24
