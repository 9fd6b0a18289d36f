"""Which records of the barriers topic count: whatever else is written there, by whomever, and in any order."""

from itertools import combinations, permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.events.barrier_chain import (
    PARTITION,
    Barrier,
    BarrierChain,
    BarrierRecord,
    beginning,
    decode_barrier,
    is_at,
)
from tests.events.barrier_chains import CHAIN, KEY, STREAM, barriers, chain, values


def counted(records: list[bytes | None], start: Barrier | None = None) -> list[Barrier]:
    following = chain(start=start)
    found = [following.take(offset, value) for offset, value in enumerate(records)]
    return [barrier for barrier in found if barrier is not None]


def changed(value: bytes, **fields: Any) -> bytes:
    """The record with other fields, and the tag that it had."""
    return msgspec.json.encode({**msgspec.json.decode(value), **fields})


def tagged(record: bytes, **fields: Any) -> bytes:
    """The record with other fields, and the tag that a writer with the key would give it."""
    found = decode_barrier(changed(record, **fields))
    assert found is not None
    tag = chain()._tag(found.n, found.due, found.answered, found.offsets, found.repeated, found.previous)
    return changed(record, **fields, tag=tag)


def test_barriers_count_one_after_the_other() -> None:
    found = counted(list(values(3, 3, 10)))
    assert [(each.number, each.due, each.end, each.next_offset) for each in found] == [
        (1, 1_000, 3, 1),
        (2, 2_000, 3, 2),
        (3, 3_000, 10, 3),
    ]
    assert len({each.digest for each in found}) == 3
    assert found == barriers(3, 3, 10)


ONE, TWO, THREE = values(3, 5, 8)

NOT_NEXT = {
    "nothing": None,
    "empty": b"",
    "no JSON": b"{",
    "deep": b"[" * 100_000,
    "no UTF-8": b"\xff",
    "an event": b'{"items": ["tea"]}',
    "an unknown field": tagged(TWO)[:-1] + b',"items":["tea"]}',
    "another version": changed(TWO, v=2),
    "no partition": tagged(TWO, offsets={}),
    "another partition alone": tagged(TWO, offsets={"1": 9}),
    "a forged tag": changed(TWO, tag="0" * 32),
    "a changed offset": changed(TWO, offsets={PARTITION: 6}),
    "a changed due": changed(TWO, due=1_999),
    "a changed answer": changed(TWO, answered=2_001),
    "a changed repetition": changed(TWO, repeated={PARTITION: 1_000}),
    "answered before it was due": tagged(TWO, answered=1_999),
    "another key": values(3, 5, key=bytes(32))[1],
    "the last one again": ONE,
    "a number too high": tagged(TWO, n=3),
    "a number too low": tagged(TWO, n=1),
    "one that follows another": THREE,
    "a wrong predecessor": tagged(TWO, previous="0" * 32),
    "due with the last": tagged(TWO, due=1_000),
    "due before the last": tagged(TWO, due=999),
    "a lower offset": tagged(TWO, offsets={PARTITION: 2}),
}


@pytest.mark.parametrize("name", NOT_NEXT)
def test_what_is_not_the_next_barrier_is_passed_over(name: str) -> None:
    found = counted([ONE, NOT_NEXT[name], TWO, NOT_NEXT[name], THREE])
    assert [(each.number, each.end) for each in found] == [(1, 3), (2, 5), (3, 8)]


def test_a_barrier_may_name_partitions_that_are_new() -> None:
    more = tagged(TWO, offsets={PARTITION: 5, "1": 7})
    without = counted([ONE, more])[-1]
    assert without.offsets == {PARTITION: 5, "1": 7}
    following = BarrierChain(KEY, STREAM, without)
    assert following.take(2, following.encode(3_000, {PARTITION: 9})) is None
    assert following.take(3, following.encode(3_000, {PARTITION: 9, "1": 7})) is not None


def test_a_tag_is_good_for_one_chain_of_one_stream() -> None:
    for other in (
        BarrierChain(KEY, "t", beginning(CHAIN, 0, 0)),
        BarrierChain(KEY, STREAM, beginning("11" * 16, 0, 0)),
    ):
        assert other.take(0, ONE) is None
    assert chain().take(0, ONE) is not None


def test_a_chain_goes_on_behind_any_of_its_barriers_and_reads_none_before_it_again() -> None:
    records: list[bytes | None] = list(values(3, 5, 8))
    every = counted(records)
    for start in every:
        assert counted(records, start) == every[start.number :]
    again = BarrierChain(KEY, STREAM, beginning(CHAIN, 2, 0))
    assert [again.take(offset, value) for offset, value in enumerate(records)] == [None] * 3


def test_a_counted_barrier_is_recognised_at_its_place_alone() -> None:
    first, second = barriers(3, 5)
    assert is_at(first, 0, ONE)
    assert not is_at(first, 1, ONE)
    assert not is_at(second, 1, THREE)
    assert not is_at(first, 0, None)


def interleaved(one: list[bytes], other: list[bytes]) -> list[list[bytes]]:
    """Every order of two writers' records that keeps each writer's own."""
    orders = []
    for places in combinations(range(len(one) + len(other)), len(one)):
        ours, theirs = iter(one), iter(other)
        orders.append([next(ours if place in places else theirs) for place in range(len(one) + len(other))])
    return orders


def test_two_writers_never_split_a_stream_in_whatever_order_their_records_come() -> None:
    """Each believes that it is alone, so each writes four in a row; at most one branch counts, without a gap."""
    one, other = values(1, 2, 3, 4), values(2, 2, 5, 6, due=700)
    winners = set()
    for order in interleaved(one, other):
        found = counted(list(order))
        mine = {msgspec.json.decode(value)["due"] for value in (one if order[0] == one[0] else other)}
        assert [each.number for each in found] == [1, 2, 3, 4]
        assert {each.due for each in found} == mine
        assert found == counted([*order, *one, *other])  # a writer that slept writes all of its own again
        winners.add(order[0])
    assert winners == {one[0], other[0]}


def test_writers_that_read_before_they_write_share_one_chain_wherever_they_are_interrupted() -> None:
    """Three writers, each of which takes a look and writes later: every order of looks and writes."""
    for order in set(permutations([0, 0, 1, 1, 2, 2])):
        topic: list[bytes] = []
        known: dict[int, BarrierChain] = {}
        for writer in order:
            if writer not in known:  # it looks
                known[writer] = chain()
                for offset, value in enumerate(topic):
                    known[writer].take(offset, value)
            else:
                last = known[writer].last
                topic.append(known[writer].encode(last.due + 1 + writer, {PARTITION: last.end + writer}))
        found = counted(list(topic))
        assert [each.number for each in found] == list(range(1, len(found) + 1))
        assert 1 <= len(found) <= 3
        # Whoever begins at the end of the topic finds the same chain as whoever reads all of it.
        window = list(enumerate(topic))
        for back in range(1, len(window) + 1):
            latest = chain().latest_named(window[-back:])
            assert latest is None or latest in found


def test_the_end_of_the_topic_tells_where_the_chain_is() -> None:
    records = list(enumerate([*values(*range(20)), b"{", *values(1, 2)]))
    latest = chain().latest_named(records[-5:])
    assert latest == barriers(*range(20))[-2]
    assert chain().latest_named(records[-3:]) == barriers(1, 2)[0].__class__(
        CHAIN, 22, 1, 1_000, 1_000, {PARTITION: 1}, {}, latest_digest()
    )
    assert chain(bytes(32)).latest_named(records) is None


def latest_digest() -> str:
    return barriers(1)[0].digest


@given(st.binary(max_size=200) | st.none())
def test_no_bytes_raise_anything(value: bytes | None) -> None:
    assert decode_barrier(value) is None
    assert chain().take(0, value) is None


@given(
    st.integers(1, 2**63 - 1),
    st.integers(1, 2**63 - 1),
    st.dictionaries(st.integers(0, 999).map(str), st.integers(0, 2**63 - 1), min_size=1),
)
def test_what_is_written_is_read(number: int, due: int, offsets: dict[str, int]) -> None:
    last = Barrier(CHAIN, 7, number - 1, 0, 0, {}, {}, "0" * 32)
    following = BarrierChain(KEY, STREAM, last)
    value = following.encode(due, offsets, 2**63 - 1, unled=map(int, offsets))
    assert isinstance(decode_barrier(value), BarrierRecord)
    found = following.take(7, value)
    assert found is not None
    assert (found.number, found.due, found.answered, found.offsets) == (number, due, 2**63 - 1, offsets)
    assert found.repeated == dict.fromkeys(offsets, 0)


def test_a_repeated_offset_stands_since_the_last_barrier_that_the_broker_answered() -> None:
    """Nobody leads the second partition at barriers 2 and 3, nor the third one, which is new, at barrier 3."""
    following = chain()
    asked = []
    for due, partitions, unled in ((10, 2, ()), (20, 2, (1,)), (30, 3, (1, 2)), (40, 3, ())):
        ends = {str(number): 0 for number in range(partitions)}
        barrier = following.take(due, following.encode(due, ends, unled=unled))
        assert barrier is not None
        asked.append([barrier.asked_since(str(number)) for number in range(3)])
    assert asked == [[10, 10, 0], [20, 10, 0], [30, 10, 0], [40, 40, 40]]
