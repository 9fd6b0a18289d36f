"""Every mechanism on real servers: killed at its steps, and recomputed by `verify`."""

import signal
from pathlib import Path

import pytest

from stream_dp.counters import MECHANISMS
from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from tests.system.example_events import some_events
from tests.system.streams import small_stream
from tests.system.ticking import MakeStream
from tests.system.worker_process import Kill

KILLS = (
    Kill("queue the checkpoint's commands", 3, after=True),
    Kill("write a checkpoint", 2, after=True),
)
"""What is released is computed again from the checkpoint before, and nothing is; test_crashes has all other steps."""


def test_rounds_that_are_left_out_are_not_missed(make_stream: MakeStream) -> None:
    changed = {"release": "every-7", "delta": 0.2, "checkpoint_every": "11"}
    with make_stream(**changed) as stream:
        stream.feed(some_events(140, seed=6))
        for kill in KILLS:
            assert stream.run(kill) == -signal.SIGKILL, f"{kill} was never reached:\n{stream.logged()}"
        assert stream.run(until_round=140) == 0
        stream.check_everything()
        assert {decode_release(record.value or b"").round for record in stream.releases()} == {
            *range(7, 141, 7)
        }
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.IDENTICAL


@pytest.mark.parametrize("shown", ["each-round", "kept"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_killed_worker_releases_what_an_uninterrupted_one_does(
    kafka: str,
    redis_url: str,
    topic_prefix: str,
    tmp_path: Path,
    mechanism: str,
    shown: str,
) -> None:
    changed = {"mechanism": mechanism, "shown": shown, "epsilon": 4.0, "delta": 0.2}
    with small_stream(
        kafka,
        redis_url,
        topic_prefix,
        tmp_path,
        items_per_event=2,
        horizon=255,
        checkpoint_every="11",
        **changed,
    ) as stream:
        stream.feed(some_events(150, seed=5))
        for kill in KILLS:
            assert stream.run(kill) == -signal.SIGKILL, f"{kill} was never reached:\n{stream.logged()}"
        assert stream.run(until_round=150) == 0
        stream.check_everything()
        releases = [decode_release(record.value or b"") for record in stream.releases()]
        assert max(len(release.labels) for release in releases) > 1, "nothing to compare"
        assert {release.shown for release in releases} == {shown}
        settings = stream.settings
        with stream.redis() as redis:
            assert verify_epoch(settings, redis).certificate.verdict is Verdict.IDENTICAL
            before = stream.checkpoint()
            rebuild(settings, redis, replace=True)
        stream.check_everything()
        assert before.position == stream.checkpoint().position
