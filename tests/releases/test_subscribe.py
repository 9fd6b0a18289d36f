"""Whole releases, in order, each once, from wherever a subscriber begins."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import stream_dp
from stream_dp.cli import app
from stream_dp.releases import topic as releases_topic
from stream_dp.releases.lookup import release_at
from stream_dp.releases.subscription import Subscription
from stream_dp.releases.topic import BadPosition
from stream_dp.releases.whole_release import WholeRelease
from tests.example_releases import release
from tests.releases.topic_in_memory import Topic, found_at, numbered, rounds


def test_the_package_offers_subscribe_and_stays_light() -> None:
    program = (
        "import sys, stream_dp; before = set(sys.modules); import stream_dp.releases.topic; "
        "from stream_dp import subscribe; "
        "assert callable(stream_dp.subscribe); "
        "assert not before & {'kafka', 'numpy', 'pyarrow', 'msgspec', 'redis', 'asyncio'}; "
        "assert 'kafka' in sys.modules"
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
def test_every_place_to_end(topic: Topic, parts: int) -> None:
    topic(numbered(range(1, 41), parts=parts) + numbered(range(1, 21), epoch=2, parts=parts))
    both = [(1, number) for number in range(1, 41)] + [(2, number) for number in range(1, 21)]
    assert rounds(1_000, "earliest", until="latest") == both
    assert rounds(1_000, "earliest", until="latest", epoch=1) == both[:40]
    moment = datetime.fromtimestamp(41 * parts - 1, UTC)  # of the last part of the release at index 40
    assert rounds(1_000, "earliest", until=moment) == both[:41]
    assert rounds(1_000, 3, until=moment) == []
    assert rounds(1_000, "latest", until="latest") == both[-1:]
    with pytest.raises(ValueError, match="until is latest or a datetime"):
        rounds(1, until="now")


def test_an_iteration_until_the_latest_of_nothing_ends_at_once(topic: Topic) -> None:
    topic([])
    assert rounds(1, until="latest") == []


def test_a_history_is_one_table_with_the_last_release_of_each_stretch(topic: Topic) -> None:
    first, second = ({"tea": 300 + number, "milk": 200} for number in (0, 1_000))
    wholes = [release(number, first | {"tea": 300 + number}) for number in range(1, 8)]
    wholes += [
        msgspec.structs.replace(release(number, second), epoch=2, nonce="22" * 16) for number in (1, 2)
    ]
    topic(
        [
            msgspec.structs.replace(each, ts=f"2026-01-31T12:00:{5 * at:02}.000Z")
            for at, each in enumerate(wholes)
        ]
    )
    found = stream_dp.history("fake:1", "flights", every="10s", labels=["tea"])
    assert found.column_names == ["time", "epoch", "round", "label", "count", "low", "high", "found"]
    assert [(row["epoch"], row["round"], row["count"]) for row in found.to_pylist()] == [
        (1, 2, 302),
        (1, 4, 304),
        (1, 6, 306),
        (1, 7, 307),
        (2, 1, 1_300),
        (2, 2, 1_300),
    ]
    row = found.to_pylist()[0]
    assert (row["time"], row["label"]) == (datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC), "tea")
    assert row["low"] < row["count"] < row["high"]
    by_rounds = stream_dp.history("fake:1", "flights", every=4).to_pylist()
    assert [(each["epoch"], each["round"], each["label"]) for each in by_rounds] == [
        *((epoch, number, label) for epoch, number in ((1, 3), (1, 7), (2, 2)) for label in ("tea", "milk"))
    ]
    assert stream_dp.history("fake:1", "flights", until=datetime(1960, 1, 1)).num_rows == 0


def test_it_is_exported_as_a_file(topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.cli.export.require_kafka", lambda address: None)
    topic([release(number, {"tea": 300 + number, "milk": 200}) for number in range(1, 8)])
    given = ["export", "--stream", "flights", "--kafka", "fake:1", "--every", "4"]
    result = CliRunner().invoke(app, [*given, "--parquet", str(tmp_path / "found.parquet")])
    assert result.exit_code == 0, result.output
    found = pyarrow.parquet.read_table(tmp_path / "found.parquet")
    assert found.equals(stream_dp.history("fake:1", "flights", every=4))
    assert found.schema.field("time").type == pyarrow.timestamp("ms", "UTC")
    nowhere = CliRunner().invoke(app, [*given, "--parquet", str(tmp_path / "none" / "found.parquet")])
    assert (nowhere.exit_code, "error" in nowhere.output) == (2, True)


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


def test_a_stored_position_goes_on_after_it(topic: Topic) -> None:
    topic(numbered(range(1, 41)) + numbered(range(1, 21), epoch=2, nonce="22" * 16))
    with stream_dp.subscribe("fake:1", "flights", "earliest") as subscription:
        seen = [next(subscription) for _ in range(40)]
    assert rounds(2, position=seen[16].position) == [(1, 18), (1, 19)]
    assert rounds(1, position=seen[-1].position) == [(2, 1)]


def test_a_position_of_another_topic_is_refused(topic: Topic) -> None:
    position = f"1.17.{'00' * 16}"
    topic(numbered(range(1, 41), nonce="11" * 16))
    with pytest.raises(BadPosition, match="re-created"):
        rounds(1, position=position)
    topic(numbered(range(1, 17)))
    with pytest.raises(BadPosition, match="truncated"):
        rounds(1, position=position)
    consumer = topic([])
    with pytest.raises(BadPosition, match="truncated"):
        rounds(1, position=position)
    assert consumer.is_closed
    with pytest.raises(BadPosition, match="not a position"):
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
