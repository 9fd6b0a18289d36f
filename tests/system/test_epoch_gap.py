"""A new epoch after one whose state is lost: what lies between them is said, and counted where that is asked for."""

import os
import pty
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_dp import log
from stream_dp.epoch_gap import gap_of, lost_epoch
from stream_dp.journal import EpochJournal
from stream_dp.privacy.composition import Charge
from stream_dp.records import decode_release
from stream_dp.resume import NewEpoch
from stream_dp.store.ledger import Ledger
from tests.system.streams import Stream, ended, small_stream, some_events

ROUNDS = ("per-event", "every-4")
RELEASED, SINCE = 40, 13


@pytest.fixture(params=ROUNDS)
def stream(
    request: pytest.FixtureRequest, kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Stream]:
    """Everything that Redis held is lost, the key included; some records came since the last release."""
    size = 1 if request.param == "per-event" else 4
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, rounds=request.param) as stream:
        stream.feed(some_events(RELEASED, seed=1))
        assert stream.run(until_round=RELEASED // size) == 0
        stream.feed(some_events(SINCE, seed=2))
        stream.restore_keys({})
        yield stream


def charges(stream: Stream) -> list[Charge]:
    with stream.redis() as client:
        return Ledger(client, stream.settings.data_source).charges()


def opened_with(stream: Stream, wish: NewEpoch) -> int:
    """The first offset of the epoch that a worker opens for this wish, and releases something of."""
    worker = stream.start(new_epoch=wish)
    stream.wait_until(lambda: "epoch 2, round" in stream.logged(), worker)
    stream.feed(some_events(20, seed=3))
    stream.wait_until(
        lambda: {decode_release(record.value or b"").epoch for record in stream.releases()} == {1, 2}, worker
    )
    worker.terminate()
    assert ended(worker) == 0
    [first, second] = EpochJournal(stream.settings).opened
    assert EpochJournal(stream.settings).closed[1].end_unknown
    found = charges(stream)
    assert [(charge.first_offset, charge.end_offset) for charge in found] == [
        (first.epoch.first_offset, None),
        (second.epoch.first_offset, None),
    ]
    return second.epoch.first_offset


def test_by_itself_it_begins_at_the_end_and_says_what_that_leaves_out(stream: Stream) -> None:
    begun = opened_with(stream, NewEpoch())
    assert begun >= RELEASED + SINCE
    assert (
        "the releases of epoch 1 count the records before offset 40, and the log goes on to"
        in stream.logged()
    )
    assert "with --from-last-release it would have begun with them" in stream.logged()


def test_asked_for_it_begins_where_the_last_release_ends(stream: Stream) -> None:
    assert opened_with(stream, NewEpoch(from_last_release=True)) == RELEASED
    assert "the new epoch begins with them" in stream.logged()


def test_the_gap_is_known_before_the_worker_starts(stream: Stream) -> None:
    with stream.redis() as redis:
        epoch = lost_epoch(stream.settings, redis)
    assert epoch is not None
    gap = gap_of(stream.settings, epoch)
    assert (gap.epoch, gap.begin, gap.end, gap.records) == (1, RELEASED, RELEASED + SINCE, SINCE)


def test_an_epoch_that_can_be_counted_to_its_end_is_not_lost(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    with small_stream(kafka, redis_url, topic_prefix, tmp_path) as stream, stream.redis() as redis:
        assert lost_epoch(stream.settings, redis) is None
        stream.feed(some_events(20, seed=4))
        assert stream.run(until_round=20) == 0
        assert lost_epoch(stream.settings, redis) is None
        redis.delete(f"stream_dp:{{{stream.settings.stream}}}:key")
        assert lost_epoch(stream.settings, redis) is not None


def test_rounds_of_ticks_do_not_say_which_records_they_hold(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    settings = {"rounds": "ticks", "tick_seconds": 0.1}
    with small_stream(kafka, redis_url, topic_prefix, tmp_path, **settings) as stream:
        assert stream.run(until_round=3) == 0
        stream.restore_keys({})
        worker = stream.start(new_epoch=NewEpoch(from_last_release=True))
        assert ended(worker) == 2
        assert (
            "its releases do not say which records came after it: leave --from-last-release out"
            in stream.logged()
        )
        assert EpochJournal(stream.settings).closed == {}


@pytest.mark.parametrize(("answer", "begun"), [(b"y\n", RELEASED), (b"n\n", RELEASED + SINCE)])
def test_on_a_terminal_the_operator_is_asked(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, answer: bytes, begun: int
) -> None:
    with small_stream(kafka, redis_url, topic_prefix, tmp_path) as stream:
        stream.feed(some_events(RELEASED, seed=1))
        assert stream.run(until_round=RELEASED) == 0
        stream.feed(some_events(SINCE, seed=2))
        stream.restore_keys({})
        ours, theirs = pty.openpty()
        words = ("-c", "from stream_dp.cli import main; main()", "worker", "--new-epoch")
        worker = stream.start_faust(*words, stdin=theirs)
        stream.wait_until(lambda: "13 records lie in between" in stream.logged(), worker)
        os.write(ours, answer)
        stream.wait_until(lambda: "epoch 2, round" in stream.logged(), worker)
        worker.terminate()
        assert ended(worker) == 0
        os.close(ours)
        os.close(theirs)
        assert EpochJournal(stream.settings).opened[1].epoch.first_offset == begun
        assert log.offsets(kafka, stream.settings.events).end == RELEASED + SINCE
