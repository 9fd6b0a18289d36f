"""A worker that stands by takes over from one that is gone, and nothing that is released tells when."""

import os
import random
import signal
from multiprocessing.process import BaseProcess

import pytest

from tests.system.damage import flip
from tests.system.example_events import some_events
from tests.system.streams import Stream, ended, status_of, wake_up
from tests.system.ticking import NO_MORE, MakeStream, rounds_of_the_log
from tests.system.worker_process import Kill, Pause

WORKS = "epoch 1, round "
STANDS_BY = "this one stands by"
READY = "it is ready to take over"
TAKES_OVER = "the other worker is gone, this one takes over"
COULD_NOT = "this one could not take over"
REFUSED = 2


def pair(stream: Stream, standby: bool = False, dies: Kill | None = None) -> tuple[BaseProcess, BaseProcess]:
    """One that works and one that stands by, with 30 rounds released; the latter dies when it has taken over."""
    stream.feed(some_events(30, seed=1))
    active = stream.start(standby=standby)
    rests(stream, active)
    waiting = stream.start(dies, standby=True)
    stream.wait_until(lambda: STANDS_BY in stream.logged(), waiting)
    assert stream.logged().count(WORKS) == 1
    return active, waiting


def rests(stream: Stream, worker: BaseProcess) -> None:
    """It has released 30 rounds, and has written the one checkpoint that is due by then."""
    stream.wait_until_round(30, worker)
    stream.wait_until(lambda: stream.checkpoint().state.round >= 20, worker)


def send(worker: BaseProcess, what: signal.Signals) -> None:
    assert worker.pid is not None
    os.kill(worker.pid, what)


def hang(stream: Stream, worker: BaseProcess) -> None:
    """It stands still for longer than its lease lasts."""
    send(worker, signal.SIGSTOP)
    stream.wait_until_asleep(worker)
    end_lease(stream)


def end_lease(stream: Stream) -> None:
    """Of a worker that is asleep."""
    with stream.redis() as redis:
        assert redis.pexpire(f"stream_dp:{{{stream.settings.stream}}}:lease", 1)


def takes_over(stream: Stream, waiting: BaseProcess, times: int = 1) -> None:
    """It does so, and releases what comes."""
    stream.wait_until(lambda: stream.logged().count(TAKES_OVER) == times, waiting)
    before = len(stream.events())
    stream.feed(some_events(20, seed=before))
    stream.wait_until_round(before + 20, waiting)


def stop(stream: Stream, worker: BaseProcess) -> None:
    stream.stop(worker)
    stream.check_everything()


@pytest.mark.apache("roles")
def test_it_takes_over_from_a_worker_that_was_killed(stream: Stream) -> None:
    active, waiting = pair(stream)
    stream.wait_until(lambda: READY in stream.logged(), waiting)
    send(active, signal.SIGKILL)
    takes_over(stream, waiting)
    stop(stream, waiting)


def test_it_takes_over_from_a_worker_that_stops(stream: Stream) -> None:
    active, waiting = pair(stream)
    stream.stop(active)
    takes_over(stream, waiting)
    stop(stream, waiting)


def test_a_worker_that_hung_stops_when_it_wakes_up(stream: Stream) -> None:
    active, waiting = pair(stream)
    hang(stream, active)
    takes_over(stream, waiting)
    wake_up(active)
    assert ended(active) == 2
    assert "another worker has taken this stream over" in stream.logged()
    stop(stream, waiting)


def test_one_that_stood_by_itself_stands_by_again_and_comes_back(stream: Stream) -> None:
    active, waiting = pair(stream, standby=True)
    hang(stream, active)
    takes_over(stream, waiting)
    wake_up(active)
    stream.wait_until(lambda: stream.logged().count(STANDS_BY) == 2, active)
    assert status_of(active) is None
    send(waiting, signal.SIGKILL)
    takes_over(stream, active, times=2)
    stop(stream, active)


def test_of_two_that_stand_by_one_takes_over_and_then_the_other(stream: Stream) -> None:
    active, first = pair(stream)
    second = stream.start(standby=True)
    stream.wait_until(lambda: stream.logged().count(STANDS_BY) == 2, second)
    send(active, signal.SIGKILL)
    stream.wait_until_logged(TAKES_OVER)
    stream.feed(some_events(20, seed=2))
    stream.wait_until_round(50)
    first.terminate()
    second.terminate()
    assert [ended(first), ended(second)] == [0, 0]
    stream.check_everything()


def test_a_worker_that_does_not_stand_by_takes_a_stream_over_at_once(stream: Stream) -> None:
    active, waiting = pair(stream)
    other = stream.start()
    assert ended(active) == 2
    takes_over_not = stream.logged().count(TAKES_OVER)
    stream.feed(some_events(20, seed=3))
    stream.wait_until_round(50, other)
    assert (takes_over_not, status_of(waiting)) == (0, None)
    stream.stop(waiting)
    stop(stream, other)


def test_where_nobody_works_it_begins(stream: Stream) -> None:
    stream.feed(some_events(20, seed=4))
    worker = stream.start(standby=True)
    stream.wait_until_round(20, worker)
    assert STANDS_BY not in stream.logged()
    stop(stream, worker)


@pytest.mark.parametrize(
    "step",
    [
        "take over",
        "read what is published",
        "compare what is published",
        "hand a batch to the producer",
        "prepare a checkpoint",
    ],
)
def test_one_that_is_killed_while_it_takes_over_is_followed_by_the_next(stream: Stream, step: str) -> None:
    active, waiting = pair(stream, dies=Kill(step))
    send(active, signal.SIGKILL)
    stream.feed(some_events(30, seed=5))
    assert ended(waiting) == -signal.SIGKILL
    third = stream.start(standby=True)
    stream.wait_until_round(60, third)
    stop(stream, third)


@pytest.mark.parametrize(
    "moment",
    [
        Pause("write a checkpoint", nth=3),
        Pause("queue the checkpoint's commands", nth=3, after=True),
        Pause("write a checkpoint", nth=3, after=True),
    ],
    ids=["before", "amid", "after"],
)
def test_a_checkpoint_that_is_written_when_the_turn_comes_is_whole_or_not_there(
    stream: Stream, moment: Pause
) -> None:
    stream.feed(some_events(30, seed=1))
    active = stream.start(moment)
    stream.wait_until_round(30, active)
    waiting = stream.start(standby=True)
    stream.wait_until(lambda: STANDS_BY in stream.logged(), waiting)
    stream.feed(some_events(30, seed=6))
    stream.wait_until_asleep(active)
    end_lease(stream)
    takes_over(stream, waiting)
    wake_up(active)
    assert ended(active) == REFUSED
    stop(stream, waiting)


def test_a_bit_that_was_flipped_is_refused_although_an_older_copy_is_good(stream: Stream) -> None:
    active, waiting = pair(stream)
    send(active, signal.SIGSTOP)
    stream.wait_until_asleep(active)
    releases = stream.releases()
    with stream.redis() as redis:
        flip(redis, f"stream_dp:{{{stream.settings.stream}}}:counts".encode(), random.Random(7))
    end_lease(stream)
    assert ended(waiting) == REFUSED
    assert "the state in Redis does not fit together (counts)" in stream.logged()
    assert stream.releases() == releases


def test_a_label_that_was_changed_after_it_was_read_stops_it_and_nothing_wrong_is_released(
    stream: Stream,
) -> None:
    """It has the right one in memory, and adds none to those in Redis before it has looked at them."""
    active, waiting = pair(stream)
    send(active, signal.SIGSTOP)
    stream.wait_until_asleep(active)
    whole, name = stream.redis_keys(), f"stream_dp:{{{stream.settings.stream}}}:labels".encode()
    with stream.redis() as redis:
        flip(redis, name, random.Random(7))
        end_lease(stream)
        stream.feed(some_events(20, seed=6))
        assert ended(waiting) == REFUSED
        assert "the state in Redis does not fit together (labels)" in stream.logged()
        redis.restore(name, 0, whole[name], replace=True)
    assert stream.run(until_round=50) == 0
    stream.check_everything()


def test_it_says_why_it_could_not_take_over_and_does_so_when_that_is_put_right(stream: Stream) -> None:
    stream.feed(some_events(30, seed=1))
    active = stream.start()
    rests(stream, active)
    whole = stream.redis_keys()
    with stream.redis() as redis:
        name = f"stream_dp:{{{stream.settings.stream}}}:counts".encode()
        flip(redis, name, random.Random(7))
        waiting = stream.start(standby=True)
        stream.wait_until(lambda: COULD_NOT in stream.logged(), waiting)
        assert "(counts)" in stream.logged()
        redis.restore(name, 0, whole[name], replace=True)
    send(active, signal.SIGKILL)
    takes_over(stream, waiting)
    stop(stream, waiting)


def test_the_process_that_writes_barriers_is_there_before_the_turn(make_stream: MakeStream) -> None:
    ticks = {"rounds": "ticks", "tick_seconds": 0.2, "horizon": 16_383, "checkpoint_every": "3"}
    with make_stream(**ticks) as stream:
        stream.feed(some_events(20, seed=1))
        active = stream.start()
        stream.wait_until_round(4, active)
        [of_active] = stream.writers()
        waiting = stream.start(standby=True)
        stream.wait_until(lambda: len(stream.writers()) == 2, waiting)
        [ready] = set(stream.writers()) - {of_active}
        stream.wait_until(lambda: STANDS_BY in stream.logged(), waiting)
        send(active, signal.SIGKILL)
        stream.wait_until(lambda: stream.logged().count(WORKS) == 2, waiting)
        stream.feed(some_events(20, seed=2))
        stream.wait_until_round(stream.last_round() + 4, waiting)
        stream.wait_until(lambda: stream.writers() == [ready], waiting)
        stream.stop(waiting)
        stream.wait_until_no_writer()
        assert stream.run(until_round=rounds_of_the_log(stream), **NO_MORE) == 0
        stream.check_everything()
