"""Many records at once are what they are one by one."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.events.bounding import EventBound, UserBound
from stream_dp.events.event import DEEPEST_NESTING, BadRecord, Event, decode_event, decode_events
from stream_dp.events.record import LARGEST_VALUE, Record
from stream_dp.events.records import Records

parts = st.none() | st.binary(max_size=3)
headers = st.just(()) | st.just((("name", b"value"), ("name", None)))


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    offsets = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=9)))
    return [
        Record(each, draw(st.integers(0, 9)), draw(parts), draw(parts), 3, draw(headers)) for each in offsets
    ]


@given(runs(), st.integers(0, 9), st.integers(0, 9))
def test_columns_hold_what_their_records_do(records: list[Record], start: int, end: int) -> None:
    columns = Records.of(records)
    assert list(columns) == records
    assert [columns[place] for place in range(len(columns))] == records
    assert list(columns[start:end]) == records[start:end]
    if 0 < start < len(records):
        assert list(Records.joined([columns[:start], columns[start:]])) == records
    assert columns.ascends_from(records[0].offset)
    assert not columns.ascends_from(records[0].offset + 1)
    assert not Records.of([*records, records[-1]]).ascends_from(0)


def test_columns_are_of_one_partition() -> None:
    with pytest.raises(ValueError, match="several partitions"):
        Records.of([Record(0, 0, None, None, 0), Record(0, 0, None, None, 1)])


VALUES = [
    b'{"items":["a"]}',
    b'{"items":["a","b"],"user":"u"}',
    b'{"items":["\xc3\xa9"]}',
    None,
    b"",
    b'{"items":["a"]',  # and the next one: what one record begins no other one ends
    b"}",
    b'{"items":["a"]}\n{"items":["b"]}',
    b'{"items":[]}',
    b'{"items":["a"],"x":"\xff"}',
    b'{"items":["a"],"x":"\xc3',
    b'\xa9"}',
    b'{"items":["a"],"x":' + b"[" * DEEPEST_NESTING + b"]" * DEEPEST_NESTING + b"}",
    b'{"items":["a"],"x":' + b"[" * (DEEPEST_NESTING - 1) + b"]" * (DEEPEST_NESTING - 1) + b"}",
    b'{"items":["a"],"x":"' + b"x" * LARGEST_VALUE + b'"}',
]


@given(st.lists(st.sampled_from(VALUES), max_size=4))
def test_many_events_are_decoded_as_each_is_alone(values: list[bytes | None]) -> None:
    alone: list[Event] = []
    with suppress(BadRecord):
        alone += map(decode_event, values)
    if len(alone) == len(values):
        assert decode_events(values) == alone
    else:
        with pytest.raises(BadRecord):
            decode_events(values)


events = st.lists(
    st.builds(Event, st.lists(st.sampled_from("abc"), max_size=4), st.sampled_from("uv")), max_size=6
)


@given(events, st.integers(1, 3))
def test_many_events_are_bounded_as_each_is_alone(many: list[Event], most: int) -> None:
    for bound, other in (
        (EventBound(most), EventBound(most)),
        (UserBound(most, bytes(32), bytes(16)), UserBound(most, bytes(32), bytes(16))),
    ):
        assert bound.admit_all(many) == [item for event in many for item in other.admit(event)]
        assert bound.pairs == other.pairs


def test_of_many_events_nothing_is_remembered_where_one_names_no_user() -> None:
    bound = UserBound(2, bytes(32), bytes(16))
    with pytest.raises(BadRecord):
        bound.admit_all([Event(["a"], "u"), Event(["a"])])
    assert not bound.pairs
