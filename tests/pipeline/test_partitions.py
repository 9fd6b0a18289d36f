"""Several partitions without a broker: the same bytes whatever order fetches come in, however often one restarts."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import Barrier, BarrierChain, beginning, named
from stream_dp.events.merged_log import LogEntry, MergedLog, merged, one_by_one
from stream_dp.events.record import Record
from stream_dp.events.rounds import events_of
from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY
from stream_dp.releases.release import decode_release
from tests.events.barrier_chains import CHAIN, KEY, STREAM
from tests.pipeline.pieces import TOPIC

NOISE_KEY = bytes(range(32))
KINDS = ["ticks", "per-event", "every-3"]
ENDS = [(2, 0), (2, 3), (5, 4, 0), (5, 4, 4), (9, 4, 4), (9, 4, 6)]
"""What six barriers say; the third partition is there from the third on, and the second ends at 4."""
GAPS = {(0, 1), (0, 6), (1, 3), (2, 2)}
"""Marks of transactions and aborted records: their offsets are taken, and nobody gets them."""


def records(partition: int, start: int = 0, end: int = 9) -> list[Record]:
    """What a fetch gives of a partition between two offsets."""
    return [
        Record(offset, 10 + offset, b"k", _value(partition, offset), partition)
        for offset in range(start, end)
        if (partition, offset) not in GAPS
    ]


def _value(partition: int, offset: int) -> bytes:
    if (partition, offset) == (2, 3):
        return b"no event"
    items = f'"all", "p{partition}", "o{offset % 2}"'
    return b'{"items": [%b], "user": "u%d"}' % (items.encode(), (partition + offset) % 3)


def epoch(rounds: str, unit: str = "event", partitions: int = 2) -> Epoch:
    more: Any = {"unit": "user", "items_per_user": 3} if unit == "user" else {"items_per_event": 3}
    settings = Settings(
        stream="s", epsilon=30.0, delta=1e-2, horizon=1023, rounds=rounds, mechanism="binary", **more
    )
    starts = (0,) * partitions
    opened = Epoch.open(settings, 1, 0, further_offsets=starts[1:])
    return replace(opened, nonce=bytes(16), after_barrier=beginning(CHAIN, 0, *starts))


def chain(of: Epoch) -> BarrierChain:
    assert of.after_barrier is not None
    return BarrierChain(KEY, STREAM, of.after_barrier)


def barrier_values(of: Epoch, ends: Sequence[tuple[int, ...]] = ENDS) -> list[bytes]:
    following, found = chain(of), []
    for place, vector in enumerate(ends):
        found.append(following.encode(1_000 * (place + 1), named(vector)))
        assert following.take(place, found[-1]) is not None
    return found


def in_order(of: Epoch, ends: Sequence[tuple[int, ...]] = ENDS) -> list[LogEntry]:
    """The log as the rule says it: segment by segment, and in each by partition and offset."""
    following, found, before = chain(of), list[LogEntry](), dict[int, int]()
    for place, value in enumerate(barrier_values(of, ends)):
        barrier = following.take(place, value)
        assert barrier is not None
        events = [
            each
            for partition, end in enumerate(barrier.ends)
            for each in records(partition, before.get(partition, 0), end)
        ]
        found += [*events, barrier] if of.privacy["rounds"] == "ticks" else [barrier, *events]
        before = dict(enumerate(barrier.ends))
    return found


def releases(of: Epoch, entries: Sequence[LogEntry]) -> list[ReleasedPart]:
    return Pipeline(of, NOISE_KEY, TOPIC).process(entries).releases


def fetched(of: Epoch, steps: Iterator[tuple[str, int]]) -> list[LogEntry]:
    """What `MergedLog` gives where barriers and events come as `steps` say: a barrier, or the next of a partition."""
    log = MergedLog(chain(of), 0, 0, barriers_first=of.privacy["rounds"] != "ticks")
    values, position, found = list(enumerate(barrier_values(of))), [0, 0, 0], list[LogEntry]()
    for kind, number in steps:
        if kind == "barrier" and values:
            log.add_barriers([values.pop(0)])
        elif kind == "events" and number < log.partitions:
            reached = position[number] + 1
            log.add_events(records(number, position[number], reached), reached, number)
            position[number] = reached
        found += one_by_one(log.take(1))
    return [*found, *one_by_one(log.take(99))]


EVERYTHING = [*[("barrier", 0)] * 6, *[("events", 0)] * 9, *[("events", 1)] * 4, *[("events", 2)] * 6]


@pytest.mark.parametrize("rounds", KINDS)
def test_whatever_order_fetches_come_in_the_log_is_the_same(rounds: str) -> None:
    of = epoch(rounds)
    expected = in_order(of)
    for seed in range(200):
        steps = EVERYTHING.copy()
        random.Random(seed).shuffle(steps)
        late = [("barrier", 0)] * 6 + [("events", 2)] * 6  # what came before its partition was known, again
        assert expected == fetched(of, iter([*steps, *late])), seed


def test_every_order_of_a_small_log_gives_the_same_bytes() -> None:
    """Two partitions of two records and two barriers: all 90 orders."""
    of, ends = epoch("per-event"), [(1, 1), (2, 2)]
    values = barrier_values(of, ends)
    expected = releases(of, in_order(of, ends))
    orders = set(permutations([*["barrier"] * 2, *["0"] * 2, *["1"] * 2]))
    assert len(orders) == 90
    for order in orders:
        log, position, given, found = MergedLog(chain(of), 0, 0, barriers_first=True), [0, 0], 0, []
        pipeline = Pipeline(of, NOISE_KEY, TOPIC)
        for step in order:
            if step == "barrier":
                log.add_barriers([(given, values[given])])
                given += 1
            else:
                number = int(step)
                at = position[number]
                event = Record(at, 10 + at, b"k", _value(number, at), number)
                if (number, at) not in GAPS:
                    log.add_events([event], at + 1, number)
                else:
                    log.add_events([], at + 1, number)
                position[number] += 1
            found += pipeline.process(log.take(9)).releases
        assert expected == found, order


@given(st.sampled_from(KINDS), st.sampled_from(["event", "user"]), st.lists(st.integers(0, 40), max_size=6))
def test_batches_and_restarts_change_no_byte(rounds: str, unit: str, cuts: list[int]) -> None:
    of = epoch(rounds, unit)
    log = in_order(of)
    whole = Pipeline(of, NOISE_KEY, TOPIC)
    expected = whole.process(log).releases
    found: list[ReleasedPart] = []
    pipeline = Pipeline(of, NOISE_KEY, TOPIC)
    for end in sorted({*(cut for cut in cuts if cut < len(log)), len(log)}):
        found += pipeline.process(log[:end]).releases  # what was taken before is skipped
        pipeline = Pipeline(
            of, NOISE_KEY, TOPIC, pipeline.position, pipeline.state(), bytes(pipeline.intake.pairs) or b""
        )
    assert expected == found
    assert whole.position == pipeline.position
    assert expected[-1].round == {"ticks": 6, "per-event": 15, "every-3": 5}[rounds]


def test_rounds_say_when_their_barrier_was_due() -> None:
    times = [
        decode_release(part.value).ts for part in releases(epoch("per-event"), in_order(epoch("per-event")))
    ]
    assert times == sorted(times)
    assert times[0] == "1970-01-01T00:00:01.000Z"
    assert times[-1] == "1970-01-01T00:00:06.000Z"


@pytest.mark.parametrize("rounds", KINDS)
def test_one_record_more_or_less_shows_in_no_round_before_its_own(rounds: str) -> None:
    """Neighbours: same offsets and barriers, and another record at (1, 1), which the second barrier closes."""
    of = epoch(rounds)
    log = in_order(of)
    other = [
        each._replace(value=None)
        if isinstance(each, Record) and (each.partition, each.offset) == (1, 1)
        else each
        for each in log
    ]
    ours, theirs = releases(of, log), releases(of, other)
    where = [isinstance(each, Record) and (each.partition, each.offset) == (1, 1) for each in log].index(True)
    before = Pipeline(of, NOISE_KEY, TOPIC)
    before.process(log[:where])
    assert [part.round for part in ours] == [part.round for part in theirs]
    assert ours[: before.round] == theirs[: before.round]
    assert all(
        mine.value != other.value
        for mine, other in zip(ours[before.round :], theirs[before.round :], strict=True)
    )


def test_whoever_reads_one_partition_alone_computes_its_part_of_every_head() -> None:
    of = epoch("ticks")
    pipeline = Pipeline(of, NOISE_KEY, TOPIC)
    pipeline.process(in_order(of))
    noise, history = of.noise(NOISE_KEY), EMPTY_HISTORY
    alone: list[list[bytes]] = []
    for partition in range(3):
        digests, before = list[bytes](), 0
        for number, vector in enumerate(ENDS, 1):
            admitted: list[str] = []
            if partition < len(vector):
                admitted = [
                    label
                    for each in records(partition, before, vector[partition])
                    if (partition, each.offset) != (2, 3)
                    for label in ("all", f"p{partition}", f"o{each.offset % 2}")
                ]
                before = vector[partition]
            digests.append(noise.part_digest(number, partition, admitted))
        alone.append(digests)
    for number, vector in enumerate(ENDS, 1):
        joined = [(partition, alone[partition][number - 1]) for partition in range(len(vector))]
        history = noise.join_histories(history, number, [joined])[0]
    assert pipeline.state().history == history


def test_a_partition_that_comes_later_changes_no_round_before() -> None:
    """A log that had one partition goes on from its own chain when the second one comes."""
    of = epoch("ticks", partitions=1)
    ends = [(2,), (4,), (4, 2), (6, 3)]
    log = in_order(of, ends)
    alone = releases(of, in_order(of, [(2,), (4,), (4,), (6,)]))
    together = releases(of, log)
    assert together[:2] == alone[:2]
    assert together[2:] != alone[2:]
    pipeline = Pipeline(of, NOISE_KEY, TOPIC)
    found = [part for each in log for part in pipeline.process([each]).releases]
    assert together == found
    assert pipeline.position.offsets == (6, 3)


@pytest.mark.parametrize(
    "change", ["offset", "timestamp", "key", "value", "partition", "order", "gone", "moved"]
)
def test_the_digest_of_a_log_tells_any_other_log(change: str) -> None:
    of = epoch("ticks")
    log = in_order(of)
    place = next(
        number for number, each in enumerate(log) if isinstance(each, Record) and each.partition == 1
    )
    record, edited = log[place], list(log)
    assert isinstance(record, Record)
    following = edited[place + 1]
    assert isinstance(following, Record)
    if change == "order":
        edited[place : place + 2] = [
            record._replace(value=following.value),
            following._replace(value=record.value),
        ]
    elif change == "gone":
        del edited[place]
    elif change == "moved":  # from the end of one value to the beginning of the next
        edited[place : place + 2] = [
            record._replace(value=(record.value or b"")[:-1]),
            following._replace(value=b"}" + (following.value or b"")),
        ]
    else:
        others: dict[str, Any] = {"offset": 1, "timestamp": 9, "key": None, "value": b"", "partition": 0}
        edited[place] = record._replace(**{change: others[change]})
        if change == "partition":
            edited[place] = record._replace(partition=0, offset=2)
        if change == "offset":
            edited[place : place + 2] = [following._replace(value=record.value), following._replace(offset=2)]
    ours, theirs = Pipeline(of, NOISE_KEY, TOPIC), Pipeline(of, NOISE_KEY, TOPIC)
    ours.process(log)
    theirs.process(edited)
    assert ours.position.log.sequence != theirs.position.log.sequence


@pytest.mark.parametrize("rounds", KINDS)
def test_topics_read_one_after_the_other_give_the_same(rounds: str) -> None:
    of = epoch(rounds)
    for size in (1, 2, 9):

        def batches(partition: int, size: int = size) -> Iterator[tuple[int, list[Record]]]:
            for start in range(0, 9, size):
                yield min(9, start + size), records(partition, start, min(9, start + size))

        found = list(
            merged(
                chain(of),
                enumerate(barrier_values(of)),
                batches,
                0,
                0,
                barriers_first=events_of(rounds) is not None,
            )
        )
        expected = in_order(of)
        assert found[: len(expected)] == expected
        assert not any(isinstance(each, Barrier) for each in found[len(expected) :])
