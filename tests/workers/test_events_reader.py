"""What a worker reads of a log without barriers, however the broker's answers cut it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.config.settings import Settings
from stream_dp.events.records import Records
from stream_dp.pipeline.pipeline import Position
from stream_dp.workers.events_reader import EventsReader, LogEnds

SETTINGS = Settings(stream="s", batch_rounds=4)
PLACE = TopicPartition(SETTINGS.events, 0)


class Consumer:
    """A broker of a log that grows: at each answer it ends at the next of `ends`, and at most `size` events come.

    Between events there may be offsets of aborted ones, which nobody gets.
    """

    def __init__(self, offsets: list[int], ends: list[int], size: int) -> None:
        self._offsets, self._ends, self._size = offsets, ends, size
        self._at = 0

    def assign(self, places: list[TopicPartition]) -> None:
        assert places == [PLACE]

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at = offset

    async def position(self, place: TopicPartition) -> int:
        return self._at

    def last_stable_offset(self, place: TopicPartition) -> int:
        return self._ends[0]

    async def records_up_to(
        self, ends: Mapping[TopicPartition, int], timeout_ms: int, headers: bool
    ) -> dict[TopicPartition, list[Records]]:
        assert ends[PLACE] <= self._at + SETTINGS.batch_rounds, (
            "what nobody wants yet stays as it was fetched"
        )
        if len(self._ends) > 1:
            self._ends.pop(0)
        came = [offset for offset in self._offsets if self._at <= offset < self._ends[0]][: self._size]
        self._at = came[-1] + 1 if len(came) == self._size else max(self._at, self._ends[0])
        number = len(came)
        columns = came, [0] * number, [None] * number, [b"{}"] * number
        return {PLACE: [Records(0, *columns)]} if came else {}


async def segments(consumer: Any, until: int, most: int) -> dict[int, list[int]]:
    """The offsets that are given from one place where a batch of releases ends to the next, by where the log ended."""
    reader = EventsReader(SETTINGS, consumer, Position(0), None, LogEnds((until,)))
    reader.begin()
    found: dict[int, list[int]] = {}
    end, begins = 0, True
    while not await reader.caught_up():
        begins = begins or await reader.at_segment_end()
        parts: list[Any] = await reader.read(most)
        given = [offset for part in parts for offset in part.offsets]
        assert len(given) <= most
        if begins and given:
            end, begins = consumer.last_stable_offset(PLACE), False
        if given:
            found.setdefault(end, []).extend(given)
    return found


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(1, 60)), st.integers(1, 9), st.integers(1, 5))
def test_a_batch_ends_where_the_log_did_when_it_began(
    offsets: set[int], ends: set[int], size: int, most: int
) -> None:
    log = sorted(offsets)
    found = asyncio.run(segments(Consumer(log, [0, *sorted(ends), 61], size), 61, most))
    first, expected = 0, {}
    for end in sorted(found):
        expected[end] = [offset for offset in log if first <= offset < end]
        first = end
    assert found == expected
    assert [offset for part in found.values() for offset in part] == log
