"""A topic with several partitions, read by one worker: the same bytes as the log itself gives."""

import random
import signal
import time

import pytest

from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.journaled_ledger import look
from stream_dp.events.barrier_chain import decode_barrier
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from stream_dp.workers.resume import NewEpoch
from tests.system.example_events import event, some_events
from tests.system.partitioned import KINDS, PARTITIONS, feed_segments, rounds
from tests.system.soak import kills
from tests.system.streams import ended
from tests.system.ticking import MakeStream, open_epoch
from tests.system.worker_process import Kill

KILLED = -signal.SIGKILL


@pytest.mark.apache("roles")
@pytest.mark.parametrize("kind", KINDS)
def test_one_worker_counts_all_partitions(spread: MakeStream, kind: str) -> None:
    with spread(rounds=kind) as stream:
        open_epoch(stream)
        feed_segments(stream, 1, 4)
        assert stream.run(until_round=rounds(kind, 4)) == 0
        assert stream.checkpoint().position.offsets == (12, 12, 12)
        feed_segments(stream, 5, 8)
        stream.feed([event("open")] * 5, partition=1)  # behind the last barrier
        assert stream.run(Kill("prepare a checkpoint"), checkpoint_every="1") < 0
        assert stream.run(until_round=rounds(kind, 8)) == 0
        stream.check_everything()
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict == Verdict.IDENTICAL
            before = stream.checkpoint()
            rebuild(stream.settings, redis, replace=True)
            after = stream.checkpoint()
        assert before.position == after.position
        assert before.state.labels == after.state.labels
        feed_segments(stream, 9, 10)
        assert stream.run(until_round=rounds(kind, 10)) == 0
        stream.check_everything()


def test_another_log_is_told_from_the_one_that_was_counted(spread: MakeStream) -> None:
    """Worker and verification look at the last record of every partition, and at all before it."""
    with spread(rounds="ticks", items_per_event=1, delta=0.1) as stream:
        open_epoch(stream)
        for number in range(1, 4):
            stream.spread([event("tea")] * 60, PARTITIONS)
            stream.close_rounds(1_000 * number)
        assert stream.run(until_round=3) == 0
        kept = [stream.events(number) for number in range(PARTITIONS)]
        for place, verdict in ((59, "last"), (10, "verified")):
            edited = [list(records) for records in kept]
            edited[2][place] = edited[2][place]._replace(value=event("milk"))
            stream.rewrite(stream.settings.events, [each for part in edited for each in part])
            with stream.redis() as redis:
                found = verify_epoch(stream.settings, redis).certificate.verdict
            assert found is Verdict.EDITED
            if verdict == "last":
                assert "offset 59 of partition 2, is missing or has changed" in stream.refusal()
        short = [each for part in kept[:2] for each in part] + kept[2][:-1]
        stream.rewrite(stream.settings.events, short)
        assert "is not the log that was counted" in stream.refusal()
        stream.rewrite(stream.settings.events, [each for part in kept for each in part])
        stream.close_rounds(4_000)
        assert stream.run(until_round=4) == 0
        stream.check_everything()


@pytest.mark.apache("topics")
@pytest.mark.parametrize("kind", ["ticks", "every-3"])
def test_a_partition_that_is_added_joins_at_the_next_barrier(spread: MakeStream, kind: str) -> None:
    with spread(rounds=kind) as stream:
        open_epoch(stream)
        feed_segments(stream, 1, 1)
        worker = stream.start()
        stream.wait_until_round(rounds(kind, 1), worker)
        stream.add_partition()
        stream.feed([event("new")] * 6, partition=3)
        feed_segments(stream, 2, 2, partitions=4)
        after = {"ticks": 2, "every-3": (12 + 12 + 6) // 3}[kind]
        stream.wait_until_round(after, worker)
        stream.stop(worker)
        assert stream.checkpoint().position.offsets == (7, 7, 7, 9)
        stream.check_everything()
        feed_segments(stream, 4, 4, partitions=4)
        assert stream.run(until_round=after + rounds(kind, 1)) == 0
        stream.check_everything()


@pytest.mark.apache("topics")
def test_one_partition_without_barriers_needs_a_new_epoch_once_there_are_two(spread: MakeStream) -> None:
    with spread(rounds="per-event", partitions=1) as stream:
        stream.feed(some_events(12, seed=1))
        worker = stream.start()
        stream.wait_until_round(12, worker)
        stream.add_partition()
        assert ended(worker) == 2
        assert "it got 2 partitions instead of 1" in stream.logged()
        stream.feed(some_events(6, seed=2), partition=1)
        assert "open a new epoch, which counts all and is charged" in stream.refusal()
        worker = stream.start(new_epoch=NewEpoch())
        stream.wait_until_logged("epoch 2, round 0")
        stream.close_rounds(1_000)
        stream.wait_until(lambda: stream.last_round() == 6, worker)
        stream.stop(worker)
        first, second = EpochJournal(stream.settings).opened
        assert first.epoch.after_barrier is None
        assert second.epoch.offsets == (12, 0)
        with stream.redis() as redis:
            charges = look(stream.settings.kafka_address, redis, stream.settings.data_source).charges()
        assert [(each.ends, each.first_offset, each.further_offsets) for each in charges] == [
            ((12,), 0, ()),
            ((), 12, (0,)),
        ]


def test_an_epoch_that_ends_among_the_events_of_a_barrier_is_followed_there(spread: MakeStream) -> None:
    with spread(rounds="every-3", horizon=7, at_horizon="roll") as stream:
        open_epoch(stream)
        feed_segments(stream, 1, 2)
        worker = stream.start()
        stream.wait_until_logged("epoch 2, round 0")
        stream.wait_until(lambda: stream.last_round() == 1, worker)
        stream.stop(worker)
        first, second = EpochJournal(stream.settings).opened
        closed = EpochJournal(stream.settings).closed[1]
        assert closed.ends == second.epoch.offsets == (8, 8, 5)
        with stream.redis() as redis:
            for number in (1, 2):
                found = verify_epoch(stream.settings, redis, number).certificate
                assert (found.verdict, found.epoch) == (Verdict.IDENTICAL, number)
        assert first.epoch.further_offsets == (0, 0)


@pytest.mark.apache("offsets")
def test_the_writer_of_barriers_says_where_each_partition_ends(spread: MakeStream) -> None:
    """Partitions that hold nothing are named too, and hold up nothing."""
    with spread(rounds="ticks", tick_seconds=0.1, write_barriers=True) as stream:
        worker = stream.start()
        stream.wait_until_logged("epoch 1, round 0")
        stream.feed(some_events(9, seed=1), partition=1)
        stream.wait_until(lambda: stream.checkpoint().position.offsets == (0, 9, 0), worker)
        stream.stop(worker)
        stream.wait_until_no_writer()
        said = [decode_barrier(value) for _, value in stream.barrier_records()]
        assert all(each is not None and set(each.offsets) == {"0", "1", "2"} for each in said)
        assert stream.run(until_round=len(said), write_barriers=False) == 0
        stream.check_everything()


@pytest.mark.parametrize("kind", ["ticks", "per-event"])
def test_killed_at_random_times_twelve_partitions_give_the_same_bytes(spread: MakeStream, kind: str) -> None:
    """Events and barriers come while workers run and die; soak.py says how many die."""
    rng = random.Random(5)
    with spread(rounds=kind, partitions=12, horizon=65_535) as stream:
        open_epoch(stream)
        events = 0
        for number in range(1, kills() + 1):
            for _ in range(3):
                values = some_events(rng.randint(0, 12), seed=rng.randrange(10**6))
                stream.feed(values, partition=rng.randrange(12))
                events += len(values)
            stream.close_rounds(1_000 * number)
            worker = stream.start()
            time.sleep(rng.uniform(0, 1.0))
            worker.kill()
            assert ended(worker) == KILLED
        assert stream.run(until_round=kills() if kind == "ticks" else events) == 0
        stream.check_everything()
