"""The embedded broker's log against a plain list of what was appended, through restarts and torn ends."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
)
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from stream_dp.dev import partition_log
from stream_dp.dev.partition_log import LogDamaged, PartitionLog
from stream_dp.dev.record_batch import BatchRefused, check_produced
from tests.dev.batches import GZIP, batch

LARGE = 10**8


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    opened = PartitionLog(tmp_path / "0.log")
    yield opened
    opened.close()


def append(log: PartitionLog, data: bytes) -> int:
    view = memoryview(data)
    return log.append(check_produced(view, LARGE), view)


def reopened(log: PartitionLog, path: Path) -> PartitionLog:
    log.close()
    return PartitionLog(path)


def values(log: PartitionLog, offset: int = 0) -> list[bytes]:
    """Values from the batch that holds `offset` on."""
    return [
        record.value for found in batches(log.read(log.position(offset), LARGE, True)) for record in found
    ]


def batches(data: bytes) -> Iterator[MemoryRecords]:
    records = MemoryRecords(data)
    while (found := records.next_batch()) is not None:
        yield found


record_lists = st.lists(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 900)), min_size=1, max_size=4),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(groups=record_lists, restart=st.booleans(), compression=st.sampled_from([0, GZIP]))
def test_positions_and_times_equal_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory,
    groups: list[list[tuple[int, int]]],
    restart: bool,
    compression: int,
) -> None:
    """Records are (timestamp, length) pairs; batches of up to 900-byte values spread over several index steps."""
    path = tmp_path_factory.mktemp("log") / "0.log"
    log = PartitionLog(path)
    for group in groups:
        data = [bytes([time]) * length for time, length in group]
        append(log, batch(data, [time for time, _ in group], compression=compression))
    if restart:
        log = reopened(log, path)
    flat = [(time, bytes([time]) * length) for group in groups for time, length in group]
    starts = [0]
    for group in groups:
        starts.append(starts[-1] + len(group))
    assert log.end_offset == len(flat)
    for first, following in pairwise(starts):
        for offset in range(first, following):
            assert values(log, offset) == [value for _, value in flat[first:]]
    assert log.position(len(flat)) == log.size
    for time in range(62):
        offsets = [offset for offset, (stamp, _) in enumerate(flat) if stamp >= time]
        expected = (offsets[0], flat[offsets[0]][0]) if offsets else (-1, -1)
        assert log.offset_for_time(time) == expected
    log.close()


def test_index_finds_every_offset_of_a_long_log(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many index steps, and scans that end in the middle of a header."""
    monkeypatch.setattr(partition_log, "_SCAN_CHUNK", 200)
    for number in range(600):
        append(log, batch([b"%d" % number, b"x" * (number % 7 * 20)]))
    for offset in range(0, 1200, 13):
        assert values(log, offset)[0] == b"%d" % (offset // 2)


def test_a_torn_end_is_cut_wherever_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = PartitionLog(path)
    append(log, batch([b"first", b"second"]))
    kept = log.size
    append(log, batch([b"torn off"]))
    log.close()
    whole = path.read_bytes()
    for length in range(kept, len(whole)):
        path.write_bytes(whole[:length])
        log = PartitionLog(path)
        assert (log.end_offset, log.size, path.stat().st_size) == (2, kept, kept)
        assert append(log, batch([b"after"])) == 2
        assert values(log) == [b"first", b"second", b"after"]
        log.close()


def test_a_flipped_bit_ends_the_log_before_it(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = PartitionLog(path)
    append(log, batch([b"kept"]))
    kept = log.size
    append(log, batch([b"damaged"]))
    log.close()
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    log = PartitionLog(path)
    assert (log.end_offset, log.size) == (1, kept)
    log.close()


def test_damage_before_good_records_is_refused_and_nothing_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = PartitionLog(path)
    append(log, batch([b"damaged"]))
    append(log, batch([b"good"]))
    log.close()
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(LogDamaged):
        PartitionLog(path)
    assert path.read_bytes() == damaged


def test_a_failed_write_leaves_the_log_as_it_was(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes the first 10 bytes and then is full."""
    append(log, batch([b"before"]))
    pwrite = os.pwrite

    def half(file: int, parts: list[bytes], position: int) -> int:
        return pwrite(file, bytes(parts[0])[:10], position)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwritev", half)
        disk.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            append(log, batch([b"lost"]))
    assert append(log, batch([b"after"])) == 1
    assert values(log) == [b"before", b"after"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_batch_sent_again_is_stored_once(tmp_path: Path, restart: bool) -> None:
    path = tmp_path / "0.log"
    log = PartitionLog(path)
    sent = [batch([b"%d" % n, b"+"], producer=(7, 0, 2 * n)) for n in range(8)]
    assert [append(log, data) for data in sent] == list(range(0, 16, 2))
    if restart:
        log = reopened(log, path)
    assert [append(log, data) for data in sent[-5:]] == list(range(6, 16, 2))
    assert log.end_offset == 16
    with pytest.raises(BatchRefused) as gap:
        append(log, batch([b"too early"], producer=(7, 0, 17)))
    assert gap.value.error is OutOfOrderSequenceNumberError
    with pytest.raises(BatchRefused):
        append(log, sent[0])  # older than the five that may be in flight
    assert append(log, batch([b"in turn"], producer=(7, 0, 16))) == 16
    assert append(log, batch([b"another producer"], producer=(8, 0, 0))) == 17
    log.close()


def test_an_older_epoch_of_a_producer_is_fenced(log: PartitionLog) -> None:
    append(log, batch([b"old"], producer=(7, 0, 0)))
    with pytest.raises(BatchRefused):
        append(log, batch([b"a new epoch starts at 0"], producer=(7, 1, 1)))
    assert append(log, batch([b"new"], producer=(7, 1, 0))) == 1
    with pytest.raises(BatchRefused) as fenced:
        append(log, batch([b"zombie"], producer=(7, 0, 1)))
    assert fenced.value.error is InvalidProducerEpochError


def test_sequence_numbers_wrap(log: PartitionLog) -> None:
    last = 2**31 - 1
    assert append(log, batch([b"a", b"b", b"c"], producer=(7, 0, last - 1))) == 0
    assert append(log, batch([b"d"], producer=(7, 0, 1))) == 3


def test_the_first_batch_comes_whole_or_not_at_all(log: PartitionLog) -> None:
    append(log, batch([b"x" * 5000]))
    append(log, batch([b"y"]))
    first = log.position(1)
    assert log.read(0, 100, whole_first=False) == b""
    assert len(log.read(0, 100, whole_first=True)) == first
    assert len(log.read(0, first + 10, whole_first=False)) == first + 10


def refused(data: bytes, max_bytes: int = LARGE) -> type[Exception]:
    with pytest.raises(BatchRefused) as caught:
        check_produced(memoryview(data), max_bytes)
    return caught.value.error


def test_batches_that_may_not_be_stored_are_refused() -> None:
    good = batch([b"value"])
    assert check_produced(memoryview(good), len(good)).records == 1
    assert refused(good, len(good) - 1) is MessageSizeTooLargeError
    assert refused(good[:-1] + b"?") is CorruptRecordError
    assert refused(good + good) is InvalidRecordError
    assert refused(good[:40]) is InvalidRecordError


def test_a_transactional_batch_is_refused() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, True, 1, 0, 0, 2**16)
    builder.append(0, 1, None, b"value", [])
    assert refused(bytes(builder.build())) is InvalidTxnStateError
