"""Several partitions are read in segments, which end where the partitions ended when they began."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stream_dp.sinks.segments import Reading, Segments


def records(partition: int, *offsets: int) -> list[Any]:
    return [SimpleNamespace(partition=partition, offset=offset) for offset in offsets]


def taken(segments: Segments, *readings: Reading) -> list[tuple[list[tuple[int, int]], bool]]:
    return [
        ([(record.partition, record.offset) for record in found], over)
        for found, over in segments.take(readings)
    ]


def at(position: int, end: int | None, is_ahead: bool = False) -> Reading:
    return Reading(end, position, is_ahead)


def test_nothing_begins_a_segment_but_a_record() -> None:
    assert taken(Segments(2), at(0, 5), at(0, 5)) == []


def test_a_segment_is_over_when_all_partitions_are_read_to_where_they_ended() -> None:
    segments = Segments(2)
    segments.add(0, records(0, 0, 1))
    assert taken(segments, at(2, 3), at(0, 1)) == [([(0, 0), (0, 1)], False)]
    segments.add(1, records(1, 0))
    assert taken(segments, at(2, 3), at(1, 1)) == [([(1, 0)], False)]
    segments.add(0, records(0, 2))
    assert taken(segments, at(3, 3), at(1, 1)) == [([(0, 2)], True)]


def test_what_came_later_waits_for_the_next_segment() -> None:
    segments = Segments(2)
    segments.add(0, records(0, 0))
    assert taken(segments, at(1, 2), at(0, 0)) == [([(0, 0)], False)]
    segments.add(1, records(1, 0, 1))
    assert taken(segments, at(1, 2), at(2, 2)) == [([], False)]
    assert segments.keeps_back(1)
    segments.add(0, records(0, 1))
    both = taken(segments, at(2, 2), at(2, 2))
    assert both == [([(0, 1)], True), ([(1, 0), (1, 1)], True)]
    assert not segments.keeps_back(1)


def test_a_partition_far_ahead_is_not_waited_for() -> None:
    segments = Segments(2)
    segments.add(1, records(1, 0))
    assert taken(segments, at(50, 90, is_ahead=True), at(1, 1)) == [([(1, 0)], True)]


def test_nothing_begins_before_the_broker_has_told_all_ends() -> None:
    segments = Segments(2)
    segments.add(0, records(0, 0))
    assert taken(segments, at(1, 1), at(0, None)) == []
    assert taken(segments, at(1, 1), at(0, 0)) == [([(0, 0)], True)]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5)), max_size=40))
def test_where_fetches_end_does_not_show(fetches: list[tuple[int, int]]) -> None:
    """A topic that does not grow is one segment, whatever pieces it comes in."""
    segments, ends, position = Segments(2), (20, 30), [0, 0]
    found: list[tuple[int, int]] = []
    for partition, size in [*fetches, (0, 20), (1, 30)]:
        start = position[partition]
        position[partition] = min(ends[partition], start + size)
        segments.add(partition, records(partition, *range(start, position[partition])))
        for piece, over in taken(segments, at(position[0], ends[0]), at(position[1], ends[1])):
            found += piece
            assert over == (position == [*ends])
    assert sorted(found) == [(0, offset) for offset in range(20)] + [(1, offset) for offset in range(30)]
