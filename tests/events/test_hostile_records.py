"""What an event costs to decode grows with its size and not faster, whatever its bytes; what counts stays the same."""

import gc
import json
import math
import re
from collections.abc import Callable
from itertools import product
from time import thread_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.events import event
from stream_dp.events.bounding import EventBound
from stream_dp.events.event import DEEPEST_NESTING, BadRecord, decode_event
from stream_dp.events.record import LARGEST_VALUE
from tests.events.hostile_records import HostileRecord, hostile_records

_TIMES = 8
_LINEAR = 4.0  # times what as many bytes cost in small values, where a quadratic one takes 8 times as long
_TOO_LITTLE_TO_TELL = 0.032  # seconds

Outcome = list[str] | None


def counted(value: bytes) -> Outcome:
    """The items that count, None for a bad record."""
    try:
        return EventBound(4).admit(decode_event(value))
    except BadRecord:
        return None


def cost(decode: Callable[[bytes], object], value: bytes, times: int = 1, enough: float = math.inf) -> float:
    """Processor seconds of this thread alone, without a collection of what other tests have left behind.

    As soon as it is more than enough it is no longer repeated.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        began = thread_time()
        for _ in range(times):
            decode(value)
            if thread_time() - began > enough:
                break
        return thread_time() - began
    finally:
        if collecting:
            gc.enable()


def grows_linearly(
    decode: Callable[[bytes], object], record: HostileRecord, size: int, tries: int = 100
) -> bool:
    """Whether a value of eight times the size costs about as much as eight values, by the least of several tries.

    Both take about as long, so a machine that is slow for a while slows both.  One that takes next to nothing is not
    compared, nor is one that would not take more if its cost grew with the square of its size.
    """
    small = record.value(size)
    if cost(decode, small) * _TIMES**2 < _TOO_LITTLE_TO_TELL:
        return True
    large = record.value(_TIMES * size)
    small_costs: list[float] = []
    large_costs: list[float] = []
    for _ in range(tries):
        large_costs.append(cost(decode, large))
        if min(large_costs) < _TOO_LITTLE_TO_TELL:
            return True
        enough = math.inf if small_costs else large_costs[0] / _LINEAR
        small_costs.append(cost(decode, small, _TIMES, enough))
        if min(large_costs) < _LINEAR * min(small_costs):
            return True
    return False


def by_pattern(value: bytes) -> object:
    """How deep an event was found to be nested once: every quote that is never closed is read on from to the end."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', "", value.decode(errors="replace"), flags=re.DOTALL)
    marks = np.frombuffer(text.encode(), np.uint8)
    return int(np.cumsum((marks == ord("[")).astype(np.int64) - (marks == ord("]"))).max(initial=0))


def test_no_bytes_make_an_event_cost_more_than_its_size() -> None:
    grown = [record for record in hostile_records() if not grows_linearly(counted, record, 16 << 10)]
    assert not grown


def test_nor_do_they_up_to_the_largest_that_is_looked_into() -> None:
    some = list(hostile_records())[::17]
    grown = [record for record in some if not grows_linearly(counted, record, LARGEST_VALUE // 8 - 1024)]
    assert not grown


def test_a_pattern_that_reads_every_open_quote_to_the_end_is_found_out() -> None:
    open_quotes = HostileRecord(b"[" * 101, b'\\"', b"")
    assert open_quotes in hostile_records()
    assert not grows_linearly(by_pattern, open_quotes, 1 << 10, tries=3)
    assert grows_linearly(counted, open_quotes, 1 << 10)


def test_a_value_beyond_the_limit_is_bad_and_is_not_looked_into() -> None:
    event = b'{"items":["a"]}'
    assert counted(event.ljust(LARGEST_VALUE)) == ["a"]
    with pytest.raises(BadRecord, match="more than 1048576 bytes"):
        decode_event(event.ljust(LARGEST_VALUE + 1))
    with pytest.raises(BadRecord, match="more than 1048576 bytes"):
        decode_event(b"\xff" * (LARGEST_VALUE + 1))


def nesting(value: Any) -> int:
    """How many arrays and objects lie around what lies deepest, by the parsed value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(nesting, inner), default=0)


def plainly_counted(value: bytes, deepest: int) -> Outcome:
    """The same by definition, with Python's own decoder, for events that differ in an unread field only."""
    try:
        event = json.loads(value)
    except ValueError:
        return None
    return list(event["items"]) if nesting(event) <= deepest else None


def test_nesting_is_what_it_is_by_definition_for_all_short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes, escapes and brackets in every order; most of them are no JSON."""
    monkeypatch.setattr(event, "DEEPEST_NESTING", 3)
    valid = 0
    for length in range(8):
        for marks in product('"\\[],', repeat=length):
            value = f'{{"items":["a"],"x":{"".join(marks)}}}'.encode()
            expected = plainly_counted(value, 3)
            assert counted(value) == expected, value
            valid += expected is not None
    assert valid > 500


texts = st.text(st.sampled_from('"\\[]{}:,aé🍵'), max_size=8)
nested = st.recursive(
    texts | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(nested, st.integers(0, DEEPEST_NESTING), st.sampled_from(["[]", "{}"]))
def test_nesting_is_what_it_is_by_definition_near_the_limit(inner: Any, around: int, kind: str) -> None:
    opening, closing = ("[", "]") if kind == "[]" else ('{"[":', "}")
    text = f'{{"items":["a"],"x":{opening * around}{json.dumps(inner)}{closing * around}}}'
    assert counted(text.encode()) == plainly_counted(text.encode(), DEEPEST_NESTING)
