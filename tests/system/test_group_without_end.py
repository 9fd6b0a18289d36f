"""Groups that read streams without end, on real servers: windows, and days of users.  See test_group_intake.py."""

import signal
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.days import days_of
from stream_dp.config.events_section import EventsSection
from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.resume import NewEpoch
from tests.system.epoch_steps import releases
from tests.system.sharded import ShardedStream, sharded_stream
from tests.system.streams import ended
from tests.system.test_user_days import FIRST, ZONE, brought
from tests.system.ticking import open_epoch
from tests.system.worker_process import Kill

PARTITIONS, WINDOW, HOUR = 3, 5, 3_600_000
ROLES = ("worker", "shard", "merge", "intake")
WINDOWS: dict[str, Any] = {"mechanism": "window", "window": WINDOW, "epsilon": 20.0, "delta": 0.2}
DAYS: dict[str, Any] = {
    "unit": "user-day",
    "items_per_user": 2,
    "items_per_event": 4,
    "time_zone": ZONE,
    "mapping": EventsSection(partitioner="murmur2"),
}


@pytest.fixture
def make(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Any:
    wanted = {"rounds": "ticks", "write_barriers": False, "intake": "group", "partitions": PARTITIONS}
    return lambda **changed: sharded_stream(
        kafka, redis_url, topic_prefix, tmp_path, 2, **{**wanted, "checkpoint_every": "2", **changed}
    )


def finish(stream: ShardedStream, rounds: int, *processes: Any) -> None:
    stream.finish(rounds, *processes)
    assert any(decode_release(record.value or b"").labels for record in stream.releases())
    with stream.redis() as redis:
        assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.IDENTICAL


def feed_windows(stream: ShardedStream, first: int, last: int) -> None:
    """Labels that are there for some rounds, in all partitions; now and then a round is empty."""
    for number in range(first, last + 1):
        if number % 4:
            for partition in range(PARTITIONS):
                item = f'{{"items": ["lately {number // 8}", "once {number} {partition}"]}}'.encode()
                stream.feed([item] * 3, partition=partition)
        stream.close_rounds(1_000 * number)


def test_windows_survive_kills_of_everybody(make: Any) -> None:
    """In and beside the first round of a block, whose chains begin anew."""
    with make(**WINDOWS) as stream:
        open_epoch(stream)
        others = [stream.run_in_role(role) for role in ("shard", "merge")]
        rounds = 0
        for steps in (4, 1, 3):
            feed_windows(stream, rounds + 1, rounds + steps)
            rounds += steps
            kill = Kill("prepare a checkpoint", 1, after=True)
            dying = [stream.run_in_role(role, kill) for role in ("worker", "intake")]
            assert [ended(each) for each in dying] == [-signal.SIGKILL] * 2, stream.logged()
        feed_windows(stream, rounds + 1, 24)
        finish(stream, 24, *others, *(stream.run_in_role(role) for role in ("worker", "intake", "intake")))
        with stream.redis() as redis:
            rebuild(stream.settings, redis, replace=True)
        feed_windows(stream, 25, 27)
        finish(stream, 27, *(stream.run_in_role(role) for role in ROLES))


def live_days(stream: ShardedStream, first: int, days: int, midnights: bool = True) -> None:
    """Four rounds a day, or three, the first over midnight, in which the same users bring the same and more."""
    for day in range(first, first + days):
        begins = days_of(ZONE).begins(day)
        if midnights or day == first:
            stream.close_rounds(begins)
        for hour in (1, 9, 17):
            for user in ("u", "v", "w"):
                value = brought(user, "tea", "milk", f"once {day} {hour}")
                for partition in range(PARTITIONS):  # those that do not stand where their user does are empty
                    stream.feed([value], partition=partition)
            stream.close_rounds(begins + hour * HOUR)
        if midnights:
            stream.close_rounds(days_of(ZONE).begins(day + 1) - 1_000)


def begin_days(stream: ShardedStream) -> None:
    """Open epoch 2, which counts all days, and tell where the first one begins."""
    open_epoch(stream)
    worker = stream.start(new_epoch=NewEpoch(recount=True))
    stream.wait_until_logged("epoch 2, round 0")
    worker.terminate()
    assert ended(worker) == 0


@pytest.mark.parametrize("mechanism", [{}, WINDOWS], ids=["running", "window"])
def test_days_survive_kills_of_members_and_worker(make: Any, mechanism: dict[str, Any]) -> None:
    with make(**DAYS, **mechanism) as stream:
        begin_days(stream)
        others = [stream.run_in_role(role) for role in ("shard", "merge")]
        live_days(stream, FIRST, 2)
        kill = Kill("prepare a checkpoint", 1, after=True)
        dying = [stream.run_in_role(role, kill) for role in ("worker", "intake")]
        assert [ended(each) for each in dying] == [-signal.SIGKILL] * 2, stream.logged()
        live_days(stream, FIRST + 2, 2, midnights=False)  # one round each is counted nowhere
        live_days(stream, FIRST + 4, 1)
        rounds = 4 + 4 + 3 + 2 + 4
        finish(
            stream, rounds, *others, *(stream.run_in_role(role) for role in ("worker", "intake", "intake"))
        )
        if not mechanism:
            held = [stream.shard_checkpoint(number) for number in range(2)]
            counts = {
                label: count
                for each in held
                if each is not None
                for label, count in zip(each.state.labels, each.state.counts.tolist(), strict=True)
            }
            assert (counts["tea"], counts["milk"]) == (15, 15), "each user's two items, once a day"


def test_the_rest_of_a_day_is_in_no_epoch_of_a_group(make: Any) -> None:
    with make(**DAYS) as stream:
        begin_days(stream)
        processes = [stream.run_in_role(role) for role in ROLES]
        live_days(stream, FIRST, 1)
        stream.wait_until_round(4)
        processes[0].terminate()
        assert ended(processes[0]) == 0, stream.logged()
        stream.close_rounds(days_of(ZONE).begins(FIRST + 1) + HOUR)
        processes[0] = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 3, round 0")
        for partition in range(PARTITIONS):
            stream.feed([brought("x", "late")], partition=partition)
        rest = (days_of(ZONE).begins(FIRST + 1) + hour * HOUR for hour in range(2, 24))
        stream.close_rounds(*rest)  # more rounds than members may be ahead
        live_days(stream, FIRST + 2, 1)
        stream.wait_until(lambda: len(releases(stream, 3)) == 4, processes[0])
        for process in processes:
            process.terminate()
            assert ended(process) == 0, stream.logged()
        found = stream.checkpoint()
        assert (found.epoch.number, found.epoch.first_day) == (3, FIRST + 2)
        with stream.redis() as redis:
            for epoch in (2, 3):
                assert verify_epoch(stream.settings, redis, epoch).certificate.verdict is Verdict.IDENTICAL
