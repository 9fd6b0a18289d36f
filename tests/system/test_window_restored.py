"""Windows whose log is gone but for the last three blocks: state and releases come back, and nothing wrong does."""

import signal
from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from stream_dp.engine.epoch import EpochRefused
from stream_dp.events.record import Record
from stream_dp.releases.release import Release, decode_release
from stream_dp.verification.rebuild import rebuild, verify_epoch
from stream_dp.verification.republish import republish
from stream_dp.verification.verify import Verdict
from tests.system.epoch_steps import lose_state, state_keys
from tests.system.streams import Stream
from tests.system.test_window import WINDOW, drifting, ends_after, feed_drifting, forget
from tests.system.ticking import MakeStream, open_epoch
from tests.system.worker_process import Kill

ROUNDS = 100
FIRST = ((ROUNDS - 1) // WINDOW - 2) * WINDOW + 1
"""The first round of the block with which restoring begins."""

OWN = {"mechanism": "window", "window": WINDOW, "epsilon": 8.0, "delta": 0.2, "items_per_event": 2}


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    with make_stream(checkpoint_every="7", batch_rounds=5, **OWN) as stream:
        yield stream


def restored(stream: Stream) -> None:
    """Rebuild, and compare what Redis holds then with what it held before."""
    before, position = state_keys(stream), stream.checkpoint().position
    lose_state(stream)
    with stream.redis() as redis:
        assert rebuild(stream.settings, redis).position == position
    after = state_keys(stream)
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} <= {b"meta"}, "it counts the checkpoints"


def altered(stream: Stream, place: int, release: Release) -> None:
    """Let another release stand in a place of the releases topic."""
    records = stream.releases()
    records[place] = records[place]._replace(value=msgspec.json.encode(release))
    stream.rewrite(stream.settings.releases, records)


def test_lost_state_is_rebuilt_bit_for_bit_and_goes_on_over_kills(stream: Stream) -> None:
    feed_drifting(stream, 0, ROUNDS)
    assert stream.run(until_round=ROUNDS) == 0
    events = stream.events()
    forget(stream, 0, FIRST - 1)
    restored(stream)
    feed_drifting(stream, ROUNDS, ROUNDS + 40)
    assert stream.run(Kill("write a checkpoint", 2, after=True)) == -signal.SIGKILL, stream.logged()
    assert stream.run(until_round=ROUNDS + 40) == 0
    later = stream.events()[ROUNDS:]
    stream.rewrite(stream.settings.events, [*events, *later])
    stream.check_everything()


def test_edits_before_these_blocks_change_nothing_and_later_ones_are_refused(stream: Stream) -> None:
    feed_drifting(stream, 0, ROUNDS)
    assert stream.run(until_round=ROUNDS) == 0
    events, keys = stream.events(), state_keys(stream)
    with stream.redis() as redis:
        for offset in (FIRST - 1, FIRST + WINDOW, ROUNDS - 1):
            edited = [*events]
            edited[offset] = events[offset]._replace(value=b'{"items": ["another"]}')
            stream.rewrite(stream.settings.events, edited)
            with pytest.raises(EpochRefused, match="do not reproduce what was released"):
                rebuild(stream.settings, redis, replace=True)
            assert verify_epoch(stream.settings, redis).certificate.verdict is Verdict.EDITED
        assert keys == state_keys(stream)
        edited = [*events]
        edited[FIRST - 2] = events[FIRST - 2]._replace(value=b'{"items": ["another"]}')
        stream.rewrite(stream.settings.events, edited)
        with pytest.raises(EpochRefused, match="do not reproduce what was released"):
            rebuild(stream.settings, redis, replace=True, whole=True)
    restored(stream)


def test_changed_releases_are_refused_and_missing_ones_cost_the_whole_log(stream: Stream) -> None:
    feed_drifting(stream, 0, ROUNDS)
    assert stream.run(until_round=ROUNDS) == 0
    events, records, keys = stream.events(), stream.releases(), state_keys(stream)
    found = [decode_release(record.value or b"") for record in records]
    shown = next(place for place in range(FIRST + WINDOW, ROUNDS) if found[place].labels)
    with stream.redis() as redis:
        for place, change in (
            (FIRST, {"ts": "2020-01-01T00:00:00.000Z"}),
            (FIRST, {"tag": "0" * 32}),
            (shown, {"counts": [count + 1 for count in found[shown].counts]}),
        ):
            altered(stream, place, replace(found[place], **change))
            with pytest.raises(EpochRefused):
                rebuild(stream.settings, redis, replace=True)
            stream.rewrite(stream.settings.releases, records)
        stream.rewrite(stream.settings.releases, [*records[: FIRST + 3], *records[FIRST + 4 :]])
        forget(stream, 0, FIRST - 1)
        with pytest.raises(EpochRefused):
            rebuild(stream.settings, redis, replace=True)
        assert keys == state_keys(stream)
        stream.rewrite(stream.settings.events, events)
    restored(stream)


def test_labels_that_the_first_block_is_said_to_take_over_are_never_believed_against_releases(
    stream: Stream,
) -> None:
    """The log before is gone, so nothing proves them: the state is refused, or the same."""
    feed_drifting(stream, 0, ROUNDS)
    assert stream.run(until_round=ROUNDS) == 0
    forget(stream, 0, FIRST - 1)
    first = decode_release(stream.releases()[FIRST - 1].value or b"")
    for labels in ([], ["never seen"], [*first.labels, "lately 0"]):
        altered(stream, FIRST - 1, replace(first, labels=labels, counts=[9] * len(labels)))
        keys = stream.redis_keys()
        try:
            restored(stream)
        except EpochRefused:
            stream.restore_keys(keys)


@pytest.mark.parametrize("left", [ROUNDS - 1, ROUNDS - WINDOW - 3])
def test_lost_releases_are_written_again_from_the_last_blocks(stream: Stream, left: int) -> None:
    """The blocks are counted from the releases that are left."""
    feed_drifting(stream, 0, ROUNDS)
    assert stream.run(until_round=ROUNDS) == 0
    records = stream.releases()
    stream.rewrite(stream.settings.releases, records[:left])
    forget(stream, 0, ((left - 1) // WINDOW - 2) * WINDOW)
    with stream.redis() as redis:
        [written] = republish(stream.settings, redis)
        assert written.rounds == [*range(left + 1, ROUNDS + 1)]
        assert values(stream.releases()) == values(records)
        assert republish(stream.settings, redis) == []
        with pytest.raises(EpochRefused):
            republish(stream.settings, redis, to=f"{stream.settings.stream}.all")


def test_nothing_is_written_over_another_log(stream: Stream) -> None:
    feed_drifting(stream, 0, ROUNDS)
    assert stream.run(until_round=ROUNDS) == 0
    records, events = stream.releases(), stream.events()
    stream.rewrite(stream.settings.releases, records[:-5])
    for offset in (FIRST, ROUNDS - 2):  # the last is among what would be written
        edited = [*events]
        edited[offset] = events[offset]._replace(value=b'{"items": ["another"]}')
        stream.rewrite(stream.settings.events, edited)
        with stream.redis() as redis, pytest.raises(EpochRefused, match="nothing was written"):
            republish(stream.settings, redis)
    assert values(stream.releases()) == values(records[:-5])


def moved(events: list[Record]) -> list[Record]:
    """A log with one more record before the last blocks, so that these begin one place later."""
    put_in = events[0]._replace(value=b'{"items": ["put in"]}')
    return [*events[: FIRST - 1], put_in, *events[FIRST - 1 :]]


def test_blocks_that_somebody_moved_are_refused(stream: Stream) -> None:
    feed_drifting(stream, 0, ROUNDS)
    assert stream.run(until_round=ROUNDS) == 0
    before, events = state_keys(stream), stream.events()
    lose_state(stream)
    with stream.redis() as redis:
        stream.rewrite(stream.settings.events, moved(events))
        with pytest.raises(EpochRefused, match="nothing was rebuilt"):
            rebuild(stream.settings, redis)
        assert not state_keys(stream).keys() & before.keys() - {b"key"}
        stream.rewrite(stream.settings.events, events)
        rebuild(stream.settings, redis)
        after = state_keys(stream)
        assert {name for name in before if before[name] != after[name]} <= {b"meta"}


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_windows_of_ticks_are_rebuilt_from_the_barriers_of_the_last_blocks(make_stream: MakeStream) -> None:
    own = {**OWN, "window": 5, "rounds": "ticks", "write_barriers": False}
    with make_stream(partitions=2, **own) as stream:
        open_epoch(stream)
        for number in range(1, 43):
            stream.spread(drifting(5 * number, 5 * number + 5), 2)
            stream.close_rounds(1_000 * number)
        assert stream.run(until_round=42) == 0
        for partition in (0, 1):
            forget(stream, partition, ends_after(stream, 30)[partition])
        restored(stream)


def test_windows_are_verified_from_their_last_blocks_and_written_again_from_all(stream: Stream) -> None:
    feed_drifting(stream, 0, ROUNDS)
    assert stream.run(until_round=ROUNDS) == 0
    records, events = stream.releases(), stream.events()
    with stream.redis() as redis:
        forget(stream, 0, FIRST - 1)
        found = verify_epoch(stream.settings, redis).certificate
        assert (found.verdict, found.first_round) == (Verdict.IDENTICAL, FIRST + WINDOW)
        missing = [*records[: FIRST + 2], *records[FIRST + 3 :]]
        stream.rewrite(stream.settings.releases, missing)
        found = verify_epoch(stream.settings, redis).certificate
        assert (found.verdict, found.missing) == (Verdict.RELEASES_INCOMPLETE, 1)
        stream.rewrite(stream.settings.events, events)
        topic = f"{stream.settings.stream}.all"
        [written] = republish(stream.settings, redis, to=topic)
        assert written.rounds == [*range(1, ROUNDS + 1)]
        assert values(stream.records(topic)) == values(records)
