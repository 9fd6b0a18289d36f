"""What `stream-dp check` says of the bytes that releases take, and of how long they are kept."""

import json
import random
from pathlib import Path

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.config.settings import Settings
from stream_dp.kafka import log
from stream_dp.planning import release_sizes
from stream_dp.planning.release_sizes import DAY_SECONDS, growth_of
from tests.example_releases import release
from tests.system.streams import Stream

pytestmark = pytest.mark.apache("topics")

BEGAN = 1_769_860_800_000


def publish(kafka: str, topic: str, values: list[bytes], seconds: float) -> None:
    """The values as records of a topic that was written evenly for so long."""
    with KafkaProducer(bootstrap_servers=kafka, acks="all") as producer:
        for number, value in enumerate(values):
            at = BEGAN + round(number * 1000 * seconds / (len(values) - 1))
            producer.send(topic, value, timestamp_ms=at)


def values(number: int, labels: int, texts: random.Random) -> list[bytes]:
    """Releases of random labels and counts, which hardly compress."""
    return [
        msgspec.json.encode(release(each, {f"{texts.random():.16f}": each + 900 for _ in range(labels)}))
        for each in range(1, number + 1)
    ]


def sizes(stream: str, kafka: str, redis_url: str, **settings: str) -> list[tuple[str, str]]:
    """What the checklist says about the releases topic."""
    words = ["check", "--stream", stream, "--kafka", kafka, "--redis", redis_url, "--json"]
    environment = {f"STREAM_DP_{name.upper()}": value for name, value in settings.items()}
    told = json.loads(CliRunner().invoke(app, words, env=environment).stdout)["checks"]
    return [
        (each["state"], each["detail"])
        for each in told
        if each["name"] == "size" or (each["name"] == "topic" and f"{stream}.releases" in each["detail"])
    ]


def test_the_growth_of_a_topic_is_that_of_its_last_day(kafka: str, topic_prefix: str) -> None:
    settings = Settings(stream=topic_prefix, kafka=kafka, compression="none")
    log.create_topics(kafka, settings.releases)
    assert growth_of(settings) is None
    written = values(50, 10, random.Random(1))
    publish(kafka, settings.releases, written, seconds=50.0)
    assert growth_of(settings) is None, "less than a minute is no day"
    publish(kafka, settings.releases, written, seconds=10 * DAY_SECONDS)
    growth = growth_of(settings)
    assert growth is not None
    a_day = 49 / 10  # releases
    assert growth.bytes_a_day == pytest.approx(a_day * (sum(map(len, written)) / 50 + 90), rel=0.1)
    assert growth.replicas == 1
    compressed = growth_of(Settings(stream=topic_prefix, kafka=kafka))
    assert compressed is not None
    assert 0.2 < compressed.bytes_a_day / growth.bytes_a_day < 0.95


def test_check_warns_of_a_topic_that_grows_fast(
    kafka: str, redis_url: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_sizes, "MUCH_A_DAY", release_sizes.MUCH_A_DAY / 100)
    log.create_topics(kafka, f"{topic_prefix}.releases")
    [_, (state, told)] = sizes(topic_prefix, kafka, redis_url)
    assert (state, "too young to be measured" in told) == ("ok", True)
    large = values(5, 1_000, random.Random(2)) * 12
    publish(kafka, f"{topic_prefix}.releases", large, seconds=61.0)
    [_, (state, told)] = sizes(topic_prefix, kafka, redis_url, compression="none")
    assert state == "warning"
    assert 'GB a day: set compression = "zstd", leave rounds out' in told


def retention(stream: Stream) -> str:
    names = dict.fromkeys(("retention.ms",))
    with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, stream.settings.releases, names)
        found = admin.describe_configs([resource], config_filter="all")["topic"]
    return str(found[stream.settings.releases]["retention.ms"]["value"])


def test_the_releases_topic_is_made_with_the_retention_of_the_settings(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    settings = Settings(
        stream=topic_prefix, kafka=kafka, redis=redis_url, releases_retention_days=30, unmetered=True
    )
    stream = Stream(settings, tmp_path)
    try:
        worker = stream.start()
        stream.wait_until(lambda: "epoch 1, round 0" in stream.logged(), worker)
    finally:
        stream.stop_all()
    assert retention(stream) == "2592000000"
    assert "releases_retention_days" not in stream.logged()
    place = topic_prefix, kafka, redis_url
    [(state, told), _] = sizes(*place, releases_retention_days="30")
    assert (state, "keeps releases for 30 days" in told) == ("ok", True)
    [(state, told), _] = sizes(*place)
    assert state == "warning"
    assert f"--entity-name {topic_prefix}.releases --add-config retention.ms=-1,retention.bytes=-1" in told
