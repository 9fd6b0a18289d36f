"""A stream in shards on real servers: what subscribers read is what one worker would have released, byte for byte.

`check_everything` compares the releases topic and Redis with what a pipeline in this process makes of the log.
"""

import asyncio
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from typer.testing import CliRunner

import stream_dp
from stream_dp.cli import app
from stream_dp.epochs.journal import EpochJournal
from stream_dp.kafka import log
from stream_dp.kafka.clients import producer_client
from stream_dp.pipeline.frames import decode_frame
from stream_dp.releases.release import decode_release
from stream_dp.releases.topic import BadPosition
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.workers.resume import NewEpoch
from stream_dp.workers.shard import ShardWorker
from stream_dp.workers.stream_topics import prepare_topics_of_shards
from tests.system.example_events import some_events
from tests.system.shard_process import STEPS
from tests.system.sharded import SESSION_MILLISECONDS, ShardedStream, sharded_stream
from tests.system.streams import ended, wake_up
from tests.system.waiting import wait_until
from tests.system.worker_process import Delay, Kill, Pause

REFUSED = 2


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[ShardedStream]:
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, shards=4) as stream:
        yield stream


@pytest.mark.parametrize("shards", [1, 2, 8])
def test_any_number_of_shards_releases_what_one_worker_releases(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, shards: int
) -> None:
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, shards) as stream:
        stream.feed(some_events(200, seed=shards))
        processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
        stream.finish(200, *processes)


def test_shards_move_when_members_come_and_go(stream: ShardedStream) -> None:
    """Members are added, stopped and killed while events come, and the sequencer dies in mid-frame twice."""
    merge = stream.run_in_role("merge")
    sequencer = stream.run_in_role("worker", Kill("hear that a partition has it", nth=7, after=True))
    members = [stream.run_in_role("shard")]
    stream.feed(some_events(100, seed=1))
    assert ended(sequencer) < 0
    sequencer = stream.run_in_role("worker", Kill("hear that a partition has it", nth=42, after=True))
    members.append(stream.run_in_role("shard"))
    stream.feed(some_events(100, seed=2))
    assert ended(sequencer) < 0
    sequencer = stream.run_in_role("worker")
    stream.wait_until_round(150)
    members[0].kill()
    members.append(stream.run_in_role("shard"))
    stream.feed(some_events(100, seed=3))
    stream.wait_until_round(300)
    members[1].terminate()
    assert ended(members[1]) == 0
    merge.kill()
    stream.feed(some_events(100, seed=4))
    stream.finish(400, sequencer, members[2], stream.run_in_role("merge"))


def test_shards_that_take_longer_to_open_than_a_silent_member_is_waited_for_are_counted(
    stream: ShardedStream,
) -> None:
    """Members that were put out while they open a shard would put each other out for ever."""
    others = [stream.run_in_role("worker"), stream.run_in_role("merge")]
    stream.feed(some_events(60, seed=1))
    slow = Delay("take over", seconds=1.5 * SESSION_MILLISECONDS / 1000)
    members = [stream.run_in_role("shard", slow) for _ in range(2)]
    stream.wait_until_logged("shard 3, round 0")
    members.append(stream.run_in_role("shard"))
    stream.finish(60, *others, *members)


def test_killed_at_every_step_a_member_leaves_nothing_out_and_nothing_twice(stream: ShardedStream) -> None:
    """One member after the other dies before or after a step, and the last one finishes."""
    rng = random.Random(5)
    sequencer, merge = stream.run_in_role("worker"), stream.run_in_role("merge")
    steps = [step for step in STEPS["shard"] if step != "begin an epoch"]
    kills = [Kill("begin an epoch"), Kill("begin an epoch", after=True)]  # there is no checkpoint before
    kills += [Kill(step, rng.randint(1, 3), rng.random() < 0.5) for step in rng.sample(steps, len(steps))]
    for number, kill in enumerate(kills):
        stream.feed(some_events(20, seed=number))
        assert ended(stream.run_in_role("shard", kill)) < 0, f"{kill} was never reached"
    stream.finish(20 * len(kills), sequencer, merge, stream.run_in_role("shard"))


@pytest.mark.parametrize("asleep_at", ["hand a batch to the producer", "write a checkpoint"])
def test_a_sequencer_that_slept_can_only_say_again_what_its_successor_says(
    stream: ShardedStream, asleep_at: str
) -> None:
    """It wakes up with frames in its hands, cut into other ranges than those of its successor."""
    others = [stream.run_in_role("shard"), stream.run_in_role("merge")]
    stream.feed(some_events(100, seed=1))
    zombie = stream.run_in_role("worker", Pause(asleep_at, nth=3 if asleep_at.startswith("write") else 22))
    stream.wait_until_asleep(zombie)
    successor = stream.run_in_role("worker", batch_rounds=5)
    stream.feed(some_events(60, seed=2))
    stream.wait_until_round(160)
    before = [len(stream.records_of(stream.settings.frames, shard)) for shard in range(4)]
    wake_up(zombie)
    assert ended(zombie) == REFUSED
    after = [len(stream.records_of(stream.settings.frames, shard)) for shard in range(4)]
    assert before != after or not asleep_at.startswith("hand"), "it was to send what it had in its hands"
    stream.feed(some_events(20, seed=3))
    stream.finish(180, successor, *others)
    for shard in range(4):
        said: dict[int, tuple[bytes, int, dict[str, int]]] = {}
        for record in stream.records_of(stream.settings.frames, shard):
            frame = decode_frame(record.value)
            told = zip(frame.histories(), frame.timestamps, frame.admitted(), strict=True)
            for round_number, (head, closed, labels) in enumerate(told, frame.first):
                assert (head, closed, labels) == said.setdefault(round_number, (head, closed, labels))


@pytest.mark.parametrize("asleep_at", ["compute", "write a checkpoint"])
def test_a_member_that_slept_finds_its_shards_taken_over(stream: ShardedStream, asleep_at: str) -> None:
    """It gives them up, and is a member like any other again."""
    others = [stream.run_in_role("worker"), stream.run_in_role("merge")]
    stream.feed(some_events(100, seed=1))
    zombie = stream.run_in_role("shard", Pause(asleep_at, nth=3))  # each shard is saved once in any case
    stream.wait_until_asleep(zombie)
    stream.feed(some_events(60, seed=2))
    successor = stream.run_in_role("shard")
    stream.wait_until_round(160)
    wake_up(zombie)
    stream.feed(some_events(60, seed=3))
    stream.finish(220, successor, zombie, *others)


def test_of_two_merges_one_works_and_the_other_takes_its_place(stream: ShardedStream) -> None:
    """The first one sleeps with a batch on its way to the broker, and somebody forges a release of a later epoch."""
    others = [stream.run_in_role("worker"), stream.run_in_role("shard")]
    zombie = stream.run_in_role("merge", Pause("hear that the broker has it"))
    stream.feed(some_events(100, seed=1))
    stream.wait_until_asleep(zombie)
    topic = stream.settings.shard_releases
    last = stream.records_of(topic, 0)[-1].value or b""
    stream.append(topic, 0, last.replace(b'"epoch":1,', b'"epoch":6,'))
    successor = stream.run_in_role("merge")
    stream.feed(some_events(60, seed=2))
    stream.wait_until_round(160)
    wake_up(zombie)
    stream.feed(some_events(20, seed=3))
    stream.finish(180, successor, zombie, *others)


def test_subscribers_may_put_the_rounds_together_themselves(stream: ShardedStream) -> None:
    """From anywhere, and exactly as those who read what a merge has written."""
    stream.feed(some_events(200, seed=1))
    processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
    stream.finish(200, *processes)
    place = stream.settings.kafka, stream.settings.stream
    with stream_dp.subscribe(*place, "earliest") as merged:
        expected = list(islice(merged, 200))
    assert {"tea", "milk", "päron", "梨"} <= set(expected[-1].labels), "each came more than 30 times"
    with stream_dp.subscribe(*place, "earliest", shards=True) as own:
        assert expected == list(islice(own, 200))
    for start, first in (("latest", 199), (70, 69)):
        with stream_dp.subscribe(*place, start, shards=True) as own:
            assert expected[first:] == list(islice(own, 200 - first))
    with stream_dp.subscribe(*place, position=expected[30].position, shards=True) as own:
        assert next(own) == expected[31]
    with pytest.raises(BadPosition), stream_dp.subscribe(*place, position="1.5.00", shards=True):
        pass


def test_a_shard_whose_redis_is_lost_is_made_again_from_its_frames(stream: ShardedStream) -> None:
    others = [stream.run_in_role("worker"), stream.run_in_role("merge")]
    stream.feed(some_events(150, seed=1))
    member = stream.run_in_role("shard")
    stream.wait_until_round(150)
    member.kill()
    with stream.redis() as client:
        for name in client.keys(f"stream_dp:{{{stream.settings.stream}/2}}:*"):
            client.delete(name)
    released = len(stream.records_of(stream.settings.shard_releases, 2))
    stream.feed(some_events(50, seed=2))
    stream.finish(200, stream.run_in_role("shard"), *others)
    assert len(stream.records_of(stream.settings.shard_releases, 2)) == released + 50


def test_all_that_redis_held_but_the_key_can_be_made_again(stream: ShardedStream) -> None:
    processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
    stream.feed(some_events(100, seed=1))
    stream.wait_until_round(100)
    stream.wait_until_saved(100)
    for process in processes:
        process.kill()
        ended(process)
    key = f"stream_dp:{{{stream.settings.stream}}}:key".encode()
    with stream.redis() as client:
        lost = [name for name in client.keys(f"stream_dp:{{{stream.settings.stream}*") if name != key]
        client.delete(*lost)
        assert len(lost) > 20
        assert "Redis has no state" in stream.refusal()
        rebuild(stream.settings, client)
    stream.feed(some_events(50, seed=2))
    stream.finish(150, *(stream.run_in_role(role) for role in ("worker", "shard", "merge")))
    with stream.redis() as client:
        assert verify_epoch(stream.settings, client).certificate.sound


@pytest.mark.parametrize("foreign", [0, 150], ids=["gone", "other records in their place"])
def test_releases_of_shards_that_are_lost_are_written_again_by_the_shards(
    stream: ShardedStream, foreign: int
) -> None:
    own = stream.settings

    def released() -> list[list[bytes | None]]:
        return [
            [record.value for record in stream.records_of(own.shard_releases, shard)]
            for shard in range(own.shards)
        ]

    processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
    stream.feed(some_events(100, seed=1))
    stream.wait_until_round(100)
    stream.wait_until_saved(100)
    for process in processes:
        process.kill()
        ended(process)
    before = released()
    with KafkaAdminClient(bootstrap_servers=own.kafka) as admin:
        admin.delete_topics([own.shard_releases])
        wait_until(lambda: own.shard_releases not in admin.list_topics(), stream.logged)
    log.create_topics(own.kafka, own.shard_releases, partitions=own.shards)
    with producer_client(own.kafka) as producer:
        for number in range(foreign):
            for shard in range(own.shards):
                producer.send(own.shard_releases, b"%d" % number, partition=shard)
    refused = stream.run_in_role("shard")
    assert ended(refused) == 2
    assert "with `stream-dp rebuild --replace`, after which the shards" in stream.logged().splitlines()[-1]
    with stream.redis() as client:
        rebuild(own, client, replace=True)
    stream.feed(some_events(50, seed=2))
    stream.finish(150, *(stream.run_in_role(role) for role in ("worker", "shard", "merge")))
    assert [each[foreign:][: len(old)] for each, old in zip(released(), before, strict=True)] == before


def test_epochs_follow_one_another_in_all_shards(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    changed = {"horizon": 63, "at_horizon": "roll"}
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, 2, **changed) as stream:
        stream.feed(some_events(150, seed=1))
        for role in ("worker", "shard", "merge"):
            stream.run_in_role(role)
        wait_until(lambda: len(stream.releases()) >= 150, stream.logged)
        expected = []
        for opened in EpochJournal(stream.settings).opened:
            pipeline = stream.pipeline(opened.epoch)
            expected += [part.value for part in pipeline.process(stream.events()).releases]
        assert expected == [record.value for record in stream.releases()]
        assert {1, 2, 3} == {decode_release(value).epoch for value in expected}


def test_another_epoch_may_have_another_number_of_shards(stream: ShardedStream) -> None:
    """First none, then four, then two; each epoch is counted to its end with the shards that it began with."""
    for number, shards in enumerate((0, 4, 2)):
        stream.feed(some_events(50, seed=number))
        wish = NewEpoch() if number else None
        worker = stream.start(new_epoch=wish, shards=shards)
        others = [stream.run_in_role(role) for role in ("shard", "merge") if shards]
        stream.wait_until_logged(f"stream {stream.settings.stream}: epoch {number + 1}, round 0")
        stream.feed(some_events(50, seed=10 + number))
        wait_until(lambda: len(stream.releases()) == 100 * (number + 1), stream.logged)  # noqa: B023
        for process in (worker, *others):
            process.terminate()
            assert ended(process) == 0, stream.logged()
    journal, expected = EpochJournal(stream.settings), []
    for opened in journal.opened:
        number, first = opened.epoch.number, opened.epoch.first_offset
        end = journal.closed[number].end_offset if number in journal.closed else 300
        pipeline = stream.pipeline(opened.epoch)
        expected += [part.value for part in pipeline.process(stream.events()[first:end]).releases]
    assert len(journal.opened) == 3
    assert expected == [record.value for record in stream.releases()]


def test_the_number_of_shards_is_fixed_while_an_epoch_runs(stream: ShardedStream) -> None:
    processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
    stream.feed(some_events(30, seed=1))
    stream.finish(30, *processes)
    for shards in (0, 2):
        told = f"runs with shards = 4 and the settings say shards = {shards}"
        assert told in stream.refusal(shards=shards)


def test_frames_that_were_lost_are_noticed(stream: ShardedStream) -> None:
    processes = [stream.run_in_role(role) for role in ("worker", "shard", "merge")]
    stream.feed(some_events(30, seed=1))
    stream.finish(30, *processes)
    frames = stream.settings.frames
    with KafkaAdminClient(bootstrap_servers=stream.settings.kafka) as admin:
        admin.delete_topics([frames])
        wait_until(lambda: frames not in admin.list_topics(), lambda: "the topic is not deleted")
    assert "has lost frames that were sent" in stream.refusal()


def test_a_shard_does_not_go_on_after_releases_that_its_frames_do_not_give(stream: ShardedStream) -> None:
    sequencer = stream.run_in_role("worker")
    stream.feed(some_events(60, seed=1))
    assert ended(stream.run_in_role("shard", Kill("write a checkpoint", nth=3))) < 0
    topic, changed = stream.settings.shard_releases, 0
    for shard in range(4):
        for record in stream.records_of(topic, shard)[-1:]:
            assert record.value is not None
            stream.append(topic, shard, record.value.replace(b'"tau":', b'"tau":1'))
            changed += 1
    assert changed, "the shard whose checkpoint was to be written had released before"
    member = stream.run_in_role("shard")
    assert ended(member) == REFUSED
    sentences = "two different releases", "does not reproduce what was published"
    assert any(each in stream.logged() for each in sentences), (
        "which one depends on how far the checkpoint was"
    )
    sequencer.terminate()


def test_rounds_that_are_left_out_do_not_count_as_released(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A hundred rounds of two shards, of which every tenth is released; the member is this process."""
    with sharded_stream(kafka, redis_url, topic_prefix, tmp_path, 2, release="every-10") as stream:
        stream.feed(some_events(100, seed=1))
        stream.run_in_role("worker")

        async def until_all_are_counted(member: ShardWorker) -> None:
            working = asyncio.create_task(member.run())
            for number in (0, 1):
                while len(await asyncio.to_thread(stream.records_of, shard_releases, number)) < 10:
                    await asyncio.sleep(0.05)
            member.stop()
            await working

        prepare_topics_of_shards(stream.settings)
        shard_releases, member = stream.settings.shard_releases, ShardWorker(stream.settings)
        asyncio.run(until_all_are_counted(member))
        assert member.watch.facts.releases == 20


def test_the_commands_do_the_same(stream: ShardedStream) -> None:
    stream.feed(some_events(50, seed=1))
    command = ("-c", "from stream_dp.cli import main; main()")
    processes = [stream.start_faust(*command, role) for role in ("worker", "shard", "merge")]
    stream.finish(50, *processes)


@pytest.mark.parametrize("role", ["shard", "merge"])
def test_a_stream_that_is_not_divided_has_nothing_for_shards_to_do(role: str) -> None:
    refused = CliRunner().invoke(app, [role, "--stream", "x"])
    assert refused.exit_code == REFUSED
    assert "set shards to their number" in refused.output
    assert "Traceback" not in refused.output
