"""What another engine counted releases what one worker releases that reads the events: lists stand for topics."""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from stream_dp.config.settings import Settings, SettingsError
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import Barrier, BarrierChain
from stream_dp.events.counts_record import CountsRefused
from stream_dp.events.log_digest import offset_of
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import LARGEST_VALUE, Record
from stream_dp.pipeline.partition_counts import PartitionCounts
from stream_dp.pipeline.partition_frames import encode
from stream_dp.pipeline.partition_intake import PartOfRound
from tests.pipeline.pieces import KEY
from tests.pipeline.reference_engine import counted, encoded
from tests.pipeline.test_group import SHARDS, Group, _barrier_over, epoch_over, log_of, whole

BOUND = 3
COUNTS = "s.counts"
Parsed = dict[str, Any]


def partition_of(of: Epoch, number: int, *place: Any) -> PartitionCounts:
    return PartitionCounts(of, KEY, COUNTS, number, SHARDS, *place)


def chain_of(of: Epoch) -> BarrierChain:
    assert of.after_barrier is not None
    return BarrierChain(KEY, "s", of.after_barrier)


def by_partition(of: Epoch, entries: Sequence[LogEntry], partitions: int) -> list[list[bytes]]:
    """The counts topic, as the reference engine writes it."""
    topic: list[list[bytes]] = [[] for _ in range(partitions)]
    for record in counted(entries, chain_of(of), BOUND):
        topic[record["partition"]].append(encoded(record))
    return topic


def of_first_round(of: Epoch, **fields: Any) -> Parsed:
    """A record of what the first partition brings to the first round, the only part unless `fields` say otherwise."""
    tag = first_tag(of)
    whole_part = {"partition": 0, "n": 1, "tag": tag, "first": 0, "part": 1, "parts": 1, "bound": BOUND}
    return whole_part | fields


def read(values: Iterable[bytes], number: int = 0, first: int = 0) -> list[Record]:
    return [Record(offset, 1_000, None, value, number) for offset, value in enumerate(values, first)]


def hand_on(group: Group, part: PartOfRound | None) -> None:
    if part is not None:
        for frame in part.frames:
            group.topics.frames[frame.shard].append(encode(frame))
        group.heads.append(encode(part.head))


def check(
    of: Epoch, entries: Sequence[LogEntry], topic: Sequence[Sequence[bytes]], rng: random.Random
) -> None:
    """Readers that are killed at random places release what one worker releases."""
    group = Group(of, entries)
    for number, values in enumerate(topic):
        intake, barriers = partition_of(of, number), list(group.barriers)
        saved, reached = (intake.position, intake.state()), 0
        while intake.passed < len(barriers):
            if rng.random() < 0.02:  # killed: it reads again what it had not saved, and says it again
                intake = partition_of(of, number, *saved)
                reached = offset_of(intake.last) or 0
            upcoming = barriers[intake.passed]
            if intake.has(upcoming):
                hand_on(group, intake.close(upcoming))
                if rng.random() < 0.5:
                    saved = intake.position, intake.state()
            else:
                intake.add(read(values, number)[reached])
                reached += 1
    group.seal()
    _, expected = whole(of, entries)
    assert expected
    assert group.released() == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("added", [0, 2])
def test_counts_of_another_engine_release_what_one_worker_releases(seed: int, added: int) -> None:
    of = epoch_over(3)
    entries = log_of(of, seed, added)
    check(of, entries, by_partition(of, entries, 3 + added), random.Random(seed))


@pytest.mark.parametrize("seed", range(3))
def test_neither_order_nor_repeats_nor_barriers_that_do_not_count_change_a_release(seed: int) -> None:
    rng, of = random.Random(seed), epoch_over(3)
    entries = log_of(of, seed)
    topic = by_partition(of, entries, 3)
    for values in topic:
        values += rng.sample(values, 5)
        values += [changed(value, tag="f" * 32) for value in rng.sample(values, 5)]
        rng.shuffle(values)
    check(of, entries, topic, rng)


def changed(value: bytes, **fields: Any) -> bytes:
    return encoded({**json.loads(value), **fields})


Change = Callable[[Parsed], Parsed]


def ending(of: Epoch, *values: bytes) -> None:
    """All that a reader does with a first round of these records, over four offsets."""
    barrier = first_barrier(of)
    intake = partition_of(of, 0)
    for record in read(values, first=7):
        intake.add(record)
    assert intake.has(barrier)
    intake.close(barrier)


def first_barrier(of: Epoch) -> Barrier:
    return _barrier_over(of, 4, 0, 0)[0]


def first_tag(of: Epoch) -> str:
    barrier = first_barrier(of)
    return str(json.loads(chain_of(of).encode(barrier.due, barrier.offsets))["tag"])


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"counts": [{"label": "a", "count": 5}]}, "more often than barrier 1 closes offsets, which are 4"),
        ({"counts": [{"label": x, "count": 4} for x in "abcd"]}, "more labels than its 4 offsets can hold"),
        ({"counts": [{"label": "a", "count": 1}] * 2}, "a label that barrier 1 has already"),
        ({"counts": [{"label": "a", "count": 0}]}, "holds no counts"),
        ({"counts": [{"label": "a", "count": -1}]}, "holds no counts"),
        ({"counts": [{"label": "a", "count": 1.5}]}, "holds no counts"),
        ({"counts": [{"label": "a", "count": 10**30}]}, "holds no counts"),
        ({"counts": [{"label": "", "count": 1}]}, "holds no counts"),
        ({"counts": [{"label": "x" * 1025, "count": 1}]}, "holds no counts"),
        ({"counts": [{"label": "\ud800", "count": 1}]}, "holds no counts"),
        ({"counts": [{"label": "a", "count": 1, "user": "u"}]}, "holds no counts"),
        ({"bound": 4}, "bounded at 4 items an event, and the epoch counts 3"),
        ({"partition": 1}, "counts of partition 1"),
        ({"partition": -1}, "holds no counts"),
        ({"part": 2}, "part 2 of 1"),
        ({"parts": 10**9}, "holds no counts"),
        ({"n": 0}, "holds no counts"),
        ({"tag": "no tag"}, "holds no counts"),
        ({"first": -1}, "holds no counts"),
        ({"first": 1}, "was counted from offset 1 on, and the round begins at offset 0"),
        ({"v": 2}, "holds no counts"),
        ({"note": "x" * LARGEST_VALUE}, "more than 1048576 bytes"),
    ],
)
def test_what_cannot_be_is_refused_at_its_place(fields: Parsed, refusal: str) -> None:
    of = epoch_over(3)
    good = of_first_round(of, counts=[{"label": x, "count": 4} for x in "abc"])
    ending(of, encoded(good))
    with pytest.raises(CountsRefused, match=r"offset 7 of partition 0 of the topic 's.counts'") as refused:
        ending(of, encoded({**good, **fields}))
    assert refusal in str(refused.value)


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_record_of_counts_is_refused(value: bytes | None) -> None:
    with pytest.raises(CountsRefused, match=r"the record at offset 3 of partition 0 .* holds no counts"):
        partition_of(epoch_over(3), 0).add(Record(3, 0, None, value))


@pytest.mark.parametrize(
    "other",
    [{"counts": []}, {"bound": 2}, {"parts": 3}, {"first": 1}, {"counts": [{"label": "b", "count": 1}]}],
)
def test_a_repeat_that_says_something_else_is_refused(other: Parsed) -> None:
    of = epoch_over(3)
    first = of_first_round(of, parts=2, counts=[{"label": "a", "count": 1}])
    with pytest.raises(CountsRefused, match="offset 8"):
        ending(of, encoded(first), encoded({**first, **other}))


def test_a_label_in_two_parts_is_refused() -> None:
    of = epoch_over(3)
    counts = [{"label": "a", "count": 1}]
    both = [encoded(of_first_round(of, part=part, parts=2, counts=counts)) for part in (1, 2)]
    with pytest.raises(CountsRefused, match=r"offset 8 .* a label that barrier 1 has already"):
        ending(of, *both)


def test_what_waits_is_bounded() -> None:
    """An engine whose barriers never count fills no memory."""
    intake = partition_of(epoch_over(3), 0)
    place = {"partition": 0, "tag": "0" * 32, "first": 0, "part": 1, "parts": 2, "bound": BOUND}
    labels = [{"label": f"{number:01000}", "count": 1} for number in range(900)]

    def fill() -> None:
        for number in range(1, 200):
            intake.add(Record(number, 0, None, encoded({**place, "n": number, "counts": labels})))

    with pytest.raises(CountsRefused, match="bytes that may wait"):
        fill()
    assert intake.held_bytes < 70 << 20


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rounds": "per-event"}, 'set rounds = "ticks"'),
        ({"shards": 0}, "set shards to their number"),
        ({"unit": "user", "items_per_user": 3}, 'takes unit = "event"'),
    ],
)
def test_settings_that_counts_do_not_fit_are_refused(wrong: Parsed, said: str) -> None:
    fitting: Parsed = {"stream": "s", "rounds": "ticks", "shards": 1, "intake": "counts"}
    Settings(**fitting)
    with pytest.raises(SettingsError, match=said):
        Settings(**{**fitting, **wrong})
