"""Whole releases, in order, each once, from whatever parts a crash leaves in the topic."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stream_dp
from stream_dp.releases import topic as releases_topic
from stream_dp.releases.lookup import release_at
from stream_dp.releases.release import Release
from stream_dp.releases.subscription import Subscription
from stream_dp.releases.topic import LONGEST_REPETITION, BadPosition
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease
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
    releases = WholeReleases(after)
    return [whole for part in parts if (whole := releases.add(part)) is not None]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), min_size=1, max_size=8))
def test_parts_become_the_release_they_were_cut_from(shapes: list[tuple[int, int]]) -> None:
    wholes = [
        release(number, dict.fromkeys("abcdefg"[:labels], 300))
        for number, (labels, _) in enumerate(shapes, start=1)
    ]
    cut = [part for whole, (_, parts) in zip(wholes, shapes, strict=True) for part in parts_of(whole, parts)]
    assert merged(cut) == wholes


@given(st.integers(1, 11), st.integers(0, 11))
def test_what_a_crash_repeats_is_dropped(sent: int, checkpointed: int) -> None:
    """A worker died after `sent` records and its successor sent again everything after `checkpointed`."""
    wholes = [release(number, {"a": 300, "b": 200 + number}) for number in range(1, 5)]
    cut = [part for whole in wholes for part in parts_of(whole, 3)]
    first_again = min(sent, checkpointed) // 3 * 3
    assert merged(cut[:sent] + cut[first_again:]) == wholes


def test_a_release_without_its_first_part_is_left_out() -> None:
    first, second = (release(number, {"a": 300, "b": 200}) for number in (1, 2))
    assert merged([*parts_of(first, 2)[1:], *parts_of(second, 2)]) == [second]


def test_releases_before_the_asked_one_are_left_out_and_a_new_epoch_begins_again_at_round_1() -> None:
    old = [release(number, {}) for number in (1, 2, 3)]
    new = [msgspec.structs.replace(each, epoch=2) for each in old]
    assert merged(old + new, after=(1, 2)) == [old[2], *new]


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


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Makes the topic that every subscription reads from these releases."""

    def make(releases: list[Release], first: int = 0) -> FakeConsumer:
        consumer = FakeConsumer([msgspec.json.encode(each) for each in releases], first)
        monkeypatch.setattr(releases_topic, "read_only_consumer", lambda *_: consumer)
        return consumer

    return make


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


def test_the_package_offers_subscribe_and_stays_light() -> None:
    program = (
        "import sys, stream_dp; before = set(sys.modules); import stream_dp.releases.topic; "
        "from stream_dp import subscribe; "
        "assert callable(stream_dp.subscribe); "
        "assert not before & {'kafka', 'numpy', 'pyarrow', 'msgspec', 'redis', 'asyncio'}; "
        "assert {'kafka', 'numpy'} <= set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_release_explains_itself() -> None:
    whole = msgspec.json.decode(msgspec.json.encode(release(7, {"tea": 400, "milk": 300})), type=WholeRelease)
    assert whole.histogram == {"tea": 400, "milk": 300}
    assert whole.interval("milk") == pytest.approx((300 - 1.95996 * 15.92, 300 + 1.95996 * 15.92), abs=1e-3)
    assert whole.interval("tea", 0.5) == pytest.approx(
        (400 - 0.67449 * 15.92, 400 + 0.67449 * 15.92), abs=1e-3
    )
    with pytest.raises(KeyError):
        whole.interval("tee")
    with pytest.raises(ValueError, match="between 0 and 1"):
        whole.interval("tea", 95)


@pytest.mark.parametrize("parts", [1, 3])
def test_every_place_to_begin(topic: Topic, parts: int) -> None:
    topic(numbered(range(1, 41), parts=parts) + numbered(range(1, 21), epoch=2, parts=parts))
    second = parts  # the time of the last part of the first release, in seconds
    assert rounds(2, "earliest") == [(1, 1), (1, 2)]
    assert rounds(1, "latest") == rounds(1) == [(2, 20)]
    assert rounds(3, 7) == [(2, 7), (2, 8), (2, 9)]
    assert rounds(2, datetime.fromtimestamp(40 * second - 0.5, UTC)) == [(1, 40), (2, 1)]
    assert rounds(1, 40, epoch=1) == [(1, 40)]
    assert rounds(1, datetime.fromtimestamp(5 * second - 1, UTC)) == [(1, 5)]
    assert rounds(1, "latest", epoch=1) == [(1, 40)]
    assert rounds(20, "earliest", epoch=2) == [(2, number) for number in range(1, 21)]
    assert rounds(1, datetime.fromtimestamp(-5, UTC)) == [(1, 1)]


def test_a_time_without_a_zone_is_utc(topic: Topic) -> None:
    topic(numbered(range(1, 41)))
    assert rounds(1, datetime(1970, 1, 1, 0, 0, 9)) == rounds(1, datetime.fromtimestamp(9, UTC)) == [(1, 10)]


def test_a_release_repeated_after_newer_rounds_is_dropped_wherever_one_begins(topic: Topic) -> None:
    """A worker that slept wakes up and sends rounds 11 to 15 again; the live one goes on with 41."""
    repeated = numbered(range(1, 41)) + numbered(range(11, 16))
    topic(repeated)
    assert rounds(1, "latest") == [(1, 40)]
    at_40 = datetime.fromtimestamp(42, UTC)
    assert getattr(release_at("fake:1", "flights.releases", at_40), "round", None) == 40
    for last in (41, 45, 60):  # where a search by halves alone finds all rounds, it has been lucky
        topic(repeated + numbered(range(41, last + 1)))
        everything = [(1, number) for number in range(1, last + 1)]
        assert rounds(last, "earliest") == everything
        for start in range(1, last + 1):
            assert rounds(last + 1 - start, start) == everything[start - 1 :]
            assert getattr(release_at("fake:1", "flights.releases", start), "round", None) == start
            position = f"1.{start}.{'00' * 16}"
            assert rounds(last - start, position=position) == everything[start:]


def test_one_who_begins_in_the_middle_of_a_repetition_misses_nothing(topic: Topic) -> None:
    """Rounds 91 to 95 come again in the middle of the topic, where a search by halves looks first."""
    topic(numbered(range(1, 101)) + numbered(range(91, 96)) + numbered(range(101, 200)))
    for start in range(88, 102):
        for epoch in (None, 1):  # with one that is named, the search has nothing to guess from
            expected = [(1, number) for number in range(start, 200)]
            assert rounds(200 - start, start, epoch=epoch) == expected
        assert getattr(release_at("fake:1", "flights.releases", start), "round", None) == start


def test_a_search_that_looks_at_the_end_alone_would_be_caught(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic(numbered(range(1, 41)) + numbered(range(11, 16)))
    monkeypatch.setattr(releases_topic, "LONGEST_REPETITION", 0)
    assert rounds(1, "latest") != [(1, 40)]


def test_parts_torn_by_a_crash_are_completed_or_left_out(topic: Topic) -> None:
    whole = numbered(range(1, 6), parts=3)
    topic(whole[:14])
    assert rounds(4, "earliest") == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert rounds(1, "latest") == [(1, 4)]
    assert found_at(5) == found_at(4) == (1, 4)
    topic(whole[:14] + whole[12:])
    [last] = islice(stream_dp.subscribe("fake:1", "flights", 5), 1)
    assert last.histogram == {"0": 900, "1": 899, "2": 898}


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


def test_a_stored_position_goes_on_after_it(topic: Topic) -> None:
    topic(numbered(range(1, 41)) + numbered(range(1, 21), epoch=2, nonce="22" * 16))
    with stream_dp.subscribe("fake:1", "flights", "earliest") as subscription:
        seen = [next(subscription) for _ in range(40)]
    assert rounds(2, position=seen[16].position) == [(1, 18), (1, 19)]
    assert rounds(1, position=seen[-1].position) == [(2, 1)]


def test_a_position_of_another_topic_is_refused(topic: Topic) -> None:
    position = f"1.17.{'00' * 16}"
    topic(numbered(range(1, 41), nonce="11" * 16))
    with pytest.raises(BadPosition, match="made anew"):
        rounds(1, position=position)
    topic(numbered(range(1, 17)))
    with pytest.raises(BadPosition, match="truncated"):
        rounds(1, position=position)
    consumer = topic([])
    with pytest.raises(BadPosition, match="truncated"):
        rounds(1, position=position)
    assert consumer.is_closed
    with pytest.raises(BadPosition, match="no position"):
        rounds(1, position="17")


def test_a_position_whose_release_is_forgotten_by_now_goes_on_with_what_is_kept(topic: Topic) -> None:
    topic(numbered(range(30, 41)), first=29)
    assert rounds(1, position=f"1.17.{'00' * 16}") == [(1, 30)]


@pytest.mark.parametrize(
    ("asked", "warned"),
    [
        ({"start": 30}, False),
        ({"start": "earliest"}, False),
        ({"start": "latest"}, False),
        ({"start": datetime.fromtimestamp(3, UTC)}, False),
        ({"position": f"1.29.{'00' * 16}"}, False),
        ({"start": 29}, True),
        ({"start": datetime.fromtimestamp(-3, UTC)}, True),
        ({"position": f"1.17.{'00' * 16}"}, True),
    ],
)
def test_a_subscriber_is_told_where_history_begins(
    topic: Topic, caplog: pytest.LogCaptureFixture, asked: dict[str, Any], warned: bool
) -> None:
    topic(numbered(range(30, 41)), first=29)
    with stream_dp.subscribe("fake:1", "flights", **asked) as subscription:
        assert next(subscription).round in (30, 33, 40)
    told = "what was asked for is no longer kept: its history begins with round 30 of epoch 1"
    assert (told in caplog.text) == warned


def test_async_gives_the_same(topic: Topic) -> None:
    topic(numbered(range(1, 41), parts=2))

    async def first(count: int) -> list[int]:
        found = []
        async with stream_dp.subscribe("fake:1", "flights", "earliest") as subscription:
            async for each in subscription:
                found.append(each.round)
                if len(found) == count:
                    break
        return found

    assert asyncio.run(first(40)) == list(range(1, 41))


def test_a_task_that_is_cancelled_loses_no_release(topic: Topic) -> None:
    consumer = topic(numbered(range(1, 3)))

    async def scenario() -> list[int]:
        subscription = stream_dp.subscribe("fake:1", "flights", "earliest")
        found = [(await anext(subscription)).round, (await anext(subscription)).round]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(subscription), 0.01)
        consumer.values += [msgspec.json.encode(each) for each in numbered(range(3, 5))]
        found += [(await anext(subscription)).round, (await anext(subscription)).round]
        await asyncio.to_thread(subscription.close)
        return found

    assert asyncio.run(scenario()) == [1, 2, 3, 4]
    assert consumer.is_closed


def test_wrong_use_says_what_is_right(topic: Topic) -> None:
    topic(numbered(range(1, 3)))
    with pytest.raises(ValueError, match="earliest, latest, a round or a datetime"):
        rounds(1, "newest")
    with Subscription("fake:1", "flights.releases", "latest") as subscription:
        pass
    with pytest.raises(ValueError, match="closed"):
        next(subscription)


FOREIGN = (
    b"",
    b'{"round": 3}',
    b"\xff" * 40,
    b"[" * 100_000,
    msgspec.json.encode(msgspec.structs.replace(release(99, {"a": 300}), stream="another", epoch=9)),
)


def add_foreign(consumer: FakeConsumer, where: dict[int, int]) -> None:
    """Put so many records that are no releases of the stream before these places among those that are."""
    values: list[bytes] = []
    for place, value in enumerate([*consumer.values, b""]):
        values += [FOREIGN[number % len(FOREIGN)] for number in range(where.get(place, 0))]
        values.append(value)
    consumer.values = values[:-1]


@pytest.mark.parametrize("parts", [1, 3])
def test_records_that_are_no_releases_of_the_stream_are_passed_over(
    topic: Topic, parts: int, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = topic(numbered(range(1, 41), parts=parts) + numbered(range(1, 21), epoch=2, parts=parts))
    add_foreign(consumer, {0: 3, 7: 1, 20 * parts: 9, 40 * parts: 2, 60 * parts: 11})
    assert rounds(60, "earliest") == [(1, n) for n in range(1, 41)] + [(2, n) for n in range(1, 21)]
    assert rounds(1, "latest") == [(2, 20)]
    for number in range(1, 21):
        assert rounds(1, number) == [(2, number)]
        assert found_at(number, 1) == (1, number)
    assert "no release of stream 'flights'" in caplog.text


@pytest.mark.parametrize("many", [LONGEST_REPETITION + 10, 3 * LONGEST_REPETITION])
def test_more_foreign_records_at_the_end_than_a_worker_repeats_hide_no_release(
    topic: Topic, many: int
) -> None:
    consumer = topic(numbered(range(1, 41), parts=2))
    add_foreign(consumer, {80: many})
    assert rounds(1, "latest") == [(1, 40)]
    assert found_at(40) == (1, 40)
    assert found_at(41) == (1, 40)


def test_a_topic_of_nothing_but_foreign_records_holds_no_release(topic: Topic) -> None:
    consumer = topic([])
    add_foreign(consumer, {0: 50})
    assert found_at(7) is None
    assert found_at(datetime.fromtimestamp(9, UTC)) is None
