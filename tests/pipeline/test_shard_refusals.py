"""A shard goes on only with frames that follow its own rounds, a merge only with releases of one and the same round."""

import json
import tracemalloc
from copy import deepcopy
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import EpochRefused
from stream_dp.pipeline.frames import FrameRefused, decode_frame, encode_frame, shards_of
from stream_dp.pipeline.pipeline import MOST_COUNTED
from stream_dp.pipeline.shard import Shard
from stream_dp.privacy.keyed_noise import KeyedNoise, subkey
from stream_dp.releases.merge import RoundMerger, ShardsRefused, WholeRounds, decode_shard_release
from stream_dp.workers.merge import _Rounds
from tests.pipeline.pieces import EPOCH, KEY, Topics, epoch, in_shards, log_of, one_worker, release, sequencer

TEA = [b'{"items": ["tea", "milk"]}'] * 30
COFFEE = [b'{"items": ["coffee"]}', *TEA[1:]]


def topics_of(values: list[bytes], shards: int = 2) -> Topics:
    """Frames of ten rounds each."""
    return in_shards(log_of(values), shards, range(0, 60, 10))


def shard_at(round_number: int, topics: Topics) -> Shard:
    """Shard 0 after so many rounds, a multiple of ten."""
    shard = Shard(EPOCH, KEY, 0, 2)
    release(shard, topics.read(0, 0, round_number // 10))
    assert shard.round == round_number
    return shard


def test_frames_that_were_lost_are_noticed() -> None:
    topics = topics_of(TEA)
    with pytest.raises(FrameRefused, match="frames were lost"):
        release(shard_at(10, topics), topics.read(0, 2))


def test_frames_of_another_log_are_noticed_wherever_they_meet() -> None:
    ours, theirs = topics_of(TEA), topics_of(COFFEE)
    with pytest.raises(FrameRefused, match="another log"):
        release(shard_at(10, ours), theirs.read(0, 1))
    overlapping = sequencer(2)
    frames = overlapping.process(log_of(COFFEE)[:15]).frames
    with pytest.raises(FrameRefused, match="another log"):
        release(shard_at(10, ours), [(1, frames[0])])


def test_a_frame_that_overlaps_gives_only_what_is_new() -> None:
    ours = topics_of(TEA)
    whole = sequencer(2).process(log_of(TEA)).frames[0]
    shard = shard_at(20, ours)
    assert [part.round for part in release(shard, [(2, whole)])] == list(range(21, 31))
    assert release(shard, [(3, whole)]) == []
    with pytest.raises(ValueError, match="holds nothing after round 30"):
        whole.after(30)


@pytest.mark.parametrize(
    ("a_round", "goes_on"), [(MOST_COUNTED // 20, True), (MOST_COUNTED // 10 + 1_000, False)]
)
def test_an_epoch_ends_before_a_count_outgrows_its_bits(a_round: int, goes_on: bool) -> None:
    """What was released says so, also to a shard that goes on from its state: no count is ever wrapped."""
    (_, first), (_, second) = topics_of(TEA, shards=1).read(0, 0, 2)
    large = msgspec.structs.replace(first, counts=[a_round] * len(first.counts))
    shard = Shard(EPOCH, KEY, 0, 1)
    assert [part.round for part in release(shard, [(0, large)])] == list(range(1, 11))
    again = Shard(EPOCH, KEY, 0, 1, shard.position, deepcopy(shard.histogram.state()))
    again.last_release(9)
    for each in shard, again:
        if goes_on:
            assert len(release(each, [(1, second)])) == 10
        else:
            with pytest.raises(EpochRefused, match=r"--new-epoch"):
                release(each, [(1, second)])


def test_frames_of_a_closed_epoch_are_passed_over() -> None:
    topics, later = Topics(2), epoch(number=2)
    topics.write(sequencer(2, of=later).process(log_of(TEA)).frames)
    topics.write(sequencer(2).process(log_of(COFFEE)).frames)
    shard = Shard(later, KEY, 0, 2)
    assert len(release(shard, topics.read(0))) == 30
    assert shard.position.next_offset == 2


@pytest.mark.parametrize("changed", ["epoch", "nonce"])
def test_frames_of_another_epoch_are_refused(changed: str) -> None:
    frame = topics_of(TEA).read(0)[0][1]
    other = {"epoch": 2} if changed == "epoch" else {"nonce": bytes(16)}
    with pytest.raises(FrameRefused, match="another epoch"):
        release(Shard(EPOCH, KEY, 0, 2), [(0, msgspec.structs.replace(frame, **other))])


def test_frames_cut_for_another_number_of_shards_are_refused() -> None:
    with pytest.raises(FrameRefused, match="the same setting shards"):
        release(Shard(EPOCH, KEY, 0, 2), topics_of(TEA, shards=4).read(0))


@pytest.mark.parametrize(
    "value", [None, b"", b"{}", b"\xff", encode_frame(topics_of(TEA).read(0)[0][1])[:-1]]
)
def test_what_is_no_frame_is_refused(value: bytes | None) -> None:
    with pytest.raises(FrameRefused, match="not a frame"):
        decode_frame(value)


def test_frames_of_another_version_are_refused() -> None:
    frame = msgspec.structs.replace(topics_of(TEA).read(0)[0][1], v=4)
    with pytest.raises(FrameRefused, match="run the same version everywhere"):
        decode_frame(encode_frame(frame))


def test_a_label_falls_to_the_shard_that_its_keyed_identity_names() -> None:
    noise, labels = KeyedNoise(KEY, "s", EPOCH.nonce), [f"label {number}".encode() for number in range(500)]
    for shards in (1, 2, 7, 64):
        own = [
            int.from_bytes(
                blake2b(label, key=subkey(KEY, b"label id"), digest_size=16).digest()[:8], "little"
            )
            % shards
            for label in labels
        ]
        assert own == shards_of(noise.label_ids(labels), shards).tolist()
        assert set(own) == set(range(shards))
    other = KeyedNoise(bytes(32), "s", EPOCH.nonce)
    assert own != shards_of(other.label_ids(labels), 64).tolist()


def released_by(topics: Topics, shard: int) -> list[bytes]:
    return topics.released[shard]


def test_a_merge_waits_for_the_slowest_shard_and_says_who_is_ahead() -> None:
    topics, rounds = topics_of(TEA), WholeRounds(2, most_bytes=20_000)
    for value in released_by(topics, 0):
        rounds.add(decode_shard_release(value), 0, len(value))
    assert list(rounds.take()) == []
    assert rounds.is_ahead(0)
    assert not rounds.is_ahead(1)
    value = released_by(topics, 1)[0]
    rounds.add(decode_shard_release(value), 1, len(value))
    assert [whole[0].round for whole in rounds.take()] == [1]


@pytest.mark.parametrize(("labels", "letters"), [(0, 0), (10, 8), (300, 3), (300, 40)])
def test_a_merge_that_waits_takes_the_memory_that_it_may(labels: int, letters: int) -> None:
    """What is held of a fast shard is measured, whatever the releases are made of."""
    [value] = released_by(topics_of(TEA[:1], shards=1), 0)
    fields = json.loads(value)
    fields["labels"] = [f"{number:0{letters}}" for number in range(labels)]
    fields["counts"] = [100_000 + number for number in range(labels)]
    fields["first_shown"] = [200_000 + number for number in range(labels)]
    shard = {
        name: fields.pop(name)
        for name in ("shard", "shards", "part", "parts", "labels", "counts", "first_shown")
    }
    rounds, allowed, number = WholeRounds(1, most_bytes=2_000_000), 2_000_000, 0
    tracemalloc.start()
    try:
        while not rounds.is_ahead(0):
            number += 1
            value = json.dumps({**fields, "round": number, **shard}, separators=(",", ":")).encode()
            rounds.add(decode_shard_release(value), 0, len(value))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.7 * allowed < held < 1.1 * allowed


def test_what_comes_twice_is_merged_once() -> None:
    topics, rounds = topics_of(TEA), WholeRounds(2)
    for _ in range(2):
        for shard in (0, 1):
            for value in released_by(topics, shard):
                rounds.add(decode_shard_release(value), shard, len(value))
    assert [whole[0].round for whole in rounds.take()] == list(range(1, 31))


def test_a_merge_that_joins_late_begins_with_the_first_round_of_all_shards() -> None:
    topics, rounds = topics_of(TEA), WholeRounds(2)
    for shard, first in ((0, 5), (1, 9)):
        for value in released_by(topics, shard)[first:]:
            rounds.add(decode_shard_release(value), shard, len(value))
    assert [whole[0].round for whole in rounds.take()] == list(range(10, 31))


@pytest.mark.parametrize("forged", [False, True], ids=["lost", "a later one before its turn"])
def test_a_round_that_only_some_shards_released_is_noticed(forged: bool) -> None:
    topics, rounds = topics_of(TEA), WholeRounds(2)
    if forged:
        topics.released[1].insert(10, topics.released[1][20])
    else:
        del topics.released[1][10]
    for shard in (0, 1):
        for value in released_by(topics, shard):
            rounds.add(decode_shard_release(value), shard, len(value))
    with pytest.raises(
        ShardsRefused, match=r"round 11 is missing .* or another producer wrote to this topic"
    ):
        list(rounds.take())


def test_the_last_rounds_of_an_epoch_may_be_incomplete() -> None:
    """Its sequencer died in mid-frame, and an operator opened the next epoch."""
    topics, rounds = topics_of(TEA), WholeRounds(2)
    del topics.released[1][25:]
    later = Topics(2)
    later.write(sequencer(2, of=epoch(number=2)).process(log_of(COFFEE)).frames)
    for shard in (0, 1):
        released = release(Shard(epoch(number=2), KEY, shard, 2), later.read(shard))
        for value in [*released_by(topics, shard), *(part.value for part in released)]:
            rounds.add(decode_shard_release(value), shard, len(value))
    places = [whole[0].place for whole in rounds.take()]
    assert places == [*((1, number) for number in range(1, 26)), *((2, number) for number in range(1, 31))]


def test_shards_that_counted_different_logs_are_noticed() -> None:
    """Rounds that were closed at other times are other rounds."""
    topics, later = topics_of(TEA), Topics(2)
    moved = [record._replace(timestamp=record.timestamp + 1) for record in log_of(TEA)]
    later.write(sequencer(2).process(moved).frames)
    other = release(Shard(EPOCH, KEY, 1, 2), later.read(1))
    pair = [decode_shard_release(released_by(topics, 0)[0]), decode_shard_release(other[0].value)]
    with pytest.raises(ShardsRefused, match="do not agree on round 1"):
        RoundMerger().joined(pair)


@pytest.mark.parametrize(("partitions", "partition"), [(2, 1), (4, 2), (4, 0)])
def test_a_release_in_a_partition_that_is_not_its_shards_is_refused(partitions: int, partition: int) -> None:
    value = released_by(topics_of(TEA, shards=4), 1)[0]
    with pytest.raises(ShardsRefused, match="each to its partition"):
        WholeRounds(partitions).add(decode_shard_release(value), partition, len(value))


def test_an_epoch_may_have_another_number_of_shards_than_the_one_before() -> None:
    rounds, later = WholeRounds(4), epoch(number=2)
    for topics in (topics_of(TEA), in_shards(log_of(TEA), 4, of=later)):
        for shard, values in enumerate(topics.released):
            for value in values:
                rounds.add(decode_shard_release(value), shard, len(value))
    wholes = list(rounds.take())
    assert [whole[0].place for whole in wholes] == [(number, r) for number in (1, 2) for r in range(1, 31)]
    assert {len(whole) for whole in wholes} == {2, 4}


def test_a_release_of_a_worker_that_has_the_stream_alone_is_no_shards() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_shard_release(one_worker(log_of(TEA))[0].value)


def test_a_label_that_looks_like_json_changes_nothing_in_the_opening() -> None:
    values = [b'{"items": [",\\"shard\\":9", "tea"]}'] * 40
    topics = topics_of(values)
    assert any(b'\\"shard\\":9' in part.value for part in topics.merged())


def test_a_writer_cuts_rounds_where_a_frame_is_full() -> None:
    frames = sequencer(2).process(log_of([b'{"items": ["%s"]}' % (b"x" * 1024)] * 1023)).frames
    assert {frame.parts for frame in frames} == {1}
    assert max(len(encode_frame(frame)) for frame in frames) < 1 << 20
    assert len(frames) == 4


def test_a_merge_passes_over_what_is_no_release_of_its_stream(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever stands among the releases of the shards, the same rounds come out."""
    topics = topics_of(TEA)
    another = topics.released[0][3].replace(b'"stream":"s"', b'"stream":"t"')
    opened: Any = SimpleNamespace(opened=[SimpleNamespace(epoch=EPOCH)], read_on=lambda: None)
    rounds, merged = _Rounds(Settings(stream="s", shards=2), 2, None, opened), list[bytes]()
    for shard, values in enumerate(topics.released):
        for offset, value in enumerate(values):
            for each in (b"", None, b"\xff", another, value):
                rounds.add(each, shard, offset)
        merged += [part.value for batch in rounds.batches(ends=True) for part in batch]
    assert merged == [part.value for part in one_worker(log_of(TEA))]
    assert "that is not a release of stream 's'" in caplog.text
