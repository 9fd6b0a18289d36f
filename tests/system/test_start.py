"""A start asks Kafka many things over few connections, and each answer is what the broker says then."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp import clients, log
from stream_dp.record import Record
from stream_dp.resume import resume
from stream_dp.store.checkpoints import CheckpointStore
from tests.system.streams import Stream, small_stream, some_events


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    with small_stream(kafka, redis_url, topic_prefix, tmp_path) as stream:
        yield stream


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many clients of each kind this process has made."""
    counted, make = Counter[str](), clients._made

    def counting(kind: Callable[..., Any], *place: Any) -> Any:
        counted[kind.__name__] += 1
        return make(kind, *place)

    monkeypatch.setattr(clients, "_made", counting)
    return counted


def start(stream: Stream) -> int:
    """Take the stream over; returns the round that it goes on from."""
    with stream.redis() as redis:
        store = CheckpointStore(redis, stream.settings.stream)
        return resume(stream.settings, store, redis).pipeline.round


def test_one_client_of_a_kind_is_enough_for_a_start(stream: Stream, made: Counter[str]) -> None:
    with clients.kept_clients():
        assert start(stream) == 0
    assert made == {"KafkaAdminClient": 1, "KafkaConsumer": 1, "KafkaProducer": 1}  # it opened an epoch
    stream.feed(some_events(30, seed=1))
    assert stream.run(until_round=30) == 0
    made.clear()
    with clients.kept_clients():
        assert start(stream) == 30
    assert made == {"KafkaAdminClient": 1, "KafkaConsumer": 1}


def test_a_client_that_is_kept_reads_a_topic_that_was_made_anew(stream: Stream) -> None:
    def held() -> list[bytes | None]:
        offsets = log.offsets(own.kafka, own.events)
        return [record.value for record in log.read(own.kafka, own.events, offsets.first, offsets.end)]

    own = stream.settings
    stream.feed([b"one", b"two", b"three"])
    with clients.kept_clients():
        assert held() == [b"one", b"two", b"three"]
        stream.feed([b"four"])
        assert held()[-1] == b"four"
        stream.rewrite(own.events, [Record(0, 1, None, b"another"), Record(0, 1, None, b"log")])
        assert held() == [b"another", b"log"]
