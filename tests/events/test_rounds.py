"""Where rounds end: compared with a slow reading of the three rules."""

import tracemalloc
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record
from stream_dp.events.rounds import Round, RoundCutter, events_of
from tests.events.barrier_chains import barriers

EVENT = b'{"items": ["tea"]}'

Cut = list[tuple[list[int], int, int, int]]


def log_of(entries: list[bool], rounds: str) -> list[LogEntry]:
    """Events, and where rounds end by ticks a barrier behind each one that is true."""
    events: list[LogEntry] = [Record(offset, 7_000 + offset, None, EVENT) for offset in range(len(entries))]
    if rounds != "ticks":
        return events
    behind = [offset + 1 for offset, ends in enumerate(entries) if ends]
    log: list[LogEntry] = list(events)
    for barrier in reversed(barriers(*behind)):
        log.insert(barrier.end, barrier)
    return log


def cutter(rounds: str, next_offset: int = 0, barrier: Barrier | None = None) -> RoundCutter:
    return RoundCutter(events_of(rounds), next_offset, barrier)


def told(found: list[Round]) -> Cut:
    return [
        (
            [record.offset for record in each.records],
            each.next_offset,
            each.closed,
            each.barrier.number if each.barrier else 0,
        )
        for each in found
    ]


def slowly(log: list[LogEntry], rounds: str) -> Cut:
    found: Cut = []
    taken: list[int] = []
    for entry in log:
        if isinstance(entry, Barrier):
            found.append((taken, entry.end, entry.due, entry.number))
            taken = []
            continue
        taken.append(entry.offset)
        if len(taken) == {"per-event": 1, "every-3": 3, "every-7": 7}.get(rounds):
            found.append((taken, entry.offset + 1, entry.timestamp, 0))
            taken = []
    return found


def test_the_records_of_an_open_round_are_counted_and_take_the_memory_that_operators_are_told() -> None:
    """200 bytes each, says docs/operations, beside key and value."""
    cutting = cutter("every-60000")
    tracemalloc.start()
    try:
        for start in range(0, 50_000, 500):
            batch = range(start, start + 500)
            cutting.cut([Record(10**9 + n, 10**12 + n, None, b'{"items": ["%05d"]}' % n) for n in batch], 10)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cutting.open_records == 50_000
    assert 180 < held / 50_000 - len(b'{"items": ["12345"]}') < 220


entries = st.lists(st.booleans(), max_size=40)
kinds = st.sampled_from(["per-event", "every-3", "every-7", "ticks"])


@given(entries, kinds, st.lists(st.integers(0, 80), max_size=5))
def test_rounds_end_where_the_rule_says_however_the_log_is_cut(
    marks: list[bool], rounds: str, cuts: list[int]
) -> None:
    log = log_of(marks, rounds)
    expected = slowly(log, rounds)
    assert expected == told(cutter(rounds).cut(log, 1000))
    whole = cutter(rounds)
    bounds = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    found = [each for start, end in pairwise(bounds) for each in whole.cut(log[start:end], 1000)]
    assert expected == told(found)
    assert whole.next_offset == len(marks)


@given(entries, kinds, st.integers(0, 12))
def test_after_the_most_rounds_nothing_more_is_taken(marks: list[bool], rounds: str, most: int) -> None:
    log = log_of(marks, rounds)
    everything = told(cutter(rounds).cut(log, 1000))
    limited = cutter(rounds)
    assert everything[:most] == told(limited.cut(log, most))
    assert everything[most:] == told(limited.cut(log, 1000))


@given(entries, kinds, st.data())
def test_a_cutter_that_starts_at_the_end_of_a_round_goes_on(
    marks: list[bool], rounds: str, data: st.DataObject
) -> None:
    """The records of the open round are read again, as after a restart."""
    log = log_of(marks, rounds)
    found = cutter(rounds).cut(log, 1000)
    done = data.draw(st.integers(0, len(found)))
    last = found[done - 1] if done else Round([], 0, 0)
    again = cutter(rounds, last.next_offset, last.barrier)
    assert told(found[done:]) == told(again.cut(log, 1000))


def test_barriers_without_events_between_them_close_rounds_all_the_same() -> None:
    found = cutter("ticks").cut([*log_of([True], "ticks"), *barriers(1, 1, 1)[1:]], 1000)
    assert told(found) == [([0], 1, 1_000, 1), ([], 1, 2_000, 2), ([], 1, 3_000, 3)]
