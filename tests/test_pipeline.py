"""The pipeline without a broker: each record closes exactly one round, however the log is cut, whatever it holds."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.calibration import calibrate
from stream_dp.epoch import Epoch
from stream_dp.pipeline import Output, Pipeline
from stream_dp.records import BadRecord, Record, decode_event, decode_release
from tests import naive
from tests.nodes import live_nodes

KEY = bytes(range(32))
NONCE = bytes(range(16))
HORIZON, ITEMS_PER_EVENT = 131_071, 3


def epoch(horizon: int = HORIZON) -> Epoch:
    """An epoch with a fixed nonce."""
    mechanism, guarantee = calibrate(20.0, 1e-6, horizon, ITEMS_PER_EVENT)
    return Epoch(1, NONCE, 0, {"stream": "s"}, mechanism, guarantee)


EPOCH = epoch()
VALUES = [
    b'{"items": ["tea"]}',
    b'{"items": ["milk", "tea"]}',
    b'{"items": ["a", "b", "c", "d", "a"]}',
    b'{"items": ["tea"]',
    b'{"items": []}',
    b'{"items": [1]}',
    b"\xff",
    b"",
    None,
]


def log_of(values: list[bytes | None]) -> list[Record]:
    return [Record(offset, 1_700_000_000_000 + offset, None, value) for offset, value in enumerate(values)]


def output_of(pipeline: Pipeline, *batches: list[Record]) -> Output:
    total = Output()
    for batch in batches:
        output = pipeline.process(batch)
        total.releases += output.releases
        total.dead_letters += output.dead_letters
    return total


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(VALUES), max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_batches_make_no_difference(values: list[bytes | None], cuts: list[int]) -> None:
    records = log_of(values)
    bounds = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    batches = [records[start:end] for start, end in pairwise(bounds)]
    whole, cut = Pipeline(EPOCH, KEY, "s.events"), Pipeline(EPOCH, KEY, "s.events")
    assert output_of(whole, records) == output_of(cut, *batches)
    assert whole.position == cut.position
    assert whole.round == cut.round == len(records)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=60), st.data())
def test_records_delivered_again_are_dropped(values: list[bytes | None], data: st.DataObject) -> None:
    """A log read again from any earlier offset, any number of times, gives what it gives when read once."""
    records = log_of(values)
    once, often = Pipeline(EPOCH, KEY, "s.events"), Pipeline(EPOCH, KEY, "s.events")
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
        other = Epoch(1, bytes(16), 0, EPOCH.privacy, EPOCH.mechanism, EPOCH.guarantee)
    if changed == "stream":
        other = Epoch(1, NONCE, 0, {"stream": "t"}, EPOCH.mechanism, EPOCH.guarantee)
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


def test_a_hundred_thousand_records_of_which_a_third_are_malformed_keep_their_rounds() -> None:
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
    values = [rng.choice(bad) if rng.random() < 1 / 3 else rng.choice(good) for _ in range(100_000)]
    records = log_of(values)
    pipeline = Pipeline(EPOCH, KEY, "s.events")
    rounds, letters = [], []
    for start in range(0, len(records), 777):
        output = pipeline.process(records[start : start + 777])
        rounds += [release.round for release in output.releases if release.part == 1]
        letters += [letter.offset for letter in output.dead_letters]
    assert rounds == list(range(1, 100_001))
    malformed = [record.offset for record in records if _is_bad(record)]
    assert malformed == letters
    assert 33_000 < len(malformed) < 34_000
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
    assert last.round == 100_000
    assert set(last.labels) <= set(rows)


def _is_bad(record: Record) -> bool:
    try:
        decode_event(record.value)
    except BadRecord:
        return True
    return False
