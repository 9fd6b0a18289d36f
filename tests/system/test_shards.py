"""A stream in shards on real servers: what subscribers read is what one worker would have released, byte for byte."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.sharded import KAFKAS_SESSION, QUICK_SESSION, ShardedStream, sharded_stream
from tests.system.streams import ended, some_events


@pytest.fixture
def session(request: pytest.FixtureRequest) -> int:
    return QUICK_SESSION if request.config.getoption("kafka") == "embedded" else KAFKAS_SESSION


@pytest.fixture
def stream(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, session: int
) -> Iterator[ShardedStream]:
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, session, shards=4) as stream:
        yield stream


def test_two_members_of_the_group_and_a_merge_release_what_one_worker_releases(stream: ShardedStream) -> None:
    stream.feed(some_events(300, seed=1))
    processes = [stream.run_in_role(role) for role in ("worker", "shard", "shard", "merge")]
    stream.wait_until_round(300)
    for process in processes:
        process.terminate()
        assert ended(process) == 0, stream.logged()
    stream.check_everything()
