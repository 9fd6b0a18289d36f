"""Records of others in the releases topic are passed over."""

from datetime import UTC, datetime

import msgspec
import pytest

from stream_dp.releases.topic import LONGEST_REPETITION
from tests.example_releases import release
from tests.releases.topic_in_memory import FakeConsumer, Topic, found_at, numbered, rounds

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
    assert "not a release of stream 'flights'" in caplog.text


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
