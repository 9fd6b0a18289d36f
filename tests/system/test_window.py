"""`mechanism = "window"` on real servers: what a stream without end releases, keeps, forgets and gives again."""

import signal
from collections.abc import Iterator

import pytest

from stream_dp.events.barrier_chain import decode_barrier, ends_of
from stream_dp.events.record import Record
from stream_dp.privacy.vector import Vector
from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import verify_epoch
from stream_dp.verification.verify import Verdict
from tests.system.streams import Stream
from tests.system.ticking import MakeStream, open_epoch
from tests.system.worker_process import Kill

WINDOW = 12
KILLS = (
    Kill("queue the checkpoint's commands", 3, after=True),
    Kill("write a checkpoint", 2, after=True),
)


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    own = {"mechanism": "window", "window": WINDOW, "epsilon": 8.0, "delta": 0.2, "items_per_event": 2}
    with make_stream(checkpoint_every="7", batch_rounds=5, **own) as stream:
        yield stream


def drifting(first: int, last: int) -> list[bytes | None]:
    """An event a round: a label that is often there for a while, and one that is seen once."""
    return [b'{"items": ["lately %d", "once %d"]}' % (number // 30, number) for number in range(first, last)]


def feed_drifting(stream: Stream, first: int, last: int) -> None:
    """An event a minute, so that the journal has the beginning of every block."""
    times = [1_700_000_000_000 + 60_000 * number for number in range(first, last)]
    values = zip(times, drifting(first, last), strict=True)
    stream.write(stream.settings.events, [Record(0, time, None, value) for time, value in values])


def test_a_killed_worker_goes_on_with_the_same_windows(stream: Stream) -> None:
    feed_drifting(stream, 0, 200)
    for kill in KILLS:
        assert stream.run(kill) == -signal.SIGKILL, f"{kill} was never reached:\n{stream.logged()}"
    assert stream.run(until_round=200) == 0
    stream.check_everything()
    releases = [decode_release(record.value or b"") for record in stream.releases()]
    assert {(each.window_rounds, each.horizon, each.shown) for each in releases} == {(WINDOW, None, "window")}
    often = [next(iter(each.labels), None) for each in releases]
    assert {f"lately {number}" for number in range(6)} <= {*often}, "each of them led for a while"
    assert "lately 0" not in releases[-1].labels, "what nobody brings any more is shown no more"
    with stream.redis() as redis:
        assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.IDENTICAL


def test_redis_forgets_what_cannot_be_seen_any_more(stream: Stream) -> None:
    feed_drifting(stream, 0, 200)
    assert stream.run(until_round=200) == 0
    assert len(stream.checkpoint().state.labels) <= 3 * WINDOW + 3, "of 207 labels"
    before = sum(len(value) for value in stream.redis_keys().values())
    feed_drifting(stream, 200, 600)
    assert stream.run(until_round=600) == 0
    stream.check_everything()
    assert sum(len(value) for value in stream.redis_keys().values()) < 1.2 * before


def test_chains_of_several_partitions_begin_anew_with_each_block(make_stream: MakeStream) -> None:
    own = {"mechanism": "window", "window": 5, "epsilon": 8.0, "delta": 0.2, "rounds": "every-3"}
    with make_stream(checkpoint_every="3", partitions=2, **own) as stream:
        stream.spread(drifting(0, 120), 2)
        assert stream.run(Kill("write a checkpoint", 2, after=True)) == -signal.SIGKILL, stream.logged()
        assert stream.run(until_round=40) == 0
        stream.check_everything()
        with stream.redis() as redis:
            assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.IDENTICAL


def forget(stream: Stream, partition: int, before: int) -> None:
    """Let others stand in the place of a partition's first records: what is read of them shows."""
    kept = [stream.events(number) for number in range(len(stream.ends()))]
    kept[partition] = [
        record._replace(value=b"gone", key=None) if record.offset < before else record
        for record in kept[partition]
    ]
    stream.rewrite(stream.settings.events, [record for each in kept for record in each])


def ends_after(stream: Stream, number: int) -> Vector:
    """The offsets up to which the first barriers close rounds, so many of them."""
    barriers = [decode_barrier(value) for _, value in stream.barrier_records()]
    return next(ends_of(found.offsets) for found in barriers if found is not None and found.n == number)


def test_the_last_blocks_are_verified_without_the_log_before_them(stream: Stream) -> None:
    feed_drifting(stream, 0, 200)
    assert stream.run(until_round=200) == 0
    begins = (199 // WINDOW - 2) * WINDOW
    forget(stream, 0, begins)
    with stream.redis() as redis:
        found = verify_epoch(stream.settings, redis).certificate
        assert (found.verdict, found.first_round, found.rounds) == (
            Verdict.IDENTICAL,
            begins + WINDOW + 1,
            200,
        )
        assert found.log_records == 200 - begins
        whole = verify_epoch(stream.settings, redis, whole=True).certificate
        assert (whole.verdict, whole.first_round) == (Verdict.EDITED, 1)
        forget(stream, 0, begins + 1)
        assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.EDITED


@pytest.mark.parametrize("release", ["every-round", "every-3"])
def test_blocks_of_ticks_begin_where_barriers_say(make_stream: MakeStream, release: str) -> None:
    own = {"mechanism": "window", "window": 5, "epsilon": 8.0, "delta": 0.2, "items_per_event": 2}
    ticks = {"rounds": "ticks", "write_barriers": False, "release": release}
    with make_stream(partitions=2, **own, **ticks) as stream:
        open_epoch(stream)
        for number in range(1, 43):
            stream.spread(drifting(5 * number, 5 * number + 5), 2)
            stream.close_rounds(1_000 * number)
        assert stream.run(until_round=42) == 0
        stream.check_everything()
        # Of every third round, the first of the last block but two was not released, and that of the one before is.
        first = {"every-round": 31, "every-3": 21}[release]
        with stream.redis() as redis:
            redis.delete(f"stream_dp:{{{stream.settings.stream}}}:meta")
            for partition in (0, 1):
                forget(stream, partition, ends_after(stream, first - 1)[partition])
            found = verify_epoch(stream.settings, redis).certificate
            assert (found.verdict, found.first_round) == (Verdict.IDENTICAL, first + 5)
            forget(stream, 1, ends_after(stream, first)[1])
            assert not verify_epoch(stream.settings, redis).certificate.sound
