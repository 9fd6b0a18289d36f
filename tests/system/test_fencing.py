"""Two workers on one stream: only the newer one checkpoints, and whatever the older one still sends is the same."""

import asyncio
import gc
from itertools import count
from typing import Any

import pytest

from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import CheckpointStore
from stream_dp.store.fence import Fenced
from stream_dp.workers.histogram import Worker
from tests.system.example_events import some_events
from tests.system.streams import AnyWorker, Stream, ended, status_of, wake_up
from tests.system.waiting import wait_until
from tests.system.worker_process import Kill, Pause

REFUSED = 2


def rounds_released(stream: Stream) -> list[int]:
    return [decode_release(record.value or b"").round for record in stream.releases()]


def test_the_older_of_two_workers_stops_at_its_next_checkpoint(stream: Stream) -> None:
    stream.feed(some_events(100, seed=1))
    older = stream.start(checkpoint_every="200ms")
    stream.wait_until_round(100, older)
    newer = stream.start(checkpoint_every="200ms")
    stream.wait_until_logged("stream ", times=2)
    stream.feed(some_events(100, seed=2))
    assert ended(older) == REFUSED
    assert "another worker has taken this stream over" in stream.logged()
    assert "never retrieved" not in stream.logged()
    stream.wait_until_round(200, newer)
    stream.stop(newer)
    stream.check_everything()


def running(stream: Stream) -> list[AnyWorker]:
    return [worker for worker in stream.workers if status_of(worker) is None]


@pytest.mark.apache("roles")
def test_workers_that_start_while_events_arrive_take_over_one_from_the_other(stream: Stream) -> None:
    """The releases of a worker that is still busy must not look like a damaged log to the one that takes over."""
    for number in range(6):
        stream.feed(some_events(60, seed=number))
        stream.start(batch_rounds=2, checkpoint_every="50ms")
        stream.feed(some_events(60, seed=10 + number))
    wait_until(lambda: len(running(stream)) == 1, lambda: "more than one worker goes on")
    (last,) = running(stream)  # the last to take over, which need not be the last that was started
    assert {status_of(worker) for worker in stream.workers if worker is not last} == {REFUSED}
    stream.wait_until_round(720, last)
    stream.stop(last)
    assert "published" not in stream.logged()
    assert "reproduce" not in stream.logged()
    stream.check_everything()


@pytest.mark.parametrize(
    "moment", [Pause("take over", after=True), Pause("compare what is published")], ids=["before", "after"]
)
def test_what_the_older_one_releases_during_a_takeover_is_no_damaged_log(
    stream: Stream, moment: Pause
) -> None:
    """It had asked who holds the stream just before it was superseded, so its batch still goes out."""
    stream.feed(some_events(50, seed=7))
    older = stream.start(Pause("hand a batch to the producer"), checkpoint_every="1000")
    stream.wait_until_asleep(older)
    newer = stream.start(moment)  # before or after it has looked whether anything was released since its look
    stream.wait_until_asleep(newer)
    wake_up(older)
    assert ended(older) == REFUSED
    assert stream.releases()
    stream.feed(some_events(50, seed=8))
    wake_up(newer)
    stream.wait_until_round(100)
    stream.stop(newer)
    stream.check_everything()


@pytest.mark.parametrize(
    ("asleep_at", "nth"),
    [
        ("send a batch", 4),
        ("hand a batch to the producer", 4),
        ("wait for the broker", 2),  # a checkpoint that waits for a dead letter stands for several
        ("write a checkpoint", 2),
        ("compute", 4),
    ],
)
def test_a_zombie_that_wakes_up_cannot_checkpoint_and_sends_nothing_new(
    stream: Stream, asleep_at: str, nth: int
) -> None:
    """It sleeps in mid-batch while its successor goes on and checkpoints several times."""
    stream.feed(some_events(100, seed=3))
    zombie = stream.start(Pause(asleep_at, nth))
    stream.wait_until_asleep(zombie)
    successor = stream.start(checkpoint_every="10")
    stream.feed(some_events(60, seed=4))
    stream.wait_until_round(160, successor)
    before = len(stream.releases())
    wake_up(zombie)
    assert ended(zombie) == REFUSED
    assert "never retrieved" not in stream.logged()
    stream.stop(successor)
    stream.check_everything()
    if asleep_at == "send a batch":
        assert len(stream.releases()) > before, "the zombie was to send what its successor had sent already"


def test_a_zombie_of_a_successor_that_died_is_as_harmless(stream: Stream) -> None:
    """What the zombie adds comes after the successor's last releases and before those of the next worker."""
    stream.feed(some_events(150, seed=5))
    zombie = stream.start(Pause("send a batch", nth=5))
    stream.wait_until_asleep(zombie)
    assert stream.run(Kill("write a checkpoint", nth=3)) < 0
    wake_up(zombie)
    assert ended(zombie) == REFUSED
    assert stream.run(until_round=150) == 0
    stream.check_everything()


def test_two_workers_that_open_a_stream_at_once_agree_on_one_epoch(stream: Stream) -> None:
    """Both see an empty Redis; the noise of the one that lost must never appear."""
    stream.feed(some_events(40, seed=6))
    loser = stream.start(Pause("open the first epoch"))
    stream.wait_until_asleep(loser)
    winner = stream.start()
    stream.wait_until_round(40, winner)
    wake_up(loser)
    assert ended(loser) == REFUSED
    stream.stop(winner)
    assert list(range(1, 41)) == rounds_released(stream)
    stream.check_everything()


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("step", ["check_hold", "prepare", "commit"])
def test_one_that_is_displaced_at_any_step_says_so_and_reports_no_lost_task(
    stream: Stream, step: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, so that the moment at which another one takes over is exact."""
    own, right, calls, reported = stream.settings, getattr(CheckpointStore, step), count(1), list[str]()

    def displaced(store: CheckpointStore, *given: Any) -> Any:
        if store.is_taken and next(calls) == nth:
            CheckpointStore(store._redis, own.stream).take_over()
        return right(store, *given)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, about: reported.append(about["message"]))
        with pytest.raises(Fenced):
            await Worker(own).run()
        gc.collect()

    monkeypatch.setattr(CheckpointStore, step, displaced)
    stream.feed(some_events(200, seed=5))
    asyncio.run(work())
    assert reported == []
