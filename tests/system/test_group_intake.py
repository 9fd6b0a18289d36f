"""A group that reads the events, on real servers: what is released is what one worker releases that reads them all."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.system.sharded import ShardedStream, sharded_stream
from tests.system.streams import AnyWorker, ended, some_events
from tests.system.ticking import open_epoch

PARTITIONS = 12
MakeStream = Callable[..., AbstractContextManager[ShardedStream]]


@pytest.fixture
def grouped(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> MakeStream:
    """Streams whose events a group reads, and whose barriers the test writes."""
    wanted = {"rounds": "ticks", "write_barriers": False, "intake": "group", "partitions": PARTITIONS}
    return lambda shards=2, **changed: sharded_stream(
        kafka, redis_url, topic_prefix, tmp_path, shards, **{**wanted, **changed}
    )


def feed_rounds(stream: ShardedStream, first: int, last: int, partitions: int = PARTITIONS) -> None:
    """Events in some partitions, a barrier after them; every third one closes nothing."""
    rng = random.Random(first)
    for number in range(first, last + 1):
        if number % 3:
            for partition in rng.sample(range(partitions), 4):
                stream.feed(some_events(rng.randint(1, 9), seed=rng.randrange(10**6)), partition=partition)
        stream.close_rounds(1_000 * number)


def finish(stream: ShardedStream, rounds: int, *processes: AnyWorker) -> None:
    """Wait for the last round, stop everything, and compare."""
    stream.wait_until_round(rounds)
    stream.wait_until_saved(rounds)
    for process in processes:
        process.terminate()
        assert ended(process) == 0, stream.logged()
    stream.check_everything()


@pytest.mark.parametrize("members", [1, 3, 12])
def test_any_number_of_members_releases_what_one_worker_releases(grouped: MakeStream, members: int) -> None:
    with grouped() as stream:
        open_epoch(stream)
        processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        processes += [stream.run_in_role("intake") for _ in range(members)]
        feed_rounds(stream, 1, 25)
        finish(stream, 25, *processes)
