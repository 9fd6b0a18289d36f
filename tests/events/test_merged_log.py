"""Events and barriers come in one order, whenever each of them was fetched."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stream_dp.events.barrier_chain import Barrier
from stream_dp.events.merged_log import LogEntry, MergedLog, merged, one_by_one
from stream_dp.events.record import Record
from tests.events.barrier_chains import barriers, chain, values

offsets = st.lists(st.integers(0, 30), unique=True).map(sorted)
"""Of events: what lies between them are marks of transactions and aborted records, which never come."""

ends = st.lists(st.integers(0, 34), max_size=8).map(sorted)


def records(places: Sequence[int]) -> list[Record]:
    return [Record(offset, 1_000, None, b"%d" % offset) for offset in places]


def slowly(places: Sequence[int], at: Sequence[int], start: int = 0) -> list[LogEntry]:
    """The log up to its last barrier: behind each one, only what is not before its end."""
    events, found = [record for record in records(places) if record.offset >= start], list[LogEntry]()
    for barrier in barriers(*at):
        found += [event for event in events if event.offset < barrier.end]
        events = [event for event in events if event.offset >= barrier.end]
        found.append(barrier)
    return found


def reached(places: Sequence[int], at: Sequence[int]) -> int:
    """Where a consumer stands that has read everything."""
    return max([*(place + 1 for place in places), *at, 0])


@given(offsets, ends, st.data())
def test_the_order_of_fetches_changes_nothing(places: list[int], at: list[int], data: st.DataObject) -> None:
    log, found, held = MergedLog(chain(), 0), list[LogEntry](), list(enumerate(values(*at)))
    position, end = 0, reached(places, at)
    while held or position < end:
        if held and (position == end or data.draw(st.booleans())):
            many = data.draw(st.integers(1, len(held)))
            log.add_barriers(held[:many])
            held = held[many:]
        else:
            after = data.draw(st.integers(position + 1, end))
            log.add_events(records([place for place in places if position <= place < after]), after)
            position = after
        found += one_by_one(log.take(data.draw(st.integers(0, 3))))
    found += one_by_one(log.take(len(at) + 1))
    assert slowly(places, at) == found
    assert [*found, *log.rest()] == [
        *found,
        *records([place for place in places if place >= max(at, default=0)]),
    ]
    assert (log.events, log.barriers) == (len(log.rest()), 0)


@given(offsets, ends, st.data())
def test_two_topics_read_one_after_the_other_give_the_same(
    places: list[int], at: list[int], data: st.DataObject
) -> None:
    end = reached(places, at)
    cuts = sorted({0, end, *data.draw(st.lists(st.integers(0, end)))})
    batches = [
        (after, records([place for place in places if before <= place < after]))
        for before, after in pairwise(cuts)
    ]
    found = list(merged(chain(), enumerate(values(*at)), lambda _: batches, 0))
    open_round = records([place for place in places if place >= max(at, default=0)])
    assert [*slowly(places, at), *open_round] == found


@given(offsets, ends, st.data())
def test_whoever_goes_on_behind_a_barrier_gets_the_rest(
    places: list[int], at: list[int], data: st.DataObject
) -> None:
    done = data.draw(st.integers(0, len(at)))
    start = barriers(*at)[done - 1] if done else None
    next_offset = start.end if start else 0
    log = MergedLog(chain(start=start), next_offset)
    log.add_barriers(enumerate(values(*at)))
    log.add_events(records(places), reached(places, at))
    whole = slowly(places, at)
    behind = whole.index(start) + 1 if start else 0
    assert whole[behind:] == [*one_by_one(log.take(len(at) + 1))]


def test_a_barrier_waits_for_the_position_and_not_for_a_record() -> None:
    log = MergedLog(chain(), 0)
    log.add_barriers(enumerate(values(5)))
    log.add_events(records([0, 2]), 3)
    assert log.take(9) == []
    log.add_events([], 4)
    assert log.take(9) == []
    log.add_events([], 5)  # offsets 3 and 4 hold an aborted record and its mark
    assert [*one_by_one(log.take(9))] == [*records([0, 2]), *barriers(5)]


def test_an_event_waits_for_its_barrier() -> None:
    log = MergedLog(chain(), 0)
    log.add_events(records([0, 1, 2, 3]), 4)
    assert (log.take(9), log.events) == ([], 4)
    log.add_barriers(enumerate(values(1)))
    assert ([*one_by_one(log.take(9))], log.events) == ([*records([0]), *barriers(1)], 3)


def test_events_that_end_below_a_barrier_close_nothing() -> None:
    found = list(merged(chain(), enumerate(values(2, 9)), lambda _: [(4, records([0, 1, 2, 3]))], 0))
    assert [each.number for each in found if isinstance(each, Barrier)] == [1]
    assert len(found) == 5
