"""What record batches tell: two logs that differ in one event are read from a backlog and framed alike."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stream_dp.events.record import Record
from tests.system.batch_headers import Batch, batches_of
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, small_stream
from tests.system.ticking import MakeStream

BACKLOG, DIFFERING, ROUNDS_AT_ONCE = 3_000, 777, 100
SETTINGS = {"horizon": 4095, "batch_rounds": ROUNDS_AT_ONCE, "checkpoint_every": "1000"}
LARGE = event(*(f"{number:04}" + "x" * 1020 for number in range(780)))
"""An event of 800 kB, of which three items count."""


def padded(value: bytes | None) -> bytes | None:
    """An event of 700 bytes: so many of them take more than one fetch."""
    return value[:-1] + b', "note": "%b"}' % (b"." * 600) if value else value


def neighbours() -> list[list[Record]]:
    """Two logs that differ in the value of one record, which holds no items in the first one."""
    values = [padded(value) for value in some_events(BACKLOG, seed=5)]
    logs = []
    for differing in (b"{}", LARGE):
        values[DIFFERING] = differing
        logs.append([Record(n, 1_700_000_000_000 + 250 * n, None, value) for n, value in enumerate(values)])
    return logs


def check_framed(stream: Stream, records: Sequence[Record], batches: Sequence[Batch]) -> None:
    """They end after every hundredth round, and tell no time but that of the records."""
    assert [(batch.offset, batch.records) for batch in batches] == [
        (start, ROUNDS_AT_ONCE) for start in range(0, BACKLOG, ROUNDS_AT_ONCE)
    ]
    for batch in batches:
        last = batch.offset + batch.records - 1
        times = records[batch.offset].timestamp, records[last].timestamp
        assert times == (batch.first_timestamp, batch.max_timestamp)


@pytest.mark.apache("batches")
def test_a_workers_batches_are_the_same_for_neighbouring_logs(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    framed: list[list[Batch]] = []
    for number, records in enumerate(neighbours()):
        name = f"{topic_prefix}-{number}"
        with small_stream(kafka, redis_url, name, tmp_path, **SETTINGS) as stream:
            stream.write(stream.settings.events, records)
            assert stream.run(until_round=BACKLOG) == 0
            stream.check_everything()
            framed.append(batches_of(kafka, stream.settings.releases))
            check_framed(stream, records, framed[-1])
    assert framed[0] == framed[1]


@pytest.mark.apache("batches")
def test_a_live_event_is_released_in_a_batch_of_its_own(make_stream: MakeStream, kafka: str) -> None:
    """Nobody waits for the rest of a batch where the log holds no more."""
    with make_stream(**SETTINGS) as stream:
        worker = stream.start()
        for number in range(1, 6):
            stream.feed([event("tea")])
            stream.wait_until_round(number, worker)
        batches = batches_of(kafka, stream.settings.releases)
        assert [(batch.offset, batch.records) for batch in batches] == [(number, 1) for number in range(5)]


def test_a_backlog_that_a_start_finds_is_released_from_its_first_round_on(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Its batches double, alike for neighbouring logs: nobody waits until as much is counted as a batch may hold."""
    released, backlog = 5, 60
    framed: list[list[Batch]] = []
    for number, differing in enumerate((b"{}", LARGE)):
        values = [event("tea")] * released + [padded(value) for value in some_events(backlog, seed=5)]
        values[released + 10] = differing
        records = [Record(n, 1_700_000_000_000 + 250 * n, None, value) for n, value in enumerate(values)]
        with small_stream(kafka, redis_url, f"{topic_prefix}-{number}", tmp_path, **SETTINGS) as stream:
            stream.write(stream.settings.events, records[:released])
            assert stream.run(until_round=released) == 0
            stream.write(stream.settings.events, records[released:])
            assert stream.run(until_round=released + backlog) == 0
            stream.check_everything()
            framed.append(batches_of(kafka, stream.settings.releases))
    assert [batch.records for batch in framed[0]] == [released, 1, 2, 4, 8, 16, backlog - 31]
    assert framed[0] == framed[1]
