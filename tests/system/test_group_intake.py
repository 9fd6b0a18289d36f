"""A group that reads the events, on real servers: what is released is what one worker releases that reads them all."""

import json
import random
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import groupby
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaAdminClient, TopicPartition

from stream_dp.config.events_section import EventsSection
from stream_dp.epochs.journal import EpochJournal
from stream_dp.kafka import log
from stream_dp.pipeline.partition_frames import PartitionFrame, decode_head, decode_of_shard, encode
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.intake import ROUNDS_AHEAD
from stream_dp.workers.owned_partition import state_of_partition
from stream_dp.workers.resume import NewEpoch
from tests.schema_registry.front import front, scripted
from tests.schema_registry.orders import FIRST, LATER, avro
from tests.system.example_events import event, some_events
from tests.system.shard_process import STEPS
from tests.system.sharded import ShardedStream, sharded_stream
from tests.system.soak import kills
from tests.system.streams import ended, wake_up
from tests.system.ticking import open_epoch
from tests.system.waiting import wait_until
from tests.system.worker_process import Delay, Kill, Pause

PARTITIONS = 12
KILLED = -signal.SIGKILL
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
            for partition in rng.sample(range(partitions), min(4, partitions)):
                stream.feed(some_events(rng.randint(1, 9), seed=rng.randrange(10**6)), partition=partition)
        stream.close_rounds(1_000 * number)


def is_stopped(process: BaseProcess) -> bool:
    """Whether it has paused itself."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("members", [1, 3, 12])
def test_any_number_of_members_releases_what_one_worker_releases(grouped: MakeStream, members: int) -> None:
    with grouped() as stream:
        open_epoch(stream)
        processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        processes += [stream.run_in_role("intake") for _ in range(members)]
        feed_rounds(stream, 1, 25)
        stream.finish(25, *processes)


def test_members_bound_users_as_one_worker_does(grouped: MakeStream) -> None:
    unit: dict[str, Any] = {"unit": "user", "items_per_user": 3, "items_per_event": 4}
    with grouped(partitions=3, mapping=EventsSection(partitioner="murmur2"), **unit) as stream:
        open_epoch(stream)
        processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        alone = stream.run_in_role(
            "intake", Kill("prepare a checkpoint", 2, after=True)
        )  # of three partitions
        for number in range(1, 7):
            for partition in range(3):
                values = some_events(20, seed=10 * number + partition, users=30)
                stream.feed(values, partition=partition)
            stream.close_rounds(1_000 * number)
        assert ended(alone) == KILLED
        stream.finish(6, *processes, *(stream.run_in_role("intake") for _ in range(2)))


def test_killed_at_every_step_a_member_leaves_nothing_out_and_nothing_twice(grouped: MakeStream) -> None:
    """One member after the other dies before or after a step, and the last one finishes."""
    rng = random.Random(7)
    with grouped(partitions=4) as stream:
        open_epoch(stream)
        others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        rounds = 0
        for step in sorted(STEPS["intake"], key="load".__eq__):  # what was saved is loaded
            feed_rounds(stream, rounds + 1, rounds + 3, 4)
            rounds += 3
            kill = Kill(step, rng.randint(1, 3), rng.random() < 0.5)
            assert ended(stream.run_in_role("intake", kill)) < 0, f"{kill} was never reached"
        stream.finish(rounds, *others, stream.run_in_role("intake"))


def test_killed_at_every_step_the_worker_seals_the_same_rounds(grouped: MakeStream) -> None:
    rng = random.Random(8)
    with grouped(partitions=4) as stream:
        open_epoch(stream)
        others = [stream.run_in_role(role) for role in ("intake", "shard", "merge")]
        rounds = 0
        for step in STEPS["sealing worker"]:
            feed_rounds(stream, rounds + 1, rounds + 3, 4)
            rounds += 3
            kill = Kill(step, 1, rng.random() < 0.5)
            assert ended(stream.run_in_role("worker", kill)) < 0, f"{kill} was never reached"
        stream.finish(rounds, *others, stream.run_in_role("worker"))


def test_members_come_and_go_while_events_come(grouped: MakeStream) -> None:
    with grouped() as stream:
        open_epoch(stream)
        others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        members = [stream.run_in_role("intake") for _ in range(2)]
        feed_rounds(stream, 1, 6)
        members.append(stream.run_in_role("intake"))
        stream.wait_until_round(6)
        feed_rounds(stream, 7, 12)
        members[0].kill()
        feed_rounds(stream, 13, 15)
        members.append(stream.run_in_role("intake"))
        members[1].terminate()
        assert ended(members[1]) == 0, stream.logged()
        feed_rounds(stream, 16, 18)
        stream.finish(18, *others, *members[2:])


@pytest.mark.parametrize("asleep_at", ["hand a batch to the producer", "prepare a checkpoint"])
def test_a_member_that_slept_can_only_say_again_what_its_successor_says(
    grouped: MakeStream, asleep_at: str
) -> None:
    with grouped(partitions=4) as stream:
        open_epoch(stream)
        others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        feed_rounds(stream, 1, 3, 4)
        zombie = stream.run_in_role("intake", Pause(asleep_at))
        wait_until(lambda: is_stopped(zombie), lambda: "it does not sleep")
        successor = stream.run_in_role("intake")
        feed_rounds(stream, 4, 8, 4)
        stream.wait_until_round(8)
        wake_up(zombie)
        feed_rounds(stream, 9, 10, 4)
        stream.finish(10, *others, successor, zombie)


def test_members_stay_a_few_rounds_before_the_worker(grouped: MakeStream) -> None:
    """While no worker runs, what waits for it stays small; then everything is counted."""
    with grouped(partitions=3) as stream:
        open_epoch(stream)
        member = stream.run_in_role("intake")
        feed_rounds(stream, 1, 30, 3)

        def heads() -> list[int]:
            return [decode_head(each.value).round for each in stream.records_of(stream.settings.heads, 0)]

        wait_until(lambda: len(heads()) == 3 * ROUNDS_AHEAD, lambda: f"{heads()}\n{stream.logged()}")
        stream.close_rounds(40_000)
        others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        stream.finish(31, *others, member)
        assert max(heads()) == 31
        in_order = [number for number, _ in groupby(sorted(heads()))]
        assert in_order == list(range(1, 32))


def test_a_member_that_is_a_hundred_times_slower_holds_up_the_others_and_fills_nothing(
    grouped: MakeStream,
) -> None:
    """In the order of the heads, none is further than it may be before the partition that is last."""
    with grouped() as stream:
        open_epoch(stream)
        roles = "worker", "shard", "merge", "intake"
        slow = stream.run_in_role("intake", Delay("count", seconds=0.01))
        processes = [slow, *[stream.run_in_role(role) for role in roles]]
        feed_rounds(stream, 1, 3 * ROUNDS_AHEAD)
        stream.finish(3 * ROUNDS_AHEAD, *processes)
        reached = dict.fromkeys(range(PARTITIONS), 0)
        for record in stream.records_of(stream.settings.heads, 0):
            head = decode_head(record.value)
            assert head.round <= min(reached.values()) + ROUNDS_AHEAD
            reached[head.partition] = max(head.round, reached[head.partition])


def test_a_partition_that_is_added_joins_at_the_next_barrier(grouped: MakeStream) -> None:
    with grouped(partitions=3) as stream:
        open_epoch(stream)
        processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge", "intake")]
        feed_rounds(stream, 1, 2, 3)
        stream.wait_until_round(2)
        stream.add_partition()
        stream.feed([event("new")] * 40, partition=3)
        feed_rounds(stream, 3, 5, 4)
        stream.finish(5, *processes)
        assert stream.checkpoint().position.offsets[3] >= 40


def test_the_next_epoch_begins_for_all_where_the_last_one_ended(grouped: MakeStream) -> None:
    """One ends at its horizon, among rounds that members have read by then, and one because somebody says so."""
    with grouped(partitions=3, horizon=7, at_horizon="roll") as stream:
        open_epoch(stream)
        processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge", "intake")]
        feed_rounds(stream, 1, 10, 3)
        stream.wait_until_logged("epoch 2, round 0")
        wait_until(lambda: stream.last_round() == 3, stream.logged)
        processes[0].terminate()
        assert ended(processes[0]) == 0, stream.logged()
        processes[0] = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 3, round 0")
        feed_rounds(stream, 11, 14, 3)
        wait_until(lambda: stream.last_round() == 4, stream.logged)
        for process in processes:
            process.terminate()
            assert ended(process) == 0, stream.logged()
        opened = EpochJournal(stream.settings).opened
        assert [len(each.epoch.offsets) for each in opened] == [3, 3, 3]
        with stream.redis() as redis:
            for number, rounds in ((1, 7), (2, 3), (3, 4)):
                found = verify_epoch(stream.settings, redis, number).certificate
                assert (found.verdict, found.rounds) == (Verdict.IDENTICAL, rounds)


def test_everything_is_counted_again_where_redis_is_lost(grouped: MakeStream) -> None:
    with grouped(partitions=3) as stream:
        open_epoch(stream)
        roles = ("worker", "shard", "merge", "intake")
        processes = [stream.run_in_role(role) for role in roles]
        feed_rounds(stream, 1, 8, 3)
        stream.finish(8, *processes)
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict == Verdict.IDENTICAL
            rebuild(stream.settings, redis, replace=True)
        feed_rounds(stream, 9, 10, 3)
        stream.finish(10, *[stream.run_in_role(role) for role in roles])


def forget_partitions(stream: ShardedStream, partitions: int) -> None:
    """Redis loses what members knew of them, and nothing else."""
    with stream.redis() as redis:
        for partition in range(partitions):
            lost = redis.keys(f"stream_dp:{{{state_of_partition(stream.settings, partition)}}}:*")
            assert redis.delete(*lost) > 1


def test_a_member_without_its_state_counts_again_what_shards_have_and_they_take_what_is_new(
    grouped: MakeStream,
) -> None:
    with grouped(partitions=3) as stream:
        open_epoch(stream)
        others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        member = stream.run_in_role("intake")
        feed_rounds(stream, 1, 8, 3)
        stream.wait_until_round(8)
        member.terminate()
        assert ended(member) == 0, stream.logged()
        forget_partitions(stream, 3)
        from_the_beginning = stream.logged().count("partition 2, round 0")
        feed_rounds(stream, 9, 10, 3)
        again = stream.run_in_role("intake")
        stream.finish(10, *others, again)
        assert stream.logged().count("partition 2, round 0") > from_the_beginning


def test_a_member_without_its_state_refuses_where_the_topic_has_lost_the_beginning(
    grouped: MakeStream, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("kafka") != "apache":
        pytest.skip("the embedded broker deletes no records")
    with grouped(partitions=3) as stream:
        open_epoch(stream)
        processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge", "intake")]
        feed_rounds(stream, 1, 4, 3)
        stream.wait_until_round(4)
        for process in processes:
            process.terminate()
            assert ended(process) == 0, stream.logged()
        forget_partitions(stream, 3)
        events, ends = stream.settings.events, stream.ends()
        with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
            admin.delete_records({TopicPartition(events, number): end for number, end in enumerate(ends)})
        assert ended(stream.run_in_role("intake")) == 2
        assert f"the topic {events!r} has lost its first records before they were counted" in stream.logged()


def test_members_read_by_the_schemas_of_a_registry_which_may_be_away(grouped: MakeStream) -> None:
    """Whoever settles a number first settles it for all; a member needs no registry for what another has settled."""
    types = {"/schemas/types": ["AVRO"]}
    known = {**types, "/schemas/ids/7": {"schema": json.dumps(FIRST)}}
    later = {**types, "/schemas/ids/7": 404, "/schemas/ids/8": {"schema": json.dumps(LATER)}}
    with front(scripted(known)) as registry:
        section = EventsSection(format="avro", items="sku || items", schema_registry=registry.address)
        with grouped(partitions=4, mapping=section) as stream:
            open_epoch(stream)
            others = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
            member = stream.run_in_role("intake")

            def feed(number: int, values: list[bytes]) -> None:
                for partition in range(4):
                    stream.feed(values, partition=partition)
                stream.close_rounds(1_000 * number)

            tea, milk = avro(7, FIRST, sku=["tea"]), avro(8, LATER, shop="s", items=["milk"])
            feed(1, [tea] * 20 + [b"{}"])
            stream.wait_until_round(1)
            registry.answers = scripted({}, status=503)
            member.kill()
            assert ended(member) == KILLED
            members = [stream.run_in_role("intake") for _ in range(2)]
            feed(2, [tea] * 20)
            stream.wait_until_round(2)
            feed(3, [tea] * 5 + [milk] * 20)
            stream.wait_until_logged("cannot be asked (it answers with status 503)")
            registry.answers = scripted(later)
            stream.finish(3, *others, *members)
            with stream.redis() as redis:
                assert verify_epoch(stream.settings, redis).certificate.verdict == Verdict.IDENTICAL
            assert stream.counts() == {"tea": 180, "milk": 80}


@pytest.mark.same_on_any_broker
def test_a_broker_without_transactions_is_refused_where_a_topic_is_to_be_copied(
    grouped: MakeStream, topic_prefix: str
) -> None:
    """The embedded one has none; test_rekey.py copies on Apache Kafka."""
    by_user: dict[str, Any] = {
        "unit": "user",
        "items_per_user": 3,
        "mapping": EventsSection(partitioner="murmur2"),
    }
    with grouped(partitions=3, source=f"{topic_prefix}-orders", **by_user) as stream:
        log.create_topics(stream.settings.kafka, stream.settings.data_source, partitions=3)
        assert ended(stream.run_in_role("rekey")) == 2
        assert "has no transactions, so use Apache Kafka" in stream.logged()


def test_one_partition_is_no_work_for_a_group(grouped: MakeStream) -> None:
    with grouped(partitions=1) as stream:
        worker = stream.start()
        assert ended(worker) == 2
        assert "has one partition, which one process reads" in stream.logged()


def test_a_frame_of_another_log_stops_the_stream(grouped: MakeStream) -> None:
    with grouped(partitions=3, shards=1) as stream:
        open_epoch(stream)
        worker, member = stream.run_in_role("worker"), stream.run_in_role("intake")
        feed_rounds(stream, 1, 2, 3)
        wait_until(lambda: stream.checkpoint().state.round == 2, stream.logged)
        record = stream.records_of(stream.settings.frames, 0)[0]
        frame = decode_of_shard(record.value)
        assert isinstance(frame, PartitionFrame)
        changed = msgspec.structs.replace(frame, round=3, labels=["milk"], counts=[99])
        stream.append(stream.settings.frames, 0, encode(changed))
        shard = stream.run_in_role("shard")
        feed_rounds(stream, 3, 3, 3)
        assert ended(shard) == 2
        assert "was counted in two ways in round 3" in stream.logged()
        head = decode_head(stream.records_of(stream.settings.heads, 0)[0].value)
        other = msgspec.structs.replace(head, round=5)
        stream.append(stream.settings.heads, 0, encode(other))
        feed_rounds(stream, 4, 5, 3)
        assert ended(worker) == 2
        assert "was counted in two ways in round 5" in stream.logged()
        member.terminate()
        assert ended(member) == 0


def test_killed_at_random_times_members_and_worker_give_the_same_bytes(grouped: MakeStream) -> None:
    """Events and barriers come while any of them dies; soak.py says how many die."""
    rng = random.Random(5)
    with grouped(horizon=65_535) as stream:
        open_epoch(stream)
        roles = ["worker", "shard", "merge", "intake", "intake", "intake"]
        running = [stream.run_in_role(role) for role in roles]
        for number in range(1, kills() + 1):
            feed_rounds(stream, number, number)
            time.sleep(rng.uniform(0, 1.0))
            place = rng.randrange(len(roles))
            running[place].kill()
            assert ended(running[place]) == KILLED, stream.logged()
            running[place] = stream.run_in_role(roles[place])
        stream.finish(kills(), *running)
