"""Single releases of the past: the newest whole one at or before a round or a time, by few reads."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.releases import topic as releases_topic
from stream_dp.releases.lookup import release_at
from stream_dp.releases.topic import LONGEST_REPETITION
from tests.releases.topic_in_memory import FakeConsumer, Topic, found_at, merged, numbered, rounds


def test_history_is_found_without_reading_it(topic: Topic) -> None:
    long = topic(numbered(range(1, 60_001)), first=1_000_000)
    for start, asked in (
        ("latest", 60_000),
        (31_415, 31_415),
        (datetime.fromtimestamp(27_182, UTC), 27_183),
    ):
        long.reads = 0
        assert rounds(1, start) == [(1, asked)]
        assert long.reads < LONGEST_REPETITION / 4
        if not isinstance(start, str):
            assert getattr(release_at("fake:1", "flights.releases", start), "round", None) == asked


@pytest.mark.parametrize("parts", [1, 3])
def test_of_a_round_that_was_not_released_it_is_the_newest_release_before_it(
    topic: Topic, parts: int
) -> None:
    first = numbered(range(100, 1_001, 100), parts=parts) + numbered(range(1_023, 1_024), parts=parts)
    topic(first + numbered(range(100, 301, 100), epoch=2, parts=parts))
    for asked in range(1, 1_100):
        newest = 1_023 if asked >= 1_023 else min(asked, 1_000) // 100 * 100
        assert found_at(asked, epoch=1) == ((1, newest) if newest else None)
    assert [found_at(asked) for asked in (99, 100, 199, 300, 5_000)] == [
        None,
        (2, 100),
        (2, 100),
        (2, 300),
        (2, 300),
    ]
    assert found_at(5, epoch=3) is None
    assert rounds(2, 150) == [(2, 200), (2, 300)]


@given(st.data())
def test_it_is_the_newest_whole_one_whatever_was_released_and_sent_again(data: st.DataObject) -> None:
    """Any rounds in one or two parts, perhaps cut off at the end, with a stretch that a worker sends again."""
    random = st.lists(st.integers(1, 60), min_size=1, max_size=25, unique=True).map(sorted)
    even = st.builds(
        lambda step, count: list(range(step, step * count + 1, step)), st.integers(1, 4), st.integers(1, 15)
    )
    numbers = data.draw(random | even)
    parts = data.draw(st.integers(1, 2))
    cut = [part for number in numbers for part in numbered(range(number, number + 1), parts=parts)]
    sent = data.draw(st.integers(1, len(cut)))
    again = data.draw(st.integers(0, sent)) // parts * parts
    ends = data.draw(st.integers(again, sent))
    topic = cut[:sent] + (cut[again:] if ends == sent else cut[again:ends] + cut[sent // parts * parts :])
    wholes = {each.round for each in merged(topic)}
    with pytest.MonkeyPatch.context() as patch:
        consumer = FakeConsumer([msgspec.json.encode(each) for each in topic])
        patch.setattr(releases_topic, "read_only_consumer", lambda *_: consumer)
        for asked in range(1, 62):
            newest = max((number for number in wholes if number <= asked), default=None)
            assert found_at(asked) == (None if newest is None else (1, newest)), asked


@pytest.mark.parametrize("every", [100, 1_000])
def test_where_few_rounds_are_released_they_are_found_without_reading_all(topic: Topic, every: int) -> None:
    long = topic(numbered(range(every, 20_000 * every, every), parts=2))
    for asked in (every * 12_345 + 17, every * 12_345, every * 19_999 + 50):
        long.reads = 0
        assert found_at(asked) == (1, asked // every * every)
        assert long.reads < LONGEST_REPETITION / 4


def test_what_is_asked_for_and_not_there_is_none(topic: Topic) -> None:
    topic(numbered(range(10, 41)) + numbered(range(1, 3), epoch=2), first=9)
    assert release_at("fake:1", "flights.releases", 9, epoch=1) is None  # not kept
    assert release_at("fake:1", "flights.releases", datetime.fromtimestamp(-1, UTC)) is None
    assert release_at("fake:1", "flights.releases", datetime.fromtimestamp(5, UTC), epoch=2) is None
    late = release_at("fake:1", "flights.releases", datetime.fromtimestamp(9_999, UTC), epoch=1)
    assert late is not None
    assert (late.epoch, late.round) == (1, 40)
