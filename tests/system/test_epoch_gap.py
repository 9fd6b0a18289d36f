"""A new epoch after one whose state is lost: what lies between them is said, and counted where that is asked for."""

import os
import pty
from collections.abc import Iterator

import msgspec
import pytest

from stream_dp.epochs.gap import gap_of, lost_epoch
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.release import decode_release
from stream_dp.workers.resume import NewEpoch
from tests.system.epoch_steps import charges
from tests.system.example_events import some_events
from tests.system.streams import Stream, ended
from tests.system.ticking import MakeStream

ROUNDS = ("per-event", "every-4")
RELEASED, SINCE = 40, 13


@pytest.fixture(params=ROUNDS)
def stream(make_stream: MakeStream, request: pytest.FixtureRequest) -> Iterator[Stream]:
    """Everything that Redis held is lost, the key included; some records came since the last release."""
    size = 1 if request.param == "per-event" else 4
    with make_stream(rounds=request.param) as stream:
        stream.feed(some_events(RELEASED, seed=1))
        assert stream.run(until_round=RELEASED // size) == 0
        stream.feed(some_events(SINCE, seed=2))
        stream.restore_keys({})
        yield stream


def opened_with(stream: Stream, wish: NewEpoch) -> int:
    """The first offset of the epoch that a worker opens for this wish, and releases something of."""
    worker = stream.start(new_epoch=wish)
    stream.wait_until(lambda: "epoch 2, round" in stream.logged(), worker)
    stream.feed(some_events(20, seed=3))
    stream.wait_until(
        lambda: {decode_release(record.value or b"").epoch for record in stream.releases()} == {1, 2}, worker
    )
    stream.stop(worker)
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
    assert (gap.epoch, gap.begin, gap.end, gap.records) == (1, (RELEASED,), (RELEASED + SINCE,), SINCE)


def test_an_epoch_that_can_be_counted_to_its_end_is_not_lost(make_stream: MakeStream) -> None:
    with make_stream() as stream, stream.redis() as redis:
        assert lost_epoch(stream.settings, redis) is None
        stream.feed(some_events(20, seed=4))
        assert stream.run(until_round=20) == 0
        assert lost_epoch(stream.settings, redis) is None
        redis.delete(f"stream_dp:{{{stream.settings.stream}}}:key")
        assert lost_epoch(stream.settings, redis) is not None


@pytest.fixture
def ticking(make_stream: MakeStream) -> Iterator[Stream]:
    """Rounds that barriers end; the third has no event, and all that Redis held is lost after it."""
    settings = {"rounds": "ticks", "write_barriers": False}
    with make_stream(**settings) as stream:
        worker = stream.start()
        stream.wait_until_logged("epoch 1, round 0")
        for due in (1_000, 2_000):
            stream.feed(some_events(5, seed=due))
            stream.close_rounds(due)
        stream.close_rounds(3_000)
        stream.wait_until_round(3, worker)
        stream.stop(worker)
        stream.feed(some_events(SINCE, seed=4))
        yield stream


@pytest.mark.parametrize("barriers_since", [0, 2])
def test_where_rounds_end_by_ticks_the_barrier_of_the_last_release_says_where_it_ends(
    ticking: Stream, barriers_since: int
) -> None:
    ticking.close_rounds(*(4_000 + number for number in range(barriers_since)))
    ticking.restore_keys({})
    worker = ticking.start(new_epoch=NewEpoch(from_last_release=True))
    ticking.wait_until_logged("epoch 2, round 0")
    ticking.close_rounds(5_000)
    ticking.wait_until(lambda: decode_release(ticking.releases()[-1].value or b"").epoch == 2, worker)
    worker.terminate()
    assert ended(worker) == 0
    assert f"{SINCE} records lie in between; the new epoch begins with them" in ticking.logged()
    assert EpochJournal(ticking.settings).opened[1].epoch.first_offset == 10
    assert ticking.checkpoint().position.next_offset == 10 + SINCE


@pytest.mark.parametrize("planted", [True, False])
def test_where_no_one_barrier_is_that_of_the_last_release_it_is_refused(
    ticking: Stream, planted: bool
) -> None:
    own, records = ticking.settings, ticking.barrier_records()
    if planted:
        other = msgspec.json.decode(records[2][1] or b"") | {"offsets": {"0": 7}}
        ticking.write(own.barriers, [Record(0, 3_000, None, msgspec.json.encode(other))])
    else:
        kept = [Record(0, 1_000, None, value) for _, value in records[:2]]
        ticking.rewrite(own.barriers, kept)
    ticking.restore_keys({})
    worker = ticking.start(new_epoch=NewEpoch(from_last_release=True))
    assert ended(worker) == 2
    assert "nobody can tell which records came after it: leave --from-last-release out" in ticking.logged()
    assert EpochJournal(own).closed == {}


@pytest.mark.parametrize(("answer", "begun"), [(b"y\n", RELEASED), (b"n\n", RELEASED + SINCE)])
def test_on_a_terminal_the_operator_is_asked(
    make_stream: MakeStream, kafka: str, answer: bytes, begun: int
) -> None:
    with make_stream() as stream:
        stream.feed(some_events(RELEASED, seed=1))
        assert stream.run(until_round=RELEASED) == 0
        stream.feed(some_events(SINCE, seed=2))
        stream.restore_keys({})
        ours, theirs = pty.openpty()
        worker = stream.start_command("worker", "--new-epoch", terminal=os.ttyname(theirs))
        stream.wait_until(lambda: "13 records lie in between" in stream.logged(), worker)
        os.write(ours, answer)
        stream.wait_until(lambda: "epoch 2, round" in stream.logged(), worker)
        stream.stop(worker)
        os.close(ours)
        os.close(theirs)
        assert EpochJournal(stream.settings).opened[1].epoch.first_offset == begun
        assert log.offsets(kafka, stream.settings.events).end == RELEASED + SINCE
