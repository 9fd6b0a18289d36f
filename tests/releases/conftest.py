"""A releases topic in memory for all tests of this folder."""

import msgspec
import pytest

from stream_dp.releases import topic as releases_topic
from stream_dp.releases.release import Release
from tests.releases.topic_in_memory import FakeConsumer, Topic


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Makes the topic that every subscription reads from these releases."""

    def make(releases: list[Release], first: int = 0) -> FakeConsumer:
        consumer = FakeConsumer([msgspec.json.encode(each) for each in releases], first)
        monkeypatch.setattr(releases_topic, "read_only_consumer", lambda *_: consumer)
        return consumer

    return make
