"""What of an event may enter any state: compared with dictionaries, for both privacy units."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.bounding import EventBound
from stream_dp.records import Event
from tests import naive
from tests.strategies import labels


@pytest.mark.parametrize(
    ("items", "items_per_event", "expected"),
    [
        (["a", "b", "c"], 2, ["a", "b"]),
        (["b", "b", "a", "b", "c"], 2, ["b", "a"]),
        (["a", "a", "a"], 2, ["a"]),
        ([], 3, []),
        (["c", "a"], 5, ["c", "a"]),
    ],
)
def test_the_first_distinct_items_of_an_event_are_admitted(
    items: list[str], items_per_event: int, expected: list[str]
) -> None:
    assert expected == EventBound(items_per_event).admit(Event(items))


@settings(deadline=None, derandomize=True)
@given(st.lists(labels, max_size=12), st.integers(1, 5))
def test_the_event_bound_equals_the_slow_implementation(items: list[str], items_per_event: int) -> None:
    assert naive.first_distinct(items, items_per_event) == EventBound(items_per_event).admit(Event(items))
