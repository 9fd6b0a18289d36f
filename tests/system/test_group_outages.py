"""A group whose barriers stop, whose broker goes away, or one of whose partitions nobody leads: the same bytes."""

import logging
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from stream_dp.kafka import clients, log
from stream_dp.operations import watch
from stream_dp.operations.progress import Progress
from stream_dp.workers.holdings import Holdings
from stream_dp.workers.intake import ROUNDS_AHEAD
from tests.apache_kafka.second_node import add_partition, has_leader, is_there, second_node
from tests.apache_kafka.server import Broker
from tests.system.broker_clients import leave, new_producer
from tests.system.conftest import KafkaOfOneTest
from tests.system.example_events import event, some_events
from tests.system.shard_process import run_role
from tests.system.sharded import SESSION_MILLISECONDS, ShardedStream, sharded_stream
from tests.system.streams import AnyWorker, ended
from tests.system.test_group_intake import feed_rounds
from tests.system.ticking import open_epoch
from tests.system.waiting import wait_until
from tests.system.worker_process import PROCESSES, Interruption

PARTITIONS = 4
KILLED = -signal.SIGKILL
NOTED, NOTHING = "a member waits for ", "nothing"
ROLES = "worker", "shard", "merge", "intake", "intake"
MakeStream = Callable[..., AbstractContextManager[ShardedStream]]


@pytest.fixture
def grouped(redis_url: str, topic_prefix: str, tmp_path: Path) -> MakeStream:
    """Streams on a broker, whose events a group reads, and whose barriers no worker writes."""
    wanted = {"rounds": "ticks", "write_barriers": False, "intake": "group", "partitions": PARTITIONS}
    return lambda kafka, **changed: sharded_stream(
        kafka, redis_url, topic_prefix, tmp_path, 2, **{**wanted, "horizon": 65_535, **changed}
    )


def feed(stream: ShardedStream, seed: int) -> None:
    """Some events in all partitions."""
    stream.spread(some_events(20, seed=seed), PARTITIONS)


def start_writer(stream: ShardedStream) -> AnyWorker:
    return stream.start_faust("-c", "from stream_dp.cli import main; main()", "barriers")


def wait_for_barriers(stream: ShardedStream, more: int) -> None:
    """Return when so many more of them count than now."""
    wanted = stream.chain().last.number + more
    wait_until(lambda: stream.chain().last.number >= wanted, stream.logged)


def test_writers_of_barriers_are_killed_and_taken_over_from_while_a_group_reads(
    grouped: MakeStream, kafka: str
) -> None:
    """Three die one after the other.  The fourth sleeps until a fifth has taken over, writes too late, and dies too."""
    with grouped(kafka, tick_seconds=0.2) as stream:
        open_epoch(stream)
        processes = [stream.run_in_role(role) for role in ROLES]
        for number in range(3):
            writer = start_writer(stream)
            feed(stream, 10 * number)
            wait_for_barriers(stream, 3)
            writer.kill()
            assert ended(writer) == KILLED
            feed(stream, 10 * number + 1)  # while nobody says where a round ends
        sleeper = start_writer(stream)
        wait_for_barriers(stream, 2)
        os.kill(sleeper.pid or 0, signal.SIGSTOP)
        successor = start_writer(stream)
        feed(stream, 40)
        wait_for_barriers(stream, 3)
        os.kill(sleeper.pid or 0, signal.SIGCONT)
        feed(stream, 41)
        wait_for_barriers(stream, 3)
        sleeper.kill()
        assert ended(sleeper) == KILLED
        feed(stream, 42)
        wait_for_barriers(stream, 3)
        successor.terminate()
        assert ended(successor) == 0, stream.logged()
        last = stream.chain().last
        assert list(last.ends) == stream.ends(), "every event is in a round"
        stream.finish(last.number, *processes)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_group_goes_on_where_its_broker_was_away(
    grouped: MakeStream, own_kafka: KafkaOfOneTest, how: str
) -> None:
    with grouped(own_kafka.address) as stream:
        open_epoch(stream)
        processes = [stream.run_in_role(role) for role in ROLES]
        feed_rounds(stream, 1, 3, PARTITIONS)
        stream.wait_until_round(3)
        for number in (4, 8):
            feed_rounds(stream, number, number + 3, PARTITIONS)  # some of it is read before, some after
            getattr(own_kafka, how)()
            own_kafka.start()
        feed_rounds(stream, 12, 14, PARTITIONS)
        stream.finish(14, *processes)


def run_soon_stalled_role(*arguments: Any) -> None:
    """See `run_role`; it says after a second, and not after a minute, that it makes no progress."""
    watch.Progress = partial(Progress, stall_seconds=1.0)  # type: ignore[attr-defined, assignment]
    clients.BOOTSTRAP_MILLISECONDS = 2_000
    run_role(*arguments)


def run_soon_stalled(
    stream: ShardedStream, role: str, interruption: Interruption | None = None
) -> BaseProcess:
    return run_as(run_soon_stalled_role, stream, role, interruption)


def run_as(
    run: Callable[..., None], stream: ShardedStream, role: str, interruption: Interruption | None = None
) -> BaseProcess:
    arguments = role, stream.settings, str(stream.log_file), interruption, SESSION_MILLISECONDS
    process = PROCESSES.Process(target=run, args=arguments)
    process.start()
    stream.workers.append(process)
    return process


class NotingProgress(Progress):
    """Logs whether records wait, as often as that is found out."""

    def input(self, waits: bool, cause: str | None = None) -> None:
        """See `Progress.input`."""
        super().input(waits, cause)
        logging.info("%s%s", NOTED, cause if waits else NOTHING)


def run_noting_role(*arguments: Any) -> None:
    """See `run_role`; it logs which partitions it is given, and what `NotingProgress` logs."""
    watch.Progress = NotingProgress  # type: ignore[attr-defined]
    assigned = Holdings.assigned

    def note(self: Holdings[Any], numbers: Iterable[int]) -> None:
        given = sorted(numbers)
        assigned(self, given)
        logging.info("given %s", given)

    Holdings.assigned = note  # type: ignore[method-assign]
    run_role(*arguments)


def noted(stream: ShardedStream) -> list[str]:
    """What a member has said by now that it waits for, one answer after the other."""
    return [line.partition(NOTED)[2] for line in stream.logged().splitlines() if NOTED in line]


def noted_from_now_on(stream: ShardedStream) -> set[str]:
    """Its next answers, without the first one, which it may have been about to give."""
    before = len(noted(stream))
    wait_until(lambda: len(noted(stream)) >= before + 4, stream.logged)
    return {*noted(stream)[before + 1 :]}


def test_where_no_epoch_is_open_or_one_has_ended_a_member_waits_for_nothing(
    grouped: MakeStream, kafka: str
) -> None:
    """There are records all the while, and after the last round barriers.  In between, it waits for the seal."""
    with grouped(kafka, horizon=ROUNDS_AHEAD + 3) as stream:
        log.create_topics(kafka, stream.settings.epochs)  # as a worker does before it opens one
        feed(stream, 1)
        member = run_as(run_noting_role, stream, "intake")
        stream.wait_until_logged(f"given {[*range(PARTITIONS)]}")
        assert noted_from_now_on(stream) == {NOTHING}
        open_epoch(stream)
        feed_rounds(stream, 1, ROUNDS_AHEAD + 5, PARTITIONS)
        wait_until(lambda: "seal" in noted(stream), stream.logged)
        others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        stream.wait_until_round(ROUNDS_AHEAD + 3)
        feed(stream, 2)
        assert noted_from_now_on(stream) == {NOTHING}
        stream.finish(ROUNDS_AHEAD + 3, member, *others)


def test_a_member_that_is_as_far_ahead_as_it_may_be_says_what_it_waits_for(
    grouped: MakeStream, kafka: str
) -> None:
    with grouped(kafka) as stream:
        open_epoch(stream)
        member = run_soon_stalled(stream, "intake")
        feed_rounds(stream, 1, ROUNDS_AHEAD + 1, PARTITIONS)
        stream.wait_until_logged("it waits for seal")
        stream.finish(
            ROUNDS_AHEAD + 1, member, *(stream.run_in_role(role) for role in ("worker", "shard", "merge"))
        )


def test_a_partition_that_nobody_leads_is_named_and_waited_for(
    request: pytest.FixtureRequest, grouped: MakeStream, tmp_path: Path
) -> None:
    """Everything else is on another node, which answers."""
    if request.config.getoption("kafka") != "apache":
        pytest.skip("the embedded broker is one node")
    with Broker(tmp_path / "first") as first:
        try:
            with grouped(first.address, partitions=2) as stream:
                check_a_partition_without_leader(stream, first, second_node(first, tmp_path / "second"))
        finally:
            leave(first.address)


def check_a_partition_without_leader(stream: ShardedStream, first: Broker, second: Broker) -> None:
    """First barriers go on without it; then a round needs what only its broker has, and new members wait for it."""
    open_epoch(stream)
    topic, unled = stream.settings.events, 2
    others = [run_soon_stalled(stream, role) for role in ("worker", "shard", "merge")]
    member, writer = run_soon_stalled(stream, "intake"), start_writer(stream)
    stream.spread(some_events(20, seed=1), unled)
    wait_until_counted(stream)  # all topics are on the first node by now
    with second:
        wait_until(lambda: is_there(first), lambda: "the second node does not join")
        add_partition(first, topic, unled + 1)
        wait_until(lambda: has_leader(first, topic, unled), lambda: "nobody leads the new partition")
        new_producer(first.address)
        stream.feed([event("tea")] * 40, partition=unled)
        wait_until_counted(stream)
        stop(stream, first, second)
        stream.spread(some_events(20, seed=2), unled)
        wait_for_barriers(stream, 5)  # of which each says again where the partition ended
        start(stream, first, second)
        stream.feed([event("milk")] * 40, partition=unled)
        member.kill()
        assert ended(member) == KILLED
        wait_for_barriers(stream, 3)
        needed = stream.chain().last.number
        stop(stream, first, second)
        members = [run_soon_stalled(stream, "intake") for _ in range(2)]
        stream.wait_until_logged(f"partition {unled} of the topic {topic!r} has no leader")
        stream.wait_until_logged(f"it waits for intake of partition {unled}")
        stream.wait_until_logged(f"it waits for {topic} partition {unled}")
        assert stream.last_round() < needed
        start(stream, first, second)
        stream.wait_until_round(needed)
        stream.spread(some_events(30, seed=3), unled + 1)
        wait_until_counted(stream)
        writer.terminate()
        assert ended(writer) == 0, stream.logged()
        stream.finish(stream.chain().last.number, *others, *members)


def wait_until_counted(stream: ShardedStream) -> None:
    """Return when a round that holds all events of this moment is released."""
    ends = stream.ends()
    wait_until(lambda: stream.chain().last.ends >= tuple(ends), stream.logged)
    stream.wait_until_round(stream.chain().last.number)


def stop(stream: ShardedStream, first: Broker, second: Broker) -> None:
    second.stop()
    wait_until(lambda: not has_leader(first, stream.settings.events, 2), lambda: "somebody leads it still")


def start(stream: ShardedStream, first: Broker, second: Broker) -> None:
    second.start()
    wait_until(lambda: has_leader(first, stream.settings.events, 2), lambda: "nobody leads it")
    new_producer(stream.settings.kafka)
