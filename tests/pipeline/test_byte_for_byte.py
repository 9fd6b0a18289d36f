"""However many shards there are, whoever dies and whatever comes twice: merged, they release what one worker does."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.counters import MECHANISMS
from stream_dp.engine.epoch import Epoch
from stream_dp.pipeline import frames as frames_module
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.pipeline.shard import Shard
from stream_dp.releases import part_encoder
from stream_dp.releases.release import decode_release
from tests.pipeline.pieces import (
    EPOCH,
    KEY,
    TOPIC,
    Topics,
    cut,
    epoch,
    in_shards,
    log_of,
    one_worker,
    release,
    sequencer,
)

COUNTS = (1, 2, 4, 8)
VALUES = [
    b'{"items": ["tea"]}',
    b'{"items": ["milk", "tea"]}',
    b'{"items": ["a", "b", "c", "d", "a"]}',
    '{"items": ["päron", "梨", "\\u0000"]}'.encode(),
    b'{"items": ["tea"]',
    None,
]
LEAVING_ROUNDS_OUT = epoch(release="every-5ms")
some_values = st.lists(st.sampled_from(VALUES), min_size=1, max_size=60)
some_cuts = st.lists(st.integers(0, 60), max_size=6)


def many_values(count: int, seed: int) -> list[bytes | None]:
    rng = random.Random(seed)
    labels = [f"label {number}" for number in range(40)]
    return [
        b'{"items": ["%s", "%s"]}' % (rng.choice(labels).encode(), rng.choice(labels[:5]).encode())
        for _ in range(count)
    ]


@pytest.mark.parametrize("shards", COUNTS)
def test_shards_release_together_what_one_worker_releases(shards: int) -> None:
    records = log_of(many_values(600, seed=1))
    expected = one_worker(records)
    assert max(len(decode_release(part.value).labels) for part in expected) > 20
    topics = in_shards(records, shards, range(0, 600, 37))
    assert expected == topics.merged()
    for values in topics.released:
        assert len(values) == 600, "every shard releases every round, with labels or without"


def test_a_round_may_hold_many_events_and_a_label_many_times() -> None:
    records, of = log_of(many_values(600, seed=4)), epoch(rounds="every-7")
    expected = one_worker(records, of)
    assert len({part.round for part in expected}) == 600 // 7
    assert expected == in_shards(records, 4, range(0, 600, 37), of).merged()


def test_all_shards_keep_the_labels_that_were_shown() -> None:
    records, of = log_of(many_values(300, seed=8)), epoch(shown="kept")
    expected = one_worker(records, of)
    released = [decode_release(part.value) for part in expected]
    assert any(count < (each.tau or 0) for each in released for count in each.counts)
    for before, after in pairwise(released):
        assert {*before.labels} <= {*after.labels}
    assert expected == in_shards(records, 4, range(0, 300, 37), of).merged()


@pytest.mark.parametrize("release", ["every-9", "every-25ms"])
def test_rounds_that_are_not_released_are_left_out_by_all_shards(release: str) -> None:
    records, of = log_of(many_values(300, seed=7)), epoch(release=release)
    expected = one_worker(records, of)
    assert 10 < len({part.round for part in expected}) < 40
    assert expected == in_shards(records, 4, range(0, 300, 37), of).merged()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_any_counter(mechanism: str) -> None:
    records, of = log_of(many_values(300, seed=5)), epoch(mechanism=mechanism, discover="every-round")
    assert one_worker(records, of) == in_shards(records, 4, range(0, 300, 37), of).merged()


def test_a_user_is_bounded_over_all_shards_together() -> None:
    """100 users who would each bring ten items, in as many events, bring three."""
    rng = random.Random(6)
    values = [b'{"user": "u%d", "items": ["a%d"]}' % (n % 100, rng.randrange(10)) for n in range(1023)]
    records, of = log_of(values), epoch(unit="user", items_per_user=3)
    topics = in_shards(records, 4, range(0, 1023, 37), of)
    assert one_worker(records, of) == topics.merged()
    assert any(decode_release(part.value).labels for part in topics.merged())
    assert (
        sum(count for number in range(4) for _, frame in topics.read(number) for count in frame.counts) == 300
    )


@settings(deadline=None, max_examples=40)
@given(some_values, some_cuts, st.sampled_from(COUNTS))
def test_any_log_in_any_batches(values: list[bytes | None], cuts: list[int], shards: int) -> None:
    records = log_of(values)
    assert one_worker(records) == in_shards(records, shards, cuts).merged()


@settings(deadline=None, max_examples=60)
@given(some_values, st.sampled_from((2, 4)), st.sampled_from((EPOCH, LEAVING_ROUNDS_OUT)), st.data())
def test_a_sequencer_that_dies_in_mid_frame_and_shards_that_die_anywhere(
    values: list[bytes | None], shards: int, of: Epoch, data: st.DataObject
) -> None:
    """Each life of the sequencer begins at some checkpoint of an earlier one, cuts the log anew, and reaches only some
    of the partitions with its last frames; each life of a shard ends after some frames, checkpointed or not."""
    records = log_of(values)
    topics, checkpoints = Topics(shards), [sequencer(shards, of=of)]
    lives = data.draw(st.integers(1, 4))
    for life in range(lives):
        sequencing = sequencer(shards, data.draw(st.sampled_from(checkpoints)), of)
        batches = cut(records[sequencing.round :], data.draw(some_cuts))
        last = len(batches) if life == lives - 1 else data.draw(st.integers(0, len(batches)))
        for number, batch in enumerate(batches[:last], 1):
            frames = sequencing.process(batch).frames
            if number == last and life < lives - 1:
                frames = frames[: data.draw(st.integers(0, len(frames)))]  # dies with the others in its hands
            else:
                checkpoints.append(sequencer(shards, sequencing, of))
            topics.write(frames)
    for number in range(shards):
        kept = Shard(of, KEY, number, shards)
        while kept.position.next_offset < len(topics.frames[number]):
            shard = Shard(of, KEY, number, shards, kept.position, kept.histogram.state())
            end = data.draw(st.integers(kept.position.next_offset + 1, len(topics.frames[number])))
            frames_read = topics.read(number, kept.position.next_offset, end)
            topics.released[number] += [part.value for part in release(shard, frames_read)]
            if data.draw(st.booleans()) or end == len(topics.frames[number]):
                kept = shard
    assert one_worker(records, of) == topics.merged()


@pytest.mark.parametrize("shards", [1, 4])
def test_rounds_and_releases_too_large_for_one_message_come_in_parts(
    shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie writes its parts of the same rounds in between, and a shard dies between two parts of a round."""
    monkeypatch.setattr(frames_module, "LARGEST_FRAME", 40)
    monkeypatch.setattr(part_encoder, "LARGEST_PART", 20)
    records = log_of(many_values(100, seed=2))
    expected = one_worker(records)
    assert max(part.part for part in expected) > 4
    topics, sequencing = Topics(shards), sequencer(shards)
    frames = [frame for batch in cut(records, range(0, 100, 9)) for frame in sequencing.process(batch).frames]
    assert max(frame.parts for frame in frames) == 2
    for place, frame in enumerate(frames):
        topics.write([frame])
        if place % 3 == 0:
            topics.write(frames[max(0, place - 9) : place])
    for number in range(shards):
        shard, at = Shard(EPOCH, KEY, number, shards), 0
        while at < len(topics.frames[number]):
            topics.released[number] += [
                part.value for part in release(shard, topics.read(number, at, at + 25))
            ]
            shard = Shard(EPOCH, KEY, number, shards, shard.position, shard.histogram.state())
            assert shard.position.next_offset > at
            at = shard.position.next_offset
    assert expected == topics.merged()


def test_the_state_of_one_worker_is_that_of_its_shards_together() -> None:
    records = log_of(many_values(300, seed=3))
    alone = Pipeline(EPOCH, KEY, TOPIC)
    alone.process(records)
    whole = alone.histogram.state()
    topics = in_shards(records, 4)
    counts: dict[str, int] = {}
    for number in range(4):
        shard = Shard(EPOCH, KEY, number, 4)
        release(shard, topics.read(number))
        state = shard.histogram.state()
        assert (state.round, state.history) == (whole.round, whole.history)
        counts |= dict(zip(state.labels, state.counts.tolist(), strict=True))
    assert counts == dict(zip(whole.labels, whole.counts.tolist(), strict=True))
