"""Labels that are found at tests, on real servers: killed at every step of a test, and computed again by everything."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import rebuild
from tests.system.epoch_steps import lose_state
from tests.system.example_events import some_events
from tests.system.streams import Stream, ended, small_stream
from tests.system.test_standby import READY, WORKS
from tests.system.test_verify_commands import run
from tests.system.worker_process import STEPS_OF_A_TEST, Kill

APART = 20
KILLED = -signal.SIGKILL


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    """Checkpoints come before, at and behind tests."""
    changed = {"mechanism": "blt", "discover": f"every-{APART}", "at_least": 3, "epsilon": 20.0, "delta": 0.2}
    changed |= {"horizon": 255, "checkpoint_every": "9"}
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, **changed) as stream:
        yield stream


def test_whatever_dies_at_a_test_the_releases_are_those_of_a_worker_that_never_stops(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.feed(some_events(4 * APART + 5, seed=1))
    once = [Kill(step, after=after) for step in STEPS_OF_A_TEST for after in (False, True)]
    later = [Kill("compute", 3), Kill("send a batch", 3, after=True), Kill("write a checkpoint", after=True)]
    for kill in [*once, *later, Kill("measure", 2), Kill("show what is found", 1, after=True)]:
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
    waiting.terminate()
    assert ended(waiting) == 0
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
