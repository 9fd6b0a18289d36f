"""The pipeline without a broker: rounds end where the log says, however it is cut into batches, whatever it holds."""

import json
import random
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import beginning
from stream_dp.events.event import BadRecord, decode_event
from stream_dp.events.merged_log import LogEntry
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Output, Pipeline
from stream_dp.privacy.composition import Unit
from stream_dp.releases.release import decode_release
from tests import naive
from tests.events.barrier_chains import barriers
from tests.nodes import live_nodes

KEY = bytes(range(32))
NONCE = bytes(range(16))
HORIZON, ITEMS_PER_EVENT = 131_071, 3
UNITS: tuple[Unit, ...] = get_args(Unit)


def epoch(horizon: int = HORIZON, unit: Unit = "event", rounds: str = "per-event") -> Epoch:
    """An epoch with a fixed nonce."""
    mechanism, guarantee = calibrate(20.0, 1e-6, horizon, ITEMS_PER_EVENT, unit=unit)
    after = beginning(NONCE.hex(), 0, 0) if rounds == "ticks" else None
    privacy = Settings(stream="s", rounds=rounds, mechanism="binary").privacy
    return Epoch(1, NONCE, 0, privacy, mechanism, guarantee, after_barrier=after)


EPOCH = epoch()
FIVE_HOURS = 5 * 3_600_000
"""Between the barriers of these tests, so that a day has four rounds."""
ALL_KINDS = [
    epoch(1023, unit, rounds)
    for unit in UNITS
    for rounds in ("per-event", "every-3", "ticks")
    if unit != "user-day" or rounds == "ticks"
]
VALUES = [
    b'{"items": ["tea"]}',
    b'{"items": ["milk", "tea"]}',
    b'{"items": ["a", "b", "c", "d", "a"]}',
    b'{"items": ["a", "e"], "user": "u"}',
    b'{"items": ["b", "a", "f"], "user": "u"}',
    b'{"items": ["tea", "milk"], "user": "v"}',
    b'{"items": ["tea"], "user": ""}',
    b'{"items": ["tea"]',
    b'{"items": []}',
    b'{"items": [1]}',
    b"\xff",
    b"",
    None,
]


def log_of(values: list[bytes | None]) -> list[Record]:
    return [Record(offset, 1_700_000_000_000 + offset, None, value) for offset, value in enumerate(values)]


def log_for(kind: Epoch, values: list[bytes | Literal[0] | None]) -> list[LogEntry]:
    """The same, where 0 stands for a barrier if rounds end by ticks, and else for nothing."""
    events = log_of([value for value in values if value != 0])
    if kind.privacy["rounds"] != "ticks":
        return list(events)
    before = list(accumulate((value != 0 for value in values), initial=0))
    ends = barriers(*(before[place] for place, value in enumerate(values) if value == 0), due=FIVE_HOURS)
    left, closing = iter(events), iter(ends)
    return [next(closing) if value == 0 else next(left) for value in values]


def output_of(pipeline: Pipeline, *batches: list[LogEntry]) -> Output:
    total = Output()
    for batch in batches:
        output = pipeline.process(batch)
        total.releases += output.releases
        total.dead_letters += output.dead_letters
    return total


values_and_barriers = st.sampled_from([*VALUES, 0, 0, 0])


@settings(max_examples=60)
@given(
    st.sampled_from(ALL_KINDS),
    st.lists(values_and_barriers, max_size=80),
    st.lists(st.integers(0, 80), max_size=5),
)
def test_batches_make_no_difference(
    kind: Epoch, values: list[bytes | Literal[0] | None], cuts: list[int]
) -> None:
    records = log_for(kind, values)
    bounds = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    batches = [records[start:end] for start, end in pairwise(bounds)]
    whole, cut = Pipeline(kind, KEY, "s.events"), Pipeline(kind, KEY, "s.events")
    assert output_of(whole, records) == output_of(cut, *batches)
    assert (whole.position, whole.round, whole.intake.pairs) == (cut.position, cut.round, cut.intake.pairs)
    assert whole.intake.next_offset == sum(value != 0 for value in values)
    if kind.privacy["rounds"] == "per-event":
        assert whole.round == len(records)


@settings(max_examples=60)
@given(st.sampled_from(ALL_KINDS), st.lists(values_and_barriers, max_size=60), st.data())
def test_a_pipeline_that_starts_from_a_checkpoint_gives_the_rest(
    kind: Epoch, values: list[bytes | Literal[0] | None], data: st.DataObject
) -> None:
    """The checkpoint stands at the end of a round; the records of the open round are read again."""
    records = log_for(kind, values)
    expected = output_of(Pipeline(kind, KEY, "s.events"), records)
    pipeline, seen = Pipeline(kind, KEY, "s.events"), Output()
    for cut in sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=3))):
        output = pipeline.process(records[:cut])
        seen.releases += output.releases
        seen.dead_letters += output.dead_letters
        state, pairs = pipeline.histogram.state(), bytes(pipeline.intake.pairs)
        pipeline = Pipeline(kind, KEY, "s.events", pipeline.position, state, pairs)
    output = pipeline.process(records)
    seen.releases += output.releases
    seen.dead_letters += output.dead_letters
    assert expected == seen


@settings(max_examples=60)
@given(st.sampled_from(ALL_KINDS), st.lists(values_and_barriers, max_size=60))
def test_what_is_counted_equals_plain_dictionaries(
    kind: Epoch, values: list[bytes | Literal[0] | None]
) -> None:
    """Rounds, bounds, counts and noise, all of them the slow way."""
    pipeline = Pipeline(kind, KEY, "s.events")
    letters = pipeline.process(log_for(kind, values)).dead_letters
    rounds, bad = slowly(values, kind.privacy["rounds"], kind.guarantee.unit)
    assert isinstance(kind.mechanism, DiscreteCounter)
    run = naive.naive_run(KEY, "s", NONCE, kind.mechanism.sigma_squared, lambda _: 0, rounds)
    state = pipeline.histogram.state()
    assert (len(rounds), bad) == (pipeline.round, [letter.offset for letter in letters])
    assert run.counts == dict(zip(state.labels, state.counts.tolist(), strict=True))
    assert run.history == state.history


def slowly(
    values: list[bytes | Literal[0] | None], rounds: str, unit: Unit
) -> tuple[list[list[str]], list[int]]:
    """What each closed round admits, and the offsets of its records that are no events."""
    admitted: list[list[str]] = []
    closed_bad: list[int] = []
    held: dict[str, list[str]] = {}
    offset, size, labels, bad = 0, 0, list[str](), list[int]()
    passed = 0
    for value in values:
        if value != 0:
            event = json_event(value)
            user = None if event is None else event.get("user")
            if event is None or (unit != "event" and user is None):
                bad.append(offset)
            elif unit == "event":
                labels += naive.first_distinct(event["items"], ITEMS_PER_EVENT)
            else:
                assert user is not None
                own = held.setdefault(user, [])
                before = len(own)
                for item in event["items"]:
                    if item not in own and len(own) < ITEMS_PER_EVENT:
                        own.append(item)
                labels += own[before:]
            offset, size = offset + 1, size + 1
        ends = value == 0 if rounds == "ticks" else size == {"per-event": 1, "every-3": 3}[rounds]
        if ends:
            passed += 1
            if unit == "user-day" and passed * 5 // 24 > (passed - 1) * 5 // 24:  # it goes over midnight
                held = {}
            else:
                admitted.append(labels)
                closed_bad += bad
            size, labels, bad = 0, [], []
    return admitted, closed_bad


def json_event(value: bytes | None) -> dict[str, Any] | None:
    """The event, if it is one of the valid ones among `VALUES`."""
    if not isinstance(value, bytes) or b'"user": ""' in value:
        return None
    try:
        event = json.loads(value)
    except ValueError:
        return None
    items = event["items"]
    return event if items and all(isinstance(item, str) for item in items) else None


@settings(max_examples=60)
@given(st.sampled_from(ALL_KINDS), st.lists(values_and_barriers, min_size=1, max_size=60), st.data())
def test_records_delivered_again_are_dropped(
    kind: Epoch, values: list[bytes | Literal[0] | None], data: st.DataObject
) -> None:
    """A log read again from any earlier offset, any number of times, gives what it gives when read once."""
    records = log_for(kind, values)
    once, often = Pipeline(kind, KEY, "s.events"), Pipeline(kind, KEY, "s.events")
    repeated, reached = [], 0
    while reached < len(records):
        start = data.draw(st.integers(0, reached))
        reached = data.draw(st.integers(reached + 1, len(records)))
        repeated.append(records[start:reached])
    assert output_of(once, records) == output_of(often, *repeated)
    assert once.position == often.position


def test_nothing_read_is_nothing_done() -> None:
    pipeline = Pipeline(EPOCH, KEY, "s.events")
    before = pipeline.position
    assert pipeline.process([]) == Output()
    assert (before, 0) == (pipeline.position, pipeline.round)


def test_the_horizon_leaves_the_records_beyond_it_untouched() -> None:
    pipeline = Pipeline(epoch(7), KEY, "s.events")
    records = log_of([b'{"items": ["tea"]}', b"{"] * 10)
    output = pipeline.process(records)
    assert [release.round for release in output.releases] == list(range(1, 8))
    assert [letter.offset for letter in output.dead_letters] == [1, 3, 5]
    assert pipeline.finished
    assert pipeline.position.next_offset == 7
    assert pipeline.process(records) == Output()


def test_a_state_without_its_users_is_not_continued() -> None:
    pipeline = Pipeline(epoch(unit="user"), KEY, "s.events")
    pipeline.process(log_of([b'{"items": ["tea"], "user": "u"}']))
    with pytest.raises(ValueError, match="would all count anew"):
        Pipeline(pipeline.epoch, KEY, "s.events", pipeline.position, pipeline.histogram.state())


def test_the_horizon_leaves_the_open_round_and_all_beyond_it_to_the_next_epoch() -> None:
    pipeline = Pipeline(epoch(3, rounds="every-4"), KEY, "s.events")
    output = pipeline.process(log_of([b'{"items": ["tea"]}', b"{"] * 10))
    assert ([release.round for release in output.releases], len(output.dead_letters)) == ([1, 2, 3], 6)
    assert (pipeline.finished, pipeline.position.next_offset, pipeline.intake.next_offset) == (True, 12, 12)


def test_a_round_is_timed_by_the_record_that_closed_it_and_never_by_what_events_say() -> None:
    """An event counts in the round that is open when the broker takes it, however late it says it is."""
    late = [b'{"items": ["tea"], "ts": "%d-01-31T12:00:00Z"}' % year for year in (2020, 1970, 2099, 2026)]
    for rounds, closed in (("every-2", [1_700_000_000_001, 1_700_000_000_003]), ("ticks", [FIVE_HOURS])):
        kind = epoch(rounds=rounds)
        pipeline = Pipeline(kind, KEY, "s.events")
        output = pipeline.process(log_for(kind, [*late, 0]))
        found = [decode_release(release.value).ts for release in output.releases]
        assert list(map(iso_timestamp, closed)) == found
        assert pipeline.histogram.state().counts.tolist() == [4]


@pytest.mark.parametrize("unit", UNITS)
def test_neighbours_have_the_same_rounds_at_the_same_times(unit: Unit) -> None:
    """One of them holds a record that takes long to decode, the other one nothing in its place."""
    kind = epoch(unit=unit, rounds="ticks")
    slow = b'{"items": [' + b",".join(b'"item %d"' % n for n in range(60_000)) + b'], "user": "slow"}'
    assert len(slow) > 700_000
    told = []
    for value in (slow, b"", None):
        values: list[bytes | Literal[0] | None] = [
            value,
            0,
            b'{"items": ["tea"], "user": "u"}',
            0,
            0,
            b"{",
            0,
        ]
        pipeline = Pipeline(kind, KEY, "s.events")
        found = [
            decode_release(release.value) for release in pipeline.process(log_for(kind, values)).releases
        ]
        told.append(
            (
                [(each.round, each.ts, each.part, each.parts, each.sd, each.tau) for each in found],
                pipeline.position.barrier,
            )
        )
    assert told[0] == told[1] == told[2]
    assert len(told[0][0]) == 4


def test_what_former_versions_wrote_to_end_rounds_is_a_bad_record() -> None:
    """Nothing that anybody writes into the events topic ends a round that ends by barriers."""
    kind = epoch(rounds="ticks")
    tick = b'{"tick":1769860800000,"digest":"00112233445566778899aabbccddeeff","v":1}'
    output = Pipeline(kind, KEY, "s.events").process(log_for(kind, [b'{"items": ["tea"]}', tick, b"{}", 0]))
    assert ([each.round for each in output.releases], [each.offset for each in output.dead_letters]) == (
        [1],
        [1, 2],
    )


def test_offsets_with_gaps_close_a_round_for_each_record_only() -> None:
    """Transactions leave offsets without records in a log."""
    records = [record for record in log_of([b'{"items": ["tea"]}'] * 20) if record.offset % 3]
    pipeline = Pipeline(EPOCH, KEY, "s.events")
    assert len(pipeline.process(records).releases) == len(records) == pipeline.round
    assert pipeline.position.next_offset == 20


@pytest.mark.parametrize("changed", ["key", "nonce", "stream"])
def test_another_key_nonce_or_stream_draws_other_noise(changed: str) -> None:
    records = log_of([b'{"items": ["tea"]}'] * 200)
    other = EPOCH
    if changed == "nonce":
        other = replace(EPOCH, nonce=bytes(16))
    if changed == "stream":
        other = replace(EPOCH, privacy=EPOCH.privacy | {"stream": "t"})
    ours, theirs = Pipeline(EPOCH, KEY, "e"), Pipeline(other, bytes(32) if changed == "key" else KEY, "e")
    ours.process(records)
    theirs.process(records)
    for one, two in zip(
        live_nodes(ours.histogram.state()), live_nodes(theirs.histogram.state()), strict=True
    ):
        assert one.sums[0] == two.sums[0]
    noise = [
        [node.noise[0] for node in live_nodes(pipeline.histogram.state())] for pipeline in (ours, theirs)
    ]
    assert noise[0] != noise[1]


def test_thirty_thousand_records_of_which_a_third_are_malformed_keep_their_rounds() -> None:
    """Counts and partial sums are those of the valid records, each in its own round."""
    rng = random.Random(6)
    good = [b'{"items": ["%d", "%d"]}' % (n, n * n % 37) for n in range(60)]
    bad: list[bytes | None] = [
        None,
        b"",
        b"{",
        b"[]",
        b'{"items": 3}',
        b'{"items": ["a", 3]}',
        b"\xfe\xff",
        b"NaN",
    ]
    values = [rng.choice(bad) if rng.random() < 1 / 3 else rng.choice(good) for _ in range(30_000)]
    records = log_of(values)
    pipeline = Pipeline(EPOCH, KEY, "s.events")
    rounds, letters = [], []
    for start in range(0, len(records), 777):
        output = pipeline.process(records[start : start + 777])
        rounds += [release.round for release in output.releases if release.part == 1]
        letters += [letter.offset for letter in output.dead_letters]
    assert rounds == list(range(1, 30_001))
    malformed = [record.offset for record in records if _is_bad(record)]
    assert malformed == letters
    assert 9_500 < len(malformed) < 10_500
    state = pipeline.histogram.state()
    rows = {label: row for row, label in enumerate(state.labels)}
    seen = np.zeros((len(rows), len(records) + 1), np.int32)
    for record in records:
        if not _is_bad(record):
            for label in naive.first_distinct(decode_event(record.value).items, ITEMS_PER_EVENT):
                seen[rows[label], record.offset + 1] += 1
    seen = seen.cumsum(axis=1)
    np.testing.assert_array_equal(state.counts, seen[:, -1])
    for node in live_nodes(state):
        sums = seen[:, node.round] - seen[:, node.round & (node.round - 1)]
        np.testing.assert_array_equal(node.sums[: len(rows)], sums)
    last = decode_release(output.releases[-1].value)
    assert last.round == 30_000
    assert set(last.labels) <= set(rows)


def _is_bad(record: Record) -> bool:
    try:
        decode_event(record.value)
    except BadRecord:
        return True
    return False
