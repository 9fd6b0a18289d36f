"""What counts as a change of a topic, and what does not, with a broker that tells whatever the test wants."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from kafka.structs import OffsetAndTimestamp

from stream_dp.config.settings import Settings
from stream_dp.operations.watch import Watch
from stream_dp.workers import topic_watch
from stream_dp.workers.topic_watch import TopicChanged, TopicWatch

EVENTS, LETTERS = "shop.events", "shop.dead-letters"
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


@dataclass
class Told:
    """What the broker tells of a topic."""

    topic_id: str | None = "1"
    partitions: int = 1
    settings: dict[str, str] = field(default_factory=lambda: dict(KEPT))
    end: int = 10
    error_code: int = 0


class Broker:
    """Stands in for an admin client; `topics` is what it tells."""

    def __init__(self) -> None:
        self.topics = {EVENTS: Told(), LETTERS: Told()}
        self.away = False
        self.made = 0
        self.configs_asked: set[str] = set()

    def client(self, *_: object, **__: object) -> "Broker":
        self.made += 1
        return self

    def close(self) -> None:
        pass

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        if self.away:
            raise KafkaTimeoutError("no answer")
        gone = Told(None, 0, error_code=UnknownTopicOrPartitionError.errno)
        found = [(name, self.topics.get(name, gone)) for name in names]
        return [
            {
                "name": name,
                "error_code": told.error_code,
                "topic_id": told.topic_id,
                "partitions": [{}] * told.partitions,
            }
            for name, told in found
        ]

    def describe_configs(self, asked: list[Any], **_: object) -> dict[str, Any]:
        self.configs_asked |= {each.name for each in asked}
        return {
            "topic": {
                each.name: {name: {"value": value} for name, value in self.topics[each.name].settings.items()}
                for each in asked
            }
        }

    def list_partition_offsets(self, places: dict[Any, Any]) -> dict[Any, OffsetAndTimestamp]:
        return {place: OffsetAndTimestamp(self.topics[place.topic].end, -1, -1) for place in places}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(topic_watch, "admin_client", broker.client)
    monkeypatch.setattr(topic_watch, "_LOOK_AGAIN_SECONDS", 0.0)
    return broker


@pytest.fixture
def topics(broker: Broker) -> TopicWatch:
    topics = TopicWatch(Settings(stream="shop"), "events", "dead_letters")
    topics.look()
    topics.look()
    return topics


CHANGES: dict[str, tuple[Told | None, str]] = {
    "gone": (None, "it was deleted while"),
    "another": (Told("2"), "it was deleted and re-created while"),
    "no longer told who it is": (Told(None), "it was deleted and re-created while"),
    "more partitions": (Told(partitions=3), "it got 3 partitions instead of 1 while"),
    "compacted": (
        Told(settings=KEPT | {"cleanup.policy": "compact,delete"}),
        "it got cleanup.policy=compact,delete",
    ),
    "kept for a week": (
        Told(settings=KEPT | {"retention.ms": "604800000"}),
        "it got retention.ms=604800000 instead of -1",
    ),
    "kept up to a size": (
        Told(settings=KEPT | {"retention.bytes": "0"}),
        "it got retention.bytes=0 instead of -1",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_with_what_it_leaves_in_doubt(broker: Broker, topics: TopicWatch, name: str) -> None:
    told, what = CHANGES[name]
    if told is None:
        del broker.topics[EVENTS]
    else:
        broker.topics[EVENTS] = told
    with pytest.raises(TopicChanged) as changed:
        topics.look()
    assert f"the topic '{EVENTS}' is not the log that was counted: {what}" in str(changed.value)
    assert changed.value.topic == EVENTS


@pytest.mark.parametrize("name", CHANGES)
def test_dead_letters_hold_up_nobody(
    broker: Broker, topics: TopicWatch, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    told, what = CHANGES[name]
    if told is None:
        del broker.topics[LETTERS]
    else:
        broker.topics[LETTERS] = told
    for _ in range(3):
        topics.look()
    assert [what in message for message in caplog.messages] == [True]


def test_less_to_forget_is_no_change_and_then_counts(broker: Broker, topics: TopicWatch) -> None:
    for kept in ("1000", "2000", "-1"):
        broker.topics[EVENTS] = Told(settings=KEPT | {"retention.ms": kept})
        if kept == "1000":
            topics._known.clear()  # it was so from the start
        topics.look()
    broker.topics[EVENTS] = Told(settings=KEPT | {"retention.ms": "2000"})
    with pytest.raises(TopicChanged):
        topics.look()


def test_a_process_that_only_reads_a_topic_asks_for_no_settings(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """It lacks the right, which is no fault; a topic that was made anew is noticed all the same."""
    topics = TopicWatch(Settings(stream="shop"), "events", "dead_letters")
    topics.for_readers(EVENTS)
    for each in broker.topics.values():
        each.settings = {}
    topics.look()
    assert broker.configs_asked == {LETTERS}
    assert [LETTERS in message for message in caplog.messages] == [True]
    broker.topics[EVENTS] = Told("2")
    with pytest.raises(TopicChanged):
        topics.look()


def test_a_topic_without_an_identity_is_known_by_its_end(broker: Broker) -> None:
    topics = TopicWatch(Settings(stream="shop"), "events")
    for end in (10, 10, 12):
        broker.topics[EVENTS] = Told(None, end=end)
        topics.look()
    broker.topics[EVENTS] = Told(None, end=11)
    with pytest.raises(TopicChanged, match="re-created"):
        topics.look()


def test_what_cannot_be_seen_is_no_change(
    broker: Broker, topics: TopicWatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.topics[EVENTS] = Told(None, 0, error_code=LeaderNotAvailableError.errno)
    topics.look()
    broker.topics[EVENTS] = Told(settings={})
    topics.look()
    topics.look()
    assert ["give this user the right to describe them" in message for message in caplog.messages] == [True]
    broker.topics[EVENTS] = Told("2", settings={})
    with pytest.raises(TopicChanged):
        topics.look()


def test_a_topic_that_comes_later_counts_from_then_on(broker: Broker) -> None:
    there = broker.topics.pop(EVENTS)
    topics = TopicWatch(Settings(stream="shop"), "events")
    topics.look()
    broker.topics[EVENTS] = there
    topics.look()
    broker.topics[EVENTS] = Told("2")
    with pytest.raises(TopicChanged):
        topics.look()


async def test_a_broker_that_does_not_answer_is_an_outage(broker: Broker, topics: TopicWatch) -> None:
    """And the next look connects anew, for the old connection may lead to nobody."""
    watch, made = Watch("shop", "shop.events"), broker.made
    watch.answered(True)
    broker.away = True
    await topics.still_same(watch)
    assert not watch.ready
    broker.away = False
    await topics.still_same(watch)
    assert broker.made == made + 1


async def test_work_is_called_off_at_a_change(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "LOOK_SECONDS", 0.0)
    watch, topics, ended = Watch("shop", "shop.events"), TopicWatch(Settings(stream="shop"), "events"), []

    async def work() -> None:
        topics.look()
        broker.topics[EVENTS] = Told("2")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(TopicChanged):
        await topics.guard(work(), watch)
    assert ended
    samples = [each for metric in watch.operator.registry.collect() for each in metric.samples]
    [counted] = [each for each in samples if each.name == "stream_dp_operator_topic_changes_total"]
    assert (counted.labels["topic"], counted.value) == (EVENTS, 1.0)


async def test_what_the_work_raises_is_raised(topics: TopicWatch) -> None:
    async def fails() -> None:
        raise KafkaTimeoutError("no answer")

    async def ends() -> None:
        return None

    watch = Watch("shop", "shop.events")
    with pytest.raises(KafkaTimeoutError):
        await topics.guard(fails(), watch)
    await topics.guard(ends(), watch)
