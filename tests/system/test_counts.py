"""A stream that another engine counts, on real servers: the same releases as of one worker that reads the events."""

import json
import random
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.verification.rebuild import rebuild
from tests.system.counted_elsewhere import (
    CountingEngine,
    check_releases,
    counted_stream,
    feed_rounds,
    wait_for_counts_topic,
)
from tests.system.shard_process import STEPS
from tests.system.sharded import ShardedStream
from tests.system.streams import ended
from tests.system.ticking import open_epoch
from tests.system.worker_process import Kill

MakeStream = Callable[[], AbstractContextManager[ShardedStream]]


@pytest.fixture
def counting(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> MakeStream:
    """Streams that another engine counts."""
    return lambda: counted_stream(kafka, redis_url, topic_prefix, tmp_path)


def test_counts_release_what_one_worker_releases_whoever_reads_them(counting: MakeStream) -> None:
    """The first reader is killed between two checkpoints, and another one goes on."""
    with counting() as stream:
        open_epoch(stream)
        killed = stream.run_in_role("intake", Kill("prepare a checkpoint", 2, after=True))
        engine = CountingEngine(stream)
        others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        wait_for_counts_topic(stream)
        feed_rounds(stream, 1, 3)
        engine.go_on()
        assert ended(killed) == -signal.SIGKILL, stream.logged()
        feed_rounds(stream, 4, 8)
        engine.go_on()
        others.append(stream.run_in_role("intake"))
        stream.wait_until_round(8)
        for process in others:
            process.terminate()
            assert ended(process) == 0, stream.logged()
        check_releases(stream)


def stop(stream: ShardedStream, *processes: BaseProcess) -> None:
    for process in processes:
        process.terminate()
        assert ended(process) == 0, stream.logged()


def test_killed_at_every_step_a_reader_of_counts_leaves_nothing_out_and_nothing_twice(
    counting: MakeStream,
) -> None:
    """One reader after the other dies before or after a step, and the last one finishes."""
    rng = random.Random(9)
    with counting() as stream:
        open_epoch(stream)
        engine, rounds = CountingEngine(stream), 0
        others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        for step in sorted(STEPS["intake of counts"], key="load".__eq__):  # what was saved is loaded
            kill = Kill(step, rng.randint(1, 3), rng.random() < 0.5)
            reader = stream.run_in_role("intake", kill)
            wait_for_counts_topic(stream)
            feed_rounds(stream, rounds + 1, rounds + 3)
            rounds += 3
            engine.go_on()
            assert ended(reader) == -signal.SIGKILL, f"{kill} was never reached:\n{stream.logged()}"
        last = stream.run_in_role("intake")
        stream.wait_until_round(rounds)
        stop(stream, *others, last)
        check_releases(stream)


def test_a_standby_takes_over_from_the_worker_that_seals_what_was_counted(counting: MakeStream) -> None:
    with counting() as stream:
        open_epoch(stream)
        active = stream.start()
        others = [stream.run_in_role(role) for role in ("intake", "shard", "merge")]
        engine = CountingEngine(stream)
        wait_for_counts_topic(stream)
        feed_rounds(stream, 1, 3)
        engine.go_on()
        stream.wait_until_round(3)
        waiting = stream.start(standby=True)
        stream.wait_until_logged("this one stands by")
        feed_rounds(stream, 4, 6)
        engine.go_on()
        active.kill()
        assert ended(active) == -signal.SIGKILL
        feed_rounds(stream, 7, 8)
        engine.go_on()
        stream.wait_until_round(8)
        stop(stream, waiting, *others)
        check_releases(stream)


def test_where_redis_is_lost_counts_are_read_again_from_the_epochs_beginning(counting: MakeStream) -> None:
    with counting() as stream:
        open_epoch(stream)
        roles = "worker", "intake", "shard", "merge"
        processes = [stream.run_in_role(role) for role in roles]
        engine = CountingEngine(stream)
        wait_for_counts_topic(stream)
        feed_rounds(stream, 1, 5)
        engine.go_on()
        stream.wait_until_round(5)
        stop(stream, *processes)
        before = stream.releases()
        with stream.redis() as redis:
            rebuild(stream.settings, redis, replace=True)
            states = [CheckpointStore(redis, f"{stream.settings.stream}/counts/{each}") for each in range(3)]
            assert not any(state.holds_state() for state in states)
        feed_rounds(stream, 6, 7)
        engine.go_on()
        processes = [stream.run_in_role(role) for role in roles]
        stream.wait_until_round(7)
        stop(stream, *processes)
        check_releases(stream)
        assert stream.releases()[: len(before)] == before


def test_counts_that_cannot_be_stop_the_reader_with_their_place(counting: MakeStream) -> None:
    with counting() as stream:
        open_epoch(stream)
        reader = stream.run_in_role("intake")
        wait_for_counts_topic(stream)
        feed_rounds(stream, 1, 1)
        wrong = next(each for each in CountingEngine(stream).records() if each["partition"] == 1)
        wrong |= {"part": 1, "parts": 1, "counts": [{"label": "secret", "count": 10**6}]}
        stream.append(stream.settings.counts, 1, json.dumps(wrong).encode())
        assert ended(reader) not in (0, None)
        said = stream.logged()
        assert (
            f"offset 0 of partition 1 of the topic '{stream.settings.counts}' counts a label more often"
            in said
        )
        assert "secret" not in said
        assert not stream.releases()
