"""A releases topic in memory, and what is found in it."""

from collections.abc import Callable
from datetime import datetime
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import Any

import msgspec

import stream_dp
from stream_dp.releases.lookup import release_at
from stream_dp.releases.release import Release, decode_release
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import decode_whole_release
from tests.example_releases import release


def parts_of(whole: Release, parts: int) -> list[Release]:
    """The release cut into parts, as the worker cuts a large one."""
    cuts = [len(whole.labels) * number // parts for number in range(parts + 1)]
    return [
        msgspec.structs.replace(
            whole, part=number, parts=parts, labels=whole.labels[start:end], counts=whole.counts[start:end]
        )
        for number, (start, end) in enumerate(pairwise(cuts), start=1)
    ]


def merged(parts: list[Release], after: tuple[int, int] = (0, 0)) -> list[Release]:
    """What a reader makes of these parts, which it meets as bytes."""
    releases = WholeReleases(after)
    wholes = [releases.add(decode_whole_release(msgspec.json.encode(part))) for part in parts]
    return [decode_release(msgspec.json.encode(whole)) for whole in wholes if whole is not None]


class FakeConsumer:
    """One partition held in memory, with the part of kafka-python's consumer that reading releases needs.

    Record i was published at second i and stands at offset `first` + i; each poll gives a few.
    """

    def __init__(self, values: list[bytes], first: int = 0) -> None:
        self.values, self.first, self.reads, self.is_closed = values, first, 0, False
        self._empty_polls = 0
        self._next = first

    def assign(self, _: object) -> None: ...

    def close(self) -> None:
        self.is_closed = True

    def partitions_for_topic(self, _: str) -> set[int]:
        return {0}

    def beginning_offsets(self, partitions: list[Any], _: int) -> dict[Any, int]:
        return dict.fromkeys(partitions, self.first)

    def end_offsets(self, partitions: list[Any], _: int) -> dict[Any, int]:
        return dict.fromkeys(partitions, self.first + len(self.values))

    def offsets_for_times(self, times: dict[Any, int], _: int) -> dict[Any, Any]:
        [(partition, milliseconds)] = times.items()
        assert milliseconds >= 0, "the protocol has other meanings for these"
        later = -(-milliseconds // 1000)
        known = later < len(self.values)
        return {partition: SimpleNamespace(offset=self.first + later) if known else None}

    def seek(self, partition: object, offset: int) -> None:
        self._partition, self._next = partition, max(offset, self.first)

    def position(self, _: object, timeout_ms: int) -> int:
        return self._next

    def poll(self, _: int, max_records: int = 100) -> dict[Any, list[Any]]:
        start = self._next - self.first
        found = self.values[start : start + max_records]
        self.reads += len(found)
        self._empty_polls = 0 if found else self._empty_polls + 1
        assert self._empty_polls < 1_000, "somebody waits for a release that does not come"
        records = [SimpleNamespace(offset=self._next + i, value=value) for i, value in enumerate(found)]
        self._next += len(found)
        return {self._partition: records}


Topic = Callable[..., FakeConsumer]


def numbered(rounds: range, epoch: int = 1, parts: int = 1, nonce: str = "00" * 16) -> list[Release]:
    """Releases with a label per part, cut into parts."""
    counts = {str(part): 900 - part for part in range(parts)}
    wholes = [msgspec.structs.replace(release(number, counts), epoch=epoch, nonce=nonce) for number in rounds]
    return [part for whole in wholes for part in parts_of(whole, parts)]


def rounds(count: int, *arguments: Any, **options: Any) -> list[tuple[int, int]]:
    """The first releases that a subscriber gets, as (epoch, round)."""
    with stream_dp.subscribe("fake:1", "flights", *arguments, **options) as subscription:
        return [(each.epoch, each.round) for each in islice(subscription, count)]


def found_at(at: int | datetime, epoch: int | None = None) -> tuple[int, int] | None:
    """What `release_at` finds, as (epoch, round)."""
    found = release_at("fake:1", "flights.releases", at, epoch)
    return None if found is None else (found.epoch, found.round)
