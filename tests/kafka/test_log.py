"""Making topics, and reading them: somebody else may be faster, and nobody is held for ever."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from kafka import TopicPartition
from kafka.errors import (
    InvalidTopicError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from stream_dp.kafka import log


class Admin:
    """An admin client of a broker on which others make every topic first; it lists them after so many looks."""

    def __init__(self, hidden_for: int) -> None:
        self.hidden_for, self.asked = hidden_for, 0

    def close(self) -> None: ...

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        self.hidden_for -= 1
        hidden = {"shop.events"} if self.hidden_for >= 0 else set()
        unknown = UnknownTopicOrPartitionError.errno
        return [{"name": each, "error_code": unknown if each in hidden else 0} for each in topics]

    def create_topics(self, topics: dict[str, Any], **_: object) -> None:
        assert list(topics) == ["shop.events"]
        self.asked += 1
        raise TopicAlreadyExistsError


def test_a_topic_that_somebody_else_makes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin(hidden_for=3)
    monkeypatch.setattr(log, "admin_client", lambda _: admin)
    monkeypatch.setattr(log, "_CREATE_SECONDS", 600.0)
    log.create_topics("fake:1", "shop.events", "shop.releases")
    assert admin.asked == 3


def test_a_topic_that_is_never_listed_is_given_up_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "admin_client", lambda _: Admin(hidden_for=10**9))
    monkeypatch.setattr(log, "_CREATE_SECONDS", 0.1)
    with pytest.raises(KafkaTimeoutError, match=r"shop\.events cannot be created.* give this user the right"):
        log.create_topics("fake:1", "shop.events", "shop.releases")


class Told:
    """An admin client that is told of topics one by one, each with an error of its own, and never lists them all."""

    ERRORS: ClassVar = {
        "shop.events": 0,
        "shop.releases": LeaderNotAvailableError.errno,
        "shop.epochs": UnknownTopicOrPartitionError.errno,
        "shop.ledger": TopicAuthorizationFailedError.errno,
        "no topic!": InvalidTopicError.errno,
    }

    def close(self) -> None: ...

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        return [{"name": each, "error_code": self.ERRORS[each]} for each in topics]


def test_whether_topics_are_there_is_asked_by_name_however_many_others_the_broker_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "admin_client", lambda _: Told())
    assert log.existing("fake:1", *Told.ERRORS) == {"shop.events", "shop.releases"}
    assert log.existing("fake:1", "shop.epochs") == set()


class Reader:
    """A consumer of the ten records of a partition, three a poll; it gives only the first `gives` of them."""

    def __init__(self, gives: int) -> None:
        self.gives, self.at, self.closed = gives, 0, False

    def assign(self, places: list[Any]) -> None: ...

    def seek(self, place: Any, offset: int) -> None:
        self.at = offset

    def poll(self, milliseconds: int) -> dict[TopicPartition, list[Any]]:
        found = range(self.at, min(self.at + 3, self.gives, 10))
        self.at += len(found)
        return {TopicPartition("shop.events", 0): [SimpleNamespace(offset=each) for each in found]}

    def position(self, place: Any, timeout_ms: int) -> int:
        return self.at

    def unsubscribe(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("stalls_at", [0, 4])
def test_a_client_that_stalls_is_replaced_and_no_record_comes_twice(
    monkeypatch: pytest.MonkeyPatch, stalls_at: int
) -> None:
    readers = [Reader(stalls_at), Reader(10)]
    waiting = iter(readers)
    monkeypatch.setattr(log, "_range_reader", lambda _: next(waiting))
    monkeypatch.setattr(log, "_STALLED_SECONDS", 0.0)
    monkeypatch.setattr(log, "_GIVE_UP_SECONDS", 600.0)
    batches = list(log.read_batches("fake:1", "shop.events", 0, 8))
    assert [record.offset for _, batch in batches for record in batch] == [*range(8)]
    assert batches[-1][0] == 8
    assert all(each.closed for each in readers)


def test_records_that_never_come_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_range_reader", lambda _: Reader(4))
    monkeypatch.setattr(log, "_STALLED_SECONDS", 0.0)
    monkeypatch.setattr(log, "_GIVE_UP_SECONDS", 0.01)
    reading = log.read_batches("fake:1", "shop.events", 0, 8)
    with pytest.raises(KafkaTimeoutError, match=r"no records of 'shop\.events' from offset 4 on"):
        list(reading)
