"""Where rounds end: compared with a slow reading of the three rules, and what counts as a tick."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.records import TICK_KEY, Record, Tick, decode_tick, encode_tick
from stream_dp.rounds import Round, RoundCutter, TickCodec, TickTimes, events_of

KEY = bytes(range(32))
TICKS = TickCodec(KEY, "shop")
EVENT = b'{"items": ["tea"]}'


def tick(number: int, codec: TickCodec = TICKS) -> tuple[bytes | None, bytes]:
    return TICK_KEY, codec.encode(number)


def log_of(records: list[tuple[bytes | None, bytes]]) -> list[Record]:
    return [Record(offset, 1000 + offset, key, value) for offset, (key, value) in enumerate(records)]


def cutter(rounds: str, next_offset: int = 0, last: int = 0) -> RoundCutter:
    return RoundCutter(events_of(rounds), TICKS, next_offset, last)


Cut = list[tuple[list[int], list[int], int]]


def offsets(found: list[Round]) -> Cut:
    return [([r.offset for r in each.records], [r.offset for r in each.events], each.tick) for each in found]


def slowly(records: list[Record], rounds: str, numbers: dict[int, int]) -> Cut:
    """`numbers`: the numbers of the ticks by offset."""
    found: Cut = []
    taken: list[int] = []
    last = 0
    for record in records:
        taken.append(record.offset)
        number = numbers.get(record.offset, 0) if rounds == "ticks" else 0
        if rounds == "ticks":
            ends = number > last
            events = [offset for offset in taken if offset not in numbers]
        else:
            ends = len(taken) == (1 if rounds == "per-event" else int(rounds.split("-")[1]))
            events = taken
        if ends:
            last = max(last, number)
            found.append((taken, events, last))
            taken = []
    return found


def test_the_records_of_an_open_round_are_counted_and_take_the_memory_that_operators_are_told() -> None:
    """200 bytes each, says docs/operations, beside key and value."""
    cutting = cutter("ticks")
    tracemalloc.start()
    try:
        for start in range(0, 50_000, 500):
            batch = range(start, start + 500)
            cutting.cut([Record(10**9 + n, 10**12 + n, None, b'{"items": ["%05d"]}' % n) for n in batch], 10)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cutting.open_records == 50_000
    assert 180 < held / 50_000 - len(b'{"items": ["12345"]}') < 220
    assert len(cutting.cut([Record(2 * 10**9, 10**12, *tick(1))], 10)) == 1
    assert cutting.open_records == 0


logs = st.lists(st.none() | st.integers(1, 9), max_size=40)
"""Events (None) and ticks by number, in any order."""


@given(
    logs,
    st.sampled_from(["per-event", "every-3", "every-7", "ticks"]),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_rounds_end_where_the_rule_says_however_the_log_is_cut(
    log: list[int | None], rounds: str, cuts: list[int]
) -> None:
    records = log_of([(None, EVENT) if number is None else tick(number) for number in log])
    numbers = {offset: number for offset, number in enumerate(log) if number is not None}
    expected = slowly(records, rounds, numbers)
    assert expected == offsets(cutter(rounds).cut(records, 1000))
    whole = cutter(rounds)
    bounds = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    found = [each for start, end in pairwise(bounds) for each in whole.cut(records[start:end], 1000)]
    assert expected == offsets(found)
    assert whole.next_offset == len(records)


@given(logs, st.sampled_from(["per-event", "every-3", "ticks"]), st.integers(0, 12))
def test_after_the_most_rounds_nothing_more_is_taken(log: list[int | None], rounds: str, most: int) -> None:
    records = log_of([(None, EVENT) if number is None else tick(number) for number in log])
    everything = offsets(cutter(rounds).cut(records, 1000))
    limited = cutter(rounds)
    assert everything[:most] == offsets(limited.cut(records, most))
    assert everything[most:] == offsets(limited.cut(records, 1000))


@given(logs, st.sampled_from(["every-3", "ticks"]), st.data())
def test_a_cutter_that_starts_at_the_end_of_a_round_goes_on(
    log: list[int | None], rounds: str, data: st.DataObject
) -> None:
    """The records of the open round are read again, as after a restart."""
    records = log_of([(None, EVENT) if number is None else tick(number) for number in log])
    found = offsets(cutter(rounds).cut(records, 1000))
    done = data.draw(st.integers(0, len(found)))
    next_offset, last = (found[done - 1][0][-1] + 1, found[done - 1][2]) if done else (0, 0)
    assert found[done:] == offsets(cutter(rounds, next_offset, last).cut(records, 1000))


def test_only_the_holder_of_the_key_writes_ticks_and_only_for_one_stream() -> None:
    assert TICKS.number(Record(0, 0, *tick(17))) == 17
    for codec in (TickCodec(bytes(32), "shop"), TickCodec(KEY, "shop2")):
        assert TICKS.number(Record(0, 0, *tick(17, codec))) is None
    written = decode_tick(*tick(17))
    assert written is not None
    other = encode_tick(Tick(18, written.digest))
    assert TICKS.number(Record(0, 0, TICK_KEY, other)) is None
    assert TICKS.number(Record(0, 0, None, tick(17)[1])) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"\xff",
        b"[" * 10_000,
        b'{"v": 1, "tick": 17}',
        b'{"v": 1, "tick": 17, "digest": "secret"}',
        b'{"v": 1, "tick": -1, "digest": "00112233445566778899aabbccddeeff"}',
        b'{"v": 1, "tick": 9223372036854775808, "digest": "00112233445566778899aabbccddeeff"}',
        b'{"v": 2, "tick": 1, "digest": "00112233445566778899aabbccddeeff"}',
        b'{"v": 1, "tick": 1, "digest": "00112233445566778899aabbccddeeff", "items": ["tea"]}',
    ],
)
def test_what_is_no_tick_is_none(value: bytes | None) -> None:
    assert decode_tick(TICK_KEY, value) is None


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_tick_is_due_at_every_multiple_and_once() -> None:
    clock = Clock(1000.0)
    times = TickTimes(10, clock)
    assert times.due(1_000_000) is None  # the log holds this one
    clock.now = 1009.9
    assert (times.due(1_000_000), times.seconds_left()) == (None, pytest.approx(0.1))
    clock.now = 1010.3
    assert times.due(1_000_000) == 1_010_000
    times.written(1_010_000)
    clock.now = 1025.0
    assert times.due(1_000_000) is None  # it has not been read back
    assert times.due(1_010_000) == 1_020_000
    times.written(1_020_000)
    assert times.due(1_020_000) is None


def test_a_stream_without_ticks_gets_one_at_once_and_missed_ones_are_made_up_for_by_one() -> None:
    clock = Clock(1003.0)
    assert TickTimes(10, clock).due(0) == 1_000_000
    clock.now = 5003.0
    assert TickTimes(10, clock).due(1_000_000) == 5_000_000


def test_two_workers_write_the_same_number_for_the_same_moment() -> None:
    one, other = (TickTimes(10, Clock(now)) for now in (1003.0, 1009.0))
    assert one.due(990_000) == other.due(990_000) == 1_000_000


def test_a_clock_that_went_back_does_not_stop_the_ticks() -> None:
    """The log holds ticks of a time that has not come: the next ones count on from there, one an interval."""
    clock = Clock(1003.0)
    times = TickTimes(10, clock)
    assert times.due(9_000_000) is None
    clock.now = 1010.0
    assert times.due(9_000_000) == 9_000_001
    times.written(9_000_001)
    assert times.due(9_000_001) is None
    clock.now = 1020.0
    assert times.due(9_000_001) == 9_000_002
