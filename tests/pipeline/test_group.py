"""Partitions that are counted apart release what one worker releases that reads them all: lists stand for topics."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
import pytest

from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.events.barrier_chain import Barrier, BarrierChain, beginning, named
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record
from stream_dp.events.records import Records
from stream_dp.events.user_partitions import PartitionsAdded, partition_rule
from stream_dp.pipeline.coordinator import Coordinator, HeadsOfRounds
from stream_dp.pipeline.frames import Frame, FrameRefused, FramesLost, encode_frame
from stream_dp.pipeline.intake import Position
from stream_dp.pipeline.partition_frames import (
    PartitionFrame,
    PartitionHead,
    decode_of_shard,
    encode,
)
from stream_dp.pipeline.partition_intake import PartitionIntake
from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart
from stream_dp.pipeline.shard import Shard
from tests.pipeline.pieces import KEY, TOPIC, Topics, epoch, release
from tests.system.example_events import some_events

SHARDS, ROUNDS = 3, 12


def epoch_over(partitions: int) -> Epoch:
    of = epoch(rounds="ticks")
    further = (0,) * (partitions - 1)
    return replace(of, further_offsets=further, after_barrier=beginning("c", 0, 0, *further))


def epoch_of_users(partitions: int) -> Epoch:
    settings = Settings(
        stream="s",
        epsilon=30.0,
        delta=1e-2,
        horizon=1023,
        unit="user",
        items_per_user=3,
        rounds="ticks",
        mapping=EventsSection(partitioner="murmur2"),
        mechanism="binary",
    )
    further = (0,) * (partitions - 1)
    opened = Epoch.open(settings, 1, 0, further_offsets=further)
    return replace(opened, nonce=bytes(16), after_barrier=beginning("c", 0, 0, *further))


def log_of(of: Epoch, seed: int, added: int = 0, users: int = 0, dues: Sequence[int] = ()) -> list[LogEntry]:
    """Rounds of events, some empty; after half of them `added` more partitions are there.

    `dues`: when the rounds are closed, where that matters; then some partitions have no leader and some answers are
    late.
    """
    days = bool(dues)
    dues = dues or [1_000 * number for number in range(1, ROUNDS + 1)]
    rng = random.Random(seed)
    assert of.after_barrier is not None
    chain = BarrierChain(KEY, "s", of.after_barrier)
    ends = [0] * len(of.offsets)
    entries: list[LogEntry] = []
    for number, due in enumerate(dues, 1):
        ends += [0] * (added if number == ROUNDS // 2 else 0)
        unled = [partition for partition in range(len(ends)) if days and rng.random() < 0.2]
        for partition in range(len(ends)):
            if partition in unled:
                continue
            for value in some_events(rng.choice([0, 0, 1, 4, 9]), rng.randrange(10**6), users):
                gap = rng.choice([0, 0, 0, 2])  # aborted records take offsets
                offset = ends[partition] + gap
                entries.append(Record(offset, 1_000 + offset, b"k", value, partition))
                ends[partition] = offset + 1
        late = rng.choice([0, 0, 6_000_000]) if days else 0
        barrier = chain.take(number - 1, chain.encode(due, named(ends), due + late, unled))
        assert barrier is not None
        entries.append(barrier)
    return entries


class Group:
    """Members, the worker and shards, between which records go through lists."""

    def __init__(self, of: Epoch, entries: Sequence[LogEntry]) -> None:
        self.of, self.entries = of, entries
        self.topics = Topics(SHARDS)
        self.heads: list[bytes] = []
        self.letters = 0
        self.worker = Coordinator(of, KEY, SHARDS)
        self._waiting = HeadsOfRounds(of, 0)
        self._read = 0

    @property
    def barriers(self) -> list[Barrier]:
        return [each for each in self.entries if isinstance(each, Barrier)]

    def partition(self, number: int) -> PartitionIntake:
        return PartitionIntake(self.of, KEY, TOPIC, number, SHARDS)

    def count(self, intake: PartitionIntake, barrier: Barrier) -> None:
        """What a member does for one of its partitions and one barrier."""
        before, end = intake.position.offsets, barrier.ends
        place = intake.number
        start = before[place] if place < len(before) else 0
        records = [
            each
            for each in self.entries
            if isinstance(each, Record)
            and each.partition == place
            and start <= each.offset < (*end, *[0] * 99)[place]
        ]
        part = intake.close(barrier, [Records.of(records)] if records else [])
        if part is not None:
            self.letters += len(part.dead_letters)
            for frame in part.frames:
                self.topics.frames[frame.shard].append(encode(frame))
            self.heads.append(encode(part.head))

    def seal(self) -> None:
        """What the worker does now and then."""
        self._waiting.add(
            Record(offset, 0, None, value)
            for offset, value in enumerate(self.heads[self._read :], self._read)
        )
        self._read = len(self.heads)
        for barrier in self.barriers[self.worker.passed :]:
            number, partitions = self.worker.passed + 1, len(barrier.offsets)
            if self._waiting.missing(number, partitions):
                return
            frames = self.worker.process([*self._waiting.take(number, partitions), barrier]).frames
            self.topics.write(frames)

    def frames(self, shard: int) -> list[tuple[int, Frame | PartitionFrame]]:
        return [(offset, decode_of_shard(value)) for offset, value in enumerate(self.topics.frames[shard])]

    def released(self) -> list[ReleasedPart]:
        for number in range(SHARDS):
            found = release(Shard(self.of, KEY, number, SHARDS), self.frames(number))
            self.topics.released[number] = [part.value for part in found]
        return self.topics.merged()


def whole(of: Epoch, entries: Iterable[LogEntry]) -> tuple[Pipeline, list[ReleasedPart]]:
    pipeline = Pipeline(of, KEY, TOPIC)
    return pipeline, pipeline.process(list(entries)).releases


def compare_at_any_pace(
    of: Epoch, entries: Sequence[LogEntry], partitions: int, members: int, seed: int
) -> list[ReleasedPart]:
    """What members at random paces release, some of which go back, is what one worker releases."""
    group, rng = Group(of, entries), random.Random(seed)
    intakes = [group.partition(number) for number in range(partitions)]
    saved = {number: _saved(intake) for number, intake in enumerate(intakes)}
    while group.worker.passed < len(group.barriers):
        member = rng.randrange(members)
        for number in range(member, partitions, members):
            intake = intakes[number]
            if rng.random() < 0.3:
                saved[number] = _saved(intake)
            if rng.random() < 0.1:
                place = KEY, TOPIC, number, SHARDS, *saved[number]
                intakes[number] = PartitionIntake(of, *place)
            elif intake.passed < len(group.barriers):
                group.count(intake, group.barriers[intake.passed])
        if rng.random() < 0.1:
            group.worker = Coordinator(of, KEY, SHARDS, group.worker.position, group.worker.state())
        if rng.random() < 0.5:
            group.seal()
    pipeline, expected = whole(of, entries)
    assert expected
    assert group.released() == expected
    found = group.worker
    assert (found.position, found.state().history) == (pipeline.position, pipeline.state().history)
    return expected


def _saved(intake: PartitionIntake) -> tuple[Position, HistogramState, bytes]:
    return intake.position, intake.state(), bytes(intake.pairs)


@pytest.mark.parametrize("members", [1, 3, 12])
@pytest.mark.parametrize("added", [0, 2])
def test_members_at_any_pace_release_what_one_worker_releases(members: int, added: int) -> None:
    """Whoever has work is chosen at random; sometimes a member dies, and its partition goes back some rounds."""
    partitions = 12 - added
    for seed in range(3):
        of = epoch_over(partitions)
        compare_at_any_pace(of, log_of(of, seed, added), 12, members, seed)


def test_users_are_bounded_by_the_member_that_owns_their_partition() -> None:
    """Half of the events stand where their user does not: they are empty to all."""
    of = epoch_of_users(2)
    entries = log_of(of, seed=3, users=20)
    group = Group(of, entries)
    intakes = [group.partition(number) for number in range(2)]
    for barrier in group.barriers:
        for number, intake in enumerate(intakes):
            group.count(intake, barrier)
            place = KEY, TOPIC, number, SHARDS, intake.position, intake.state(), intake.pairs
            intakes[number] = PartitionIntake(of, *place)
    group.seal()
    pipeline, expected = whole(of, entries)
    assert group.released() == expected
    assert len(pipeline.intake.pairs) == sum(len(intake.pairs) for intake in intakes) > 0
    rule = partition_rule("murmur2", 2)
    rules = {f"user {number}": rule(f"user {number}") for number in range(20)}
    assert {*rules.values()} == {0, 1}
    misplaced = sum(
        (each.value or b"").endswith(b'"}') and rules[json.loads(each.value or b"")["user"]] != each.partition
        for each in entries
        if isinstance(each, Record)
    )
    assert group.letters > misplaced > 10


def test_a_partition_that_users_have_moved_to_stops_the_stream_whatever_it_holds() -> None:
    of = epoch_of_users(2)
    for value in (b"no event", b'{"items": ["tea"], "user": "u"}'):
        record = Record(0, 0, None, value, 2)
        with pytest.raises(PartitionsAdded, match="more partitions than the 2"):
            Pipeline(of, KEY, TOPIC).process([record, *_barrier_over(of, 0, 0, 1)])


def _barrier_over(of: Epoch, *ends: int) -> list[Barrier]:
    assert of.after_barrier is not None
    chain = BarrierChain(KEY, "s", of.after_barrier)
    barrier = chain.take(0, chain.encode(1_000, named(ends)))
    assert barrier is not None
    return [barrier]


def counted(partitions: int = 3) -> Group:
    """A group that has counted everything and sealed nothing."""
    of = epoch_over(partitions)
    group = Group(of, log_of(of, seed=5))
    for number in range(partitions):
        intake = group.partition(number)
        for barrier in group.barriers:
            group.count(intake, barrier)
    return group


def test_a_shard_goes_on_from_any_place_in_its_partition() -> None:
    group = counted()
    group.seal()
    _, expected = whole(group.of, group.entries)
    for shard in range(SHARDS):
        frames = group.frames(shard)
        uninterrupted = release(Shard(group.of, KEY, shard, SHARDS), frames)
        for stop in range(0, len(frames), 3):
            first = Shard(group.of, KEY, shard, SHARDS)
            found = release(first, frames[:stop])
            again = Shard(group.of, KEY, shard, SHARDS, first.position, first.histogram.state())
            found += release(again, frames[first.position.next_offset :])
            assert found == uninterrupted
    assert group.released() == expected


def test_the_worker_goes_on_from_any_round() -> None:
    group = counted()
    waiting = HeadsOfRounds(group.of, 0)
    records = [Record(offset, 0, None, value) for offset, value in enumerate(group.heads)]
    waiting.add(records)
    straight = Coordinator(group.of, KEY, SHARDS)
    entries: list[LogEntry] = []
    for number, barrier in enumerate(group.barriers, 1):
        entries += [*waiting.take(number, 3), barrier]
    expected = [encode_frame(frame) for each in _one_by_one(straight, entries) for frame in each]
    for stop in range(ROUNDS):
        first = Coordinator(group.of, KEY, SHARDS)
        found = [encode_frame(frame) for each in _one_by_one(first, entries[: 4 * stop]) for frame in each]
        again = Coordinator(group.of, KEY, SHARDS, first.position, first.state())
        rest = HeadsOfRounds(group.of, again.round)
        rest.add(records[first.heads_offset :])
        later: list[LogEntry] = []
        for number, barrier in enumerate(group.barriers[stop:], stop + 1):
            later += [*rest.take(number, 3), barrier]
        found += [encode_frame(frame) for each in _one_by_one(again, later) for frame in each]
        assert found == expected
        assert again.position == straight.position


def _one_by_one(worker: Coordinator, entries: Sequence[LogEntry]) -> list[list[Frame]]:
    return [worker.process(entries[place : place + 4]).frames for place in range(0, len(entries), 4)]


def test_a_frame_that_was_lost_or_changed_stops_the_shard() -> None:
    group = counted()
    group.seal()
    frames = group.frames(0)
    for place, (_, frame) in enumerate(frames):
        if isinstance(frame, PartitionFrame):
            with pytest.raises(FramesLost, match=f"round {frame.round} was sealed"):
                release(Shard(group.of, KEY, 0, SHARDS), frames[:place] + frames[place + 1 :])
    offset, frame = frames[0]
    assert isinstance(frame, PartitionFrame)
    other = msgspec.structs.replace(frame, head=bytes(32))
    with pytest.raises(FrameRefused, match="partition 0 was counted in two ways in round 1"):
        release(Shard(group.of, KEY, 0, SHARDS), [(offset, frame), (offset, other)])
    with pytest.raises(FramesLost):
        release(Shard(group.of, KEY, 0, SHARDS), [(offset, other), *frames[1:]])


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"head": bytes(32)}, "partition 1 was counted in two ways in round 2"),
        ({"records": 99}, "partition 1 was counted in two ways in round 2"),
        ({"nonce": bytes(16)}, "heads of epoch 1, which is not the one that is open"),
        ({"epoch": 2, "nonce": bytes(16)}, "heads of epoch 2, which is not the one that is open"),
    ],
)
def test_heads_that_contradict_each_other_stop_the_worker(changed: dict[str, object], refusal: str) -> None:
    group = counted()
    [head] = [each for each in _heads(group) if (each.partition, each.round) == (1, 2)]
    group.heads.append(encode(msgspec.structs.replace(head, **changed)))
    with pytest.raises(FrameRefused, match=refusal):
        group.seal()


def test_heads_of_closed_epochs_and_what_is_no_head() -> None:
    group = counted()
    [head] = [each for each in _heads(group) if (each.partition, each.round) == (1, 2)]
    group.heads.insert(0, encode(msgspec.structs.replace(head, epoch=0, nonce=bytes(16))))
    group.seal()
    assert group.worker.round == ROUNDS
    for value in (b"", b"\x93\x01\x02", encode(head)[:-1], b"{}"):
        with pytest.raises(FrameRefused, match="not a head of this version"):
            HeadsOfRounds(group.of, 0).add([Record(0, 0, None, value)])


def test_a_head_by_another_barrier_stops_the_worker() -> None:
    group = counted()
    place, head = next(
        (n, each) for n, each in enumerate(_heads(group)) if (each.partition, each.round) == (1, 2)
    )
    group.heads[place] = encode(msgspec.structs.replace(head, barrier="0" * 32))
    with pytest.raises(FrameRefused, match="closed round 2 of partition 1 by another barrier"):
        group.seal()


def test_a_round_of_very_many_labels_comes_in_parts() -> None:
    of = epoch_over(2)
    label = "x" * 1000
    items = [b'{"items": ["%s%d"]}' % (label.encode(), number) for number in range(4000)]
    chain = BarrierChain(KEY, "s", of.after_barrier or beginning("c", 0, 0, 0))
    barrier = chain.take(0, chain.encode(1_000, named([4000, 0])))
    assert barrier is not None
    entries: list[LogEntry] = [*(Record(n, 0, None, value) for n, value in enumerate(items)), barrier]
    group = Group(of, entries)
    for number in range(2):
        group.count(group.partition(number), barrier)
    assert max(len(value) for values in group.topics.frames for value in values) < 1_000_000
    group.seal()
    assert any(isinstance(frame, PartitionFrame) and frame.parts > 1 for _, frame in group.frames(0))
    pipeline, expected = whole(of, entries)
    assert group.released() == expected
    assert pipeline.position == group.worker.position


def _heads(group: Group) -> list[PartitionHead]:
    return [msgspec.msgpack.decode(value, type=PartitionHead) for value in group.heads]
