"""Topics that refuse records for their time: what a release would meet is told before it does."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.config.connections import Kafka
from stream_dp.config.settings import Settings
from stream_dp.kafka import log
from stream_dp.kafka.rights import NotPermitted, Right
from stream_dp.kafka.time_limits import time_warnings
from tests.system.example_events import event
from tests.system.streams import Stream
from tests.system.ticking import MakeStream

pytestmark = pytest.mark.apache("times")

DAY = 86_400_000
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


def settings_of(kafka: str, name: str, events: dict[str, str], releases: dict[str, str]) -> Settings:
    settings = Settings(stream=name, kafka=kafka)
    log.create_topics(kafka, settings.events, configs={AFTER: "1000"} | events)
    log.create_topics(kafka, settings.releases, configs={AFTER: "1000"} | releases)
    return settings


def test_limits_that_refuse_no_release_are_no_matter(kafka: str, topic_prefix: str) -> None:
    settings = settings_of(kafka, topic_prefix, {BEFORE: str(DAY)}, {})
    assert time_warnings(settings, settings.releases) == []


def test_a_limit_for_old_records_is_named_with_the_command_that_changes_it(
    kafka: str, topic_prefix: str
) -> None:
    settings = settings_of(kafka, topic_prefix, {}, {BEFORE: str(DAY)})
    [told] = time_warnings(settings, settings.releases)
    assert f"has {BEFORE}={DAY} and refuses older records" in told
    assert told.endswith(f"--entity-name {settings.releases} --add-config {BEFORE}={2**63 - 1}")


def test_a_limit_for_the_future_matters_where_events_may_lie_further(kafka: str, topic_prefix: str) -> None:
    settings = settings_of(kafka, topic_prefix, {AFTER: "2000"}, {})
    [told] = time_warnings(settings, settings.releases)
    assert "one such event would stop the stream" in told
    ticks = Settings(stream=settings.stream, kafka=kafka, rounds="ticks")
    assert time_warnings(ticks, settings.releases) == []


def test_who_may_not_see_the_events_is_not_refused_for_it(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(kafka, topic_prefix, {AFTER: "2000"}, {})
    seen = log.describe

    def describe(kafka: Kafka, topic: str, *names: str) -> log.Described | None:
        if topic == settings.events:
            raise NotPermitted(Right(topic, "DESCRIBE"))
        return seen(kafka, topic, *names)

    monkeypatch.setattr(log, "describe", describe)
    assert time_warnings(settings, settings.releases) == []


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    with make_stream() as stream:
        stream.rewrite(stream.settings.releases, [], **{BEFORE: str(DAY)})
        yield stream


def test_check_and_the_worker_tell_of_a_limit(stream: Stream) -> None:
    stream.feed([event("tea")])
    assert stream.run(until_round=1) == 0
    assert f"has {BEFORE}={DAY} and refuses older records" in stream.logged()
    own = stream.settings
    words = ["check", "--stream", own.stream, "--kafka", own.kafka, "--redis", own.redis, "--json"]
    checks = json.loads(CliRunner().invoke(app, words).stdout)["checks"]
    [told] = [each for each in checks if BEFORE in each["detail"]]
    assert (told["name"], told["state"]) == ("topic", "warning")
