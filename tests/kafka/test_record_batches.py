"""No batch takes all memory of a reader, and its records are the same whichever client reads them, and however."""

import tracemalloc
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import aiokafka.consumer.fetcher
import kafka.consumer.fetcher
import pytest
from aiokafka.errors import UnsupportedCodecError as AiokafkaNoCodec
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.errors import UnsupportedCodecError as KafkaNoCodec
from kafka.record.memory_records import MemoryRecords as KafkaRecords

from stream_dp.events.record import LARGEST_VALUE, Record, cut, kept
from stream_dp.kafka import clients, consuming, record_batches
from stream_dp.kafka.record_batches import Batches, UnreadableBatch
from tests.dev.batches import batch, crc_again

READERS = {"aiokafka": AiokafkaRecords, "kafka-python": KafkaRecords}
NO_CODEC = {AiokafkaRecords: AiokafkaNoCodec, KafkaRecords: KafkaNoCodec}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MEGABYTE = 1 << 20

by_both = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)


def read(reader: Any, data: bytes) -> list[Record]:
    """What a client hands over of a fetch."""
    return [held(record) for record in records(reader, data)]


def held(record: Any) -> Record:
    """What is kept of a record as a batch has it: without its partition, which a batch does not know."""
    return Record(
        record.offset, record.timestamp, cut(record.key), cut(record.value), headers=tuple(record.headers)
    )


def records(reader: Any, data: bytes) -> Iterator[Any]:
    batches = Batches(reader, data)
    while (found := batches.next_batch()) is not None:
        assert found.validate_crc()
        yield from found


def plainly_read(data: bytes) -> list[Record]:
    """The same by kafka-python alone."""
    found, batches = [], KafkaRecords(data)
    while (each := batches.next_batch()) is not None:
        found += [held(record) for record in each]
    return found


@by_both
def test_both_clients_read_so(reader: Any) -> None:
    assert clients
    assert consuming
    modules = {AiokafkaRecords: aiokafka.consumer.fetcher, KafkaRecords: kafka.consumer.fetcher}
    assert isinstance(modules[reader].MemoryRecords, partial)
    assert modules[reader].MemoryRecords.func is Batches
    assert modules[reader].MemoryRecords.args == (reader,)


@by_both
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("at_once", [record_batches.AT_ONCE, 0], ids=["as a whole", "one by one"])
def test_records_are_what_they_are_however_they_are_read(
    reader: Any, codec: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"", b"a", b"tea" * 5, bytes(range(256)) * 20, b"x" * 200_000, *(b"%d" % n for n in range(300))]
    times = [1_700_000_000_000 + 3 * number for number in range(len(values))]
    data = batch(values, times, compression=codec, keyed=True) + batch([b"after", None], compression=codec)
    monkeypatch.setattr(record_batches, "AT_ONCE", at_once)
    found = read(reader, data)
    assert found == plainly_read(data)
    assert [record.value for record in found] == [*values, b"after", None]
    assert [record.timestamp for record in found[: len(times)]] == times


@cache
def bomb(codec: int) -> bytes:
    """One value of 24 MB, then others that each are as large as may be."""
    most = b'{"items":["a"]}'.ljust(LARGEST_VALUE)
    return batch([b"{" * (24 * MEGABYTE), most, b"tiny", *[most] * 3], compression=codec, size=1 << 26)


def read_with_peak(reader: Any, data: bytes) -> tuple[list[int], int]:
    """The sizes of the values, and the most bytes that Python's objects took at once."""
    tracemalloc.start()
    try:
        sizes = [len(held(record).value or b"") for record in records(reader, data)]
        return sizes, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@by_both
@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=[*CODECS][1:])
def test_what_a_batch_decompresses_to_is_in_memory_as_a_whole_only_where_it_is_small(
    reader: Any, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_batches, "AT_ONCE", 64 * MEGABYTE)
    whole, peak = read_with_peak(reader, bomb(codec))
    assert whole == [LARGEST_VALUE + 1, LARGEST_VALUE, 4, *[LARGEST_VALUE] * 3]
    assert peak > 24 * MEGABYTE
    monkeypatch.setattr(record_batches, "AT_ONCE", 2 * MEGABYTE)
    one_by_one, peak = read_with_peak(reader, bomb(codec))
    assert one_by_one == whole
    assert peak < 12 * MEGABYTE


HEADERS = [("name", b"value"), ("name", b""), ("é", None)]


@by_both
def test_what_is_wrong_with_the_headers_of_one_record_concerns_no_other_one(reader: Any) -> None:
    """Or whoever writes it would decide what other records are, where a mapping reads headers."""
    data = batch([b"one", b"two", b"three"], headers=HEADERS)
    place = data.index(b"name", data.index(b"two"))
    for name, expected in ((b"\xff\xfe\xfd\xfc", "\ufffd" * 4), (b"n\xc3me", "n\ufffdme")):
        changed = bytearray(data)
        changed[place : place + 4] = name
        found = read(reader, crc_again(changed))
        assert [(record.offset, record.value) for record in found] == [
            (0, b"one"),
            (1, b"two"),
            (2, b"three"),
        ]
        assert [record.headers for record in found] == [
            tuple(HEADERS),
            ((expected, b"value"), *HEADERS[1:]),
            tuple(HEADERS),
        ]


@by_both
@pytest.mark.parametrize("wrong", [b"\x7f", b"\x01", b"\x00", b"\x04", b"\xff"])
def test_lengths_that_a_header_lies_about_concern_no_other_record(reader: Any, wrong: bytes) -> None:
    data = bytearray(batch([b"one", b"two", b"three"], headers=HEADERS))
    place = data.index(b"name", data.index(b"two")) - 1
    data[place : place + 1] = wrong
    found = read(reader, crc_again(data))
    assert [(record.offset, record.value) for record in found] == [(0, b"one"), (1, b"two"), (2, b"three")]
    assert [record.headers for record in found] == [tuple(HEADERS), (), tuple(HEADERS)]


@by_both
def test_headers_are_the_same_in_a_batch_that_is_read_one_by_one(
    reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = batch([b"one", b"two"], headers=HEADERS, compression=1)
    whole = read(reader, data)
    monkeypatch.setattr(record_batches, "AT_ONCE", 0)
    assert read(reader, data) == whole
    assert whole[0].headers == tuple(HEADERS)


_CHANGED = batch([b"one", b"two", b"three"], headers=[("n", b"v"), ("é", None)])
_PLACES = range(_CHANGED.index(b"two") + 3, _CHANGED.index(b"three") - 8)


@given(st.dictionaries(st.sampled_from(_PLACES), st.integers(0, 255), max_size=6))
def test_however_headers_are_changed_all_ways_read_the_same(changes: dict[int, int]) -> None:
    data = bytearray(_CHANGED)
    for place, byte in changes.items():
        data[place] = byte
    outcomes = []
    for reader in READERS.values():
        outcomes.append(read(reader, crc_again(data)))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(record_batches, "AT_ONCE", 0)
            outcomes.append(read(reader, crc_again(data)))
    assert all(each == outcomes[0] for each in outcomes)
    assert [each.value for each in outcomes[0]] == [b"one", b"two", b"three"]
    assert outcomes[0][0].headers == outcomes[0][2].headers == (("n", b"v"), ("é", None))


@by_both
def test_headers_that_are_too_large_are_none_however_they_are_read(
    reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = [("n", b"x" * (LARGEST_VALUE - 65))]
    largest = [("n", b"x"), *[("", b"")] * (LARGEST_VALUE // 64 - 2)]
    for at_once in (record_batches.AT_ONCE, 0):
        monkeypatch.setattr(record_batches, "AT_ONCE", at_once)
        for headers in (fits, largest):
            more = [(f"{headers[0][0]}é", headers[0][1]), *headers[1:], ("", None)]
            for found, expected in ((headers, len(headers)), (more, 0)):
                [record] = records(reader, bytes(batch([b"one"], headers=found)))
                assert len(kept(record.headers)) == expected


@by_both
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_batch_that_nobody_can_read_says_where_it_is(reader: Any, codec: int) -> None:
    data = bytearray(batch([b"value"] * 50, compression=codec))
    data[61:] = b"\x02" + b"\x07" * (len(data) - 62)
    with pytest.raises(UnreadableBatch, match="a batch of records from offset 0 on that cannot be read"):
        read(reader, crc_again(data))


@by_both
def test_a_batch_that_ends_early_says_where_it_is(reader: Any) -> None:
    data = bytearray(batch([b"value"] * 3))
    data[57:61] = (4).to_bytes(4)  # so many records, it says
    with pytest.raises(UnreadableBatch, match="offset 0"):
        read(reader, crc_again(data))


@by_both
def test_of_a_codec_that_is_not_known_the_clients_say_so_themselves(reader: Any) -> None:
    data = bytearray(batch([b"value"]))
    data[22] |= 7
    with pytest.raises(NO_CODEC[reader]):
        read(reader, crc_again(data))


HUGE = b"\xfe" + b"\xff" * 7 + b"\x7f"


@given(st.binary(max_size=60))
@example(b"\x7e\x00\x00\x00" + HUGE + b"\x00" * 60)
@example(b"\x7e\x00\x00\x00\xc7\x01" + b"\x00" * 60)
def test_whatever_stands_in_a_batch_both_clients_read_the_same_or_nothing(payload: bytes) -> None:
    frame = bytearray(batch([b"", b""])[:61] + payload)
    frame[8:12] = (len(frame) - 12).to_bytes(4)
    data = crc_again(frame)
    outcomes: list[list[Record] | None] = []
    for reader in READERS.values():
        try:
            outcomes.append(read(reader, data))
        except UnreadableBatch:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("at_once", [record_batches.AT_ONCE, 0], ids=["as a whole", "one by one"])
@pytest.mark.parametrize("with_headers", [False, True])
def test_records_that_come_in_columns_are_the_same(
    codec: int, at_once: int, with_headers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"", b"a", None, b"x" * (LARGEST_VALUE + 7), *(b"%d" % n for n in range(300))]
    plain = batch(values, compression=codec, keyed=True) + batch([b"after", None], headers=HEADERS)
    broken = bytearray(batch([b"one", b"two", b"three"], headers=HEADERS))
    place = broken.index(b"name", broken.index(b"two"))
    broken[place : place + 4] = b"\xff\xfe\xfd\xfc"
    monkeypatch.setattr(record_batches, "AT_ONCE", at_once)
    for data in (plain, crc_again(broken)):
        batches = Batches(AiokafkaRecords, data)
        batches.columns_of, batches.headers = 7, with_headers
        found: list[Record] = []
        while (each := batches.next_batch()) is not None:
            for whole in each:
                assert whole.offset == whole.value.offsets[-1]
                found += whole.value
        expected = [record._replace(partition=7) for record in read(AiokafkaRecords, data)]
        assert found == [each if with_headers else each._replace(headers=()) for each in expected]


def test_a_batch_whose_offsets_are_not_its_own_is_told_in_columns_too() -> None:
    data = bytearray(batch([b"one", b"two", b"three"]))
    data[23:27] = (1).to_bytes(4)  # its last record is said to be the second one
    batches = Batches(AiokafkaRecords, crc_again(data))
    batches.columns_of = 0
    found = batches.next_batch()
    assert found is not None
    records = iter(found)
    assert [next(records).offset, next(records).offset] == [0, 1]
    with pytest.raises(UnreadableBatch):
        next(records)
