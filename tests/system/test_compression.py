"""Producers choose how they compress; the worker reads and counts them all."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.system.streams import GIVE_UP_SECONDS, small_stream, some_events


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_events_count_like_others(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, codec: str
) -> None:
    with small_stream(kafka, redis_url, topic_prefix, tmp_path) as stream:
        producer = Producer({"bootstrap.servers": kafka, "compression.type": codec, "linger.ms": 50})
        for value in some_events(60, seed=1):
            producer.produce(stream.settings.events, value, b"key")
        assert producer.flush(GIVE_UP_SECONDS) == 0
        assert stream.run(until_round=60) == 0
        stream.check_everything()
