"""A topic with several partitions, read by one worker: the same bytes as the log itself gives."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.verify import Verdict
from tests.system.streams import Stream, event, small_stream, some_events
from tests.system.ticking import open_epoch
from tests.system.worker_process import Kill

PARTITIONS = 3
KINDS = ["ticks", "per-event", "every-3"]
MakeStream = Callable[..., AbstractContextManager[Stream]]


@pytest.fixture
def spread(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> MakeStream:
    """Streams over three partitions, whose barriers the test writes."""
    return lambda **changed: small_stream(
        kafka,
        redis_url,
        topic_prefix,
        tmp_path,
        **{"partitions": PARTITIONS, "write_barriers": False, "horizon": 4095, **changed},
    )


def feed_segments(stream: Stream, first: int, last: int, partitions: int = PARTITIONS) -> None:
    """Events in all partitions, a barrier after each dozen; every third one closes nothing."""
    for number in range(first, last + 1):
        if number % 3:
            stream.spread(some_events(12, seed=number), partitions)
        stream.close_rounds(1_000 * number)


def rounds(kind: str, segments: int) -> int:
    events = 12 * sum(1 for number in range(1, segments + 1) if number % 3)
    return {"ticks": segments, "per-event": events, "every-3": events // 3}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_one_worker_counts_all_partitions(spread: MakeStream, kind: str) -> None:
    with spread(rounds=kind) as stream:
        open_epoch(stream)
        feed_segments(stream, 1, 4)
        assert stream.run(until_round=rounds(kind, 4)) == 0
        assert stream.checkpoint().position.offsets == (12, 12, 12)
        feed_segments(stream, 5, 8)
        stream.feed([event("open")] * 5, partition=1)  # behind the last barrier
        assert stream.run(Kill("prepare a checkpoint")) < 0
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
