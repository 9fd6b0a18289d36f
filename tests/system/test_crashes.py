"""kill -9 at every step, and at any time: nothing lost, nothing twice, nothing drawn anew.

Whatever was killed and restarted, the union of all releases and the state in Redis must equal what one worker
that never stops makes of the same log.
"""

import random
import signal
import time
from collections.abc import Iterator

import pytest

from tests.system.example_events import some_events
from tests.system.soak import kills
from tests.system.streams import Stream, ended
from tests.system.ticking import MakeStream
from tests.system.worker_process import STEPS, Kill

KILLED = -signal.SIGKILL
ROUNDS = 800

OPENING = ("write the epoch down", "charge the ledger", "forget older state", "begin the epoch")
FIRST = [
    Kill("open the first epoch"),
    *(Kill(step, after=after) for step in OPENING for after in (False, True)),
]
"""These must come before all others and in this order: an epoch is opened once."""


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    with make_stream(horizon=16_383) as stream:
        yield stream


def kills_at_every_step(rng: random.Random) -> list[Kill]:
    """Before and after each step; of steps taken often, not always the first time."""
    once = (
        "take over",
        "load",
        "get the key",
        "read what is published",
        "compare what is published",
    )
    return FIRST + [
        Kill(step, 1 if step in once else rng.randint(1, 3), after)
        for step in STEPS
        if step not in (*OPENING, "open the first epoch")
        for after in (False, True)
    ]


@pytest.mark.apache("batches")
def test_killed_at_every_step_a_stream_gives_what_an_uninterrupted_one_gives(stream: Stream) -> None:
    planned = kills_at_every_step(random.Random(1))
    random.Random(2).shuffle(planned)
    planned.sort(key=lambda kill: FIRST.index(kill) if kill in FIRST else len(FIRST))
    stream.feed(some_events(ROUNDS, seed=1))
    for kill in planned:
        assert stream.run(kill) == KILLED, f"{kill} was never reached:\n{stream.logged()}"
    assert stream.run(until_round=ROUNDS) == 0
    stream.check_everything()


def test_killed_at_random_times_a_stream_gives_what_an_uninterrupted_one_gives(stream: Stream) -> None:
    """Events arrive while workers run and die; soak.py says how many die."""
    rng = random.Random(3)
    for number in range(kills()):
        stream.feed(some_events(rng.randint(1, 12), seed=1000 + number))
        worker = stream.start()
        time.sleep(rng.uniform(0, 1.0))
        worker.kill()
        assert ended(worker) == KILLED
    rounds = len(stream.events())
    assert stream.run(until_round=rounds) == 0
    stream.check_everything()


def test_the_faust_app_killed_while_it_releases_loses_and_doubles_nothing(stream: Stream) -> None:
    stream.feed(some_events(ROUNDS, seed=4))
    saved = 0
    for batches in (70, 190):
        kill = Kill("send a batch", batches)
        worker = stream.start_command("worker", interruption=kill, batch_rounds=1, checkpoint_every="30")
        assert ended(worker) == KILLED
        before, saved = saved, stream.checkpoint().state.round
        assert before < saved < ROUNDS
        assert len(stream.releases()) >= saved
    assert stream.run(until_round=ROUNDS) == 0
    stream.check_everything()
