"""`mechanism = "window"` on real servers: what a stream without end releases, keeps, forgets and gives again."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from tests.system.streams import Stream, small_stream
from tests.system.worker_process import Kill

WINDOW = 12
KILLS = (
    Kill("queue the checkpoint's commands", 3, after=True),
    Kill("write a checkpoint", 2, after=True),
)


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    own = {"mechanism": "window", "window": WINDOW, "epsilon": 8.0, "delta": 0.2, "items_per_event": 2}
    with small_stream(
        kafka, redis_url, topic_prefix, tmp_path, checkpoint_rounds=7, batch_rounds=5, **own
    ) as stream:
        yield stream


def drifting(first: int, last: int) -> list[bytes | None]:
    """An event a round: a label that is often there for a while, and one that is seen once."""
    return [b'{"items": ["lately %d", "once %d"]}' % (number // 30, number) for number in range(first, last)]


def test_a_killed_worker_goes_on_with_the_same_windows(stream: Stream) -> None:
    stream.feed(drifting(0, 200))
    for kill in KILLS:
        assert stream.run(kill) == -signal.SIGKILL, f"{kill} was never reached:\n{stream.logged()}"
    assert stream.run(until_round=200) == 0
    stream.check_everything()
    releases = [decode_release(record.value or b"") for record in stream.releases()]
    assert {(each.window, each.horizon, each.shown) for each in releases} == {(WINDOW, None, "window")}
    often = [next(iter(each.labels), None) for each in releases]
    assert {f"lately {number}" for number in range(6)} <= {*often}, "each of them led for a while"
    assert "lately 0" not in releases[-1].labels, "what nobody brings any more is shown no more"
    with stream.redis() as redis:
        assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.IDENTICAL


def test_redis_forgets_what_cannot_be_seen_any_more(stream: Stream) -> None:
    stream.feed(drifting(0, 200))
    assert stream.run(until_round=200) == 0
    assert len(stream.checkpoint().state.labels) <= 3 * WINDOW + 3, "of 207 labels"
    before = sum(len(value) for value in stream.redis_keys().values())
    stream.feed(drifting(200, 600))
    assert stream.run(until_round=600) == 0
    stream.check_everything()
    assert sum(len(value) for value in stream.redis_keys().values()) < 1.2 * before


def test_lost_state_is_rebuilt(stream: Stream) -> None:
    stream.feed(drifting(0, 100))
    assert stream.run(until_round=100) == 0
    before = stream.checkpoint()
    with stream.redis() as redis:
        rebuild(stream.settings, redis, replace=True)
    stream.check_everything()
    assert before.position == stream.checkpoint().position
    stream.feed(drifting(100, 150))
    assert stream.run(until_round=150) == 0
    stream.check_everything()
