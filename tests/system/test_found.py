"""Labels that are found at tests, on real servers: killed at every step of a test, and computed again by everything."""

import json
import signal
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from stream_dp.config.days import days_of
from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from tests.system.epoch_steps import lose_state
from tests.system.example_events import some_events
from tests.system.streams import Stream, ended
from tests.system.test_standby import READY, WORKS
from tests.system.test_user_days import FIRST, HOUR, OWN, ZONE, open_for_all_days
from tests.system.test_verify_commands import run
from tests.system.ticking import MakeStream
from tests.system.worker_process import STEPS_OF_A_TEST, Kill

APART = 20
KILLED = -signal.SIGKILL


KILLS = [Kill(step, after=after) for step in STEPS_OF_A_TEST for after in (False, True)]
AROUND = [
    Kill("compute", 2),
    Kill("send a batch", 2, after=True),
    Kill("prepare a checkpoint", 2),
    Kill("queue the checkpoint's commands", after=True),
    Kill("write a checkpoint", after=True),
    Kill("measure", 2),
    Kill("show what is found", 2, after=True),
]
FOUND: dict[str, Any] = {
    "mechanism": "blt",
    "discover": f"every-{APART}",
    "at_least": 3,
    "epsilon": 20.0,
    "delta": 0.2,
    "horizon": 255,
    "checkpoint_every": "9",
}


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    """Checkpoints come before, at and behind tests."""
    with make_stream(**FOUND) as stream:
        yield stream


def test_whatever_dies_at_a_test_the_releases_are_those_of_a_worker_that_never_stops(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.feed(some_events(4 * APART + 5, seed=1))
    later = [Kill("compute", 3), Kill("send a batch", 3, after=True), Kill("write a checkpoint", after=True)]
    for kill in [*KILLS, *later, Kill("measure", 2), Kill("show what is found", 1, after=True)]:
        assert stream.run(kill) == KILLED, f"{kill} was never reached:\n{stream.logged()}"
    assert stream.run(until_round=4 * APART + 5) == 0
    before = stream.logged().count(WORKS)
    active = stream.start(Kill("measure"))
    stream.wait_until(lambda: stream.logged().count(WORKS) > before, active)
    waiting = stream.start(standby=True)
    stream.wait_until(lambda: READY in stream.logged(), waiting)
    stream.feed(some_events(4 * APART, seed=2))  # there are two more tests at least
    assert ended(active) == KILLED
    stream.wait_until_round(8 * APART + 5, waiting)
    stream.stop(waiting)
    stream.check_everything()
    releases = stream.releases()
    last = decode_release(releases[-1].value or b"")
    assert len({*(last.found or [])}) > 1, "labels are found at several tests"

    monkeypatch.setenv("STREAM_DP_BATCH_ROUNDS", str(stream.settings.batch_rounds))
    stream.rewrite(stream.settings.releases, releases[: 2 * APART - 1])  # what is lost begins at a test
    assert run(stream, "republish", "--json").exit_code == 0
    assert stream.releases() == releases
    lose_state(stream)
    with stream.redis() as redis:
        assert rebuild(stream.settings, redis).state.round == 8 * APART + 5
    stream.check_everything()
    certificate = json.loads(run(stream, "verify", "--json").stdout)
    assert (certificate["verdict"], certificate["at_least"]) == ("identical", 3)
    statement = json.loads(run(stream, "statement", "--json").stdout)
    assert statement["at_least"] == 3
    assert "No label that fewer than 3 events hold is ever shown" in " ".join(
        run(stream, "statement").stdout.split()
    )


def check_found(stream: Stream, until_round: int) -> None:
    """After kills: the same bytes, from several tests, with what the users have brought; and computed again."""
    assert stream.run(until_round=until_round) == 0
    stream.check_everything()
    last = decode_release(stream.releases()[-1].value or b"")
    assert len({*(last.found or [])}) > 1, "labels are found at several tests"
    assert stream.checkpoint().pairs
    with stream.redis() as redis:
        assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.IDENTICAL
        rebuild(stream.settings, redis, replace=True)
    stream.check_everything()


def test_users_are_counted_once_whatever_dies_at_a_test(make_stream: MakeStream) -> None:
    """What a user has used up before a test is used up after it, also where the test found the label meanwhile."""
    changed = {**FOUND, "unit": "user", "items_per_user": 3}
    with make_stream(**changed) as stream:
        stream.feed(some_events(8 * APART + 5, seed=3, users=90))
        for kill in [*KILLS, *AROUND]:
            assert stream.run(kill) == KILLED, f"{kill} was never reached:\n{stream.logged()}"
        check_found(stream, 8 * APART + 5)


def test_days_of_users_go_on_whatever_dies_at_a_test(make_stream: MakeStream) -> None:
    """Tests come every three rounds and days end every four, so each round of a day has its test."""
    changed = {**FOUND, **OWN, "discover": "every-3", "checkpoint_every": "2"}
    with make_stream(**changed) as stream:
        open_for_all_days(stream)
        events = iter(some_events(2_000, seed=4, users=30))
        for day in range(FIRST, FIRST + 12):
            begins, next_begins = days_of(ZONE).begins(day), days_of(ZONE).begins(day + 1)
            stream.close_rounds(begins)
            for at in (begins + HOUR, begins + 9 * HOUR, begins + 17 * HOUR, next_begins - 1_000):
                stream.feed(list(islice(events, 30)))
                stream.close_rounds(at)
        for kill in [*KILLS, *AROUND]:
            assert stream.run(kill) == KILLED, f"{kill} was never reached:\n{stream.logged()}"
        check_found(stream, 48)
