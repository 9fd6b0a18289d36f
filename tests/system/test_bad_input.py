"""Whatever bytes arrive: each record closes exactly one round, bad ones become dead letters, and the stream goes on."""

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from stream_dp.events.event import BadRecord, decode_event
from stream_dp.events.record import Record
from stream_dp.releases.release import decode_release
from stream_dp.verification.rebuild import verify_epoch
from stream_dp.verification.verify import Verdict
from tests.dev.batches import batch, crc_again
from tests.dev.line import Line
from tests.system.example_events import event, some_events
from tests.system.streams import Stream
from tests.system.ticking import MakeStream
from tests.system.waiting import GIVE_UP_SECONDS

LARGEST_RECORD = (
    1_048_588 - 100
)  # Apache Kafka's default limit of a batch, less what frames a lone record in it

BAD: dict[str, bytes | None] = {
    "nothing": None,
    "no bytes": b"",
    "invalid JSON": b'{"items": ["tea"',
    "no JSON at all": b"\x00\x01\x02",
    "two documents": b'{"items": ["a"]} {"items": ["b"]}',
    "a list": b'["tea"]',
    "a number": b"7",
    "null": b"null",
    "NaN": b"NaN",
    "no items": b'{"user": "u"}',
    "empty items": b'{"items": []}',
    "items are null": b'{"items": null}',
    "items are text": b'{"items": "tea"}',
    "items are an object": b'{"items": {"tea": 1}}',
    "a number among the items": b'{"items": ["tea", 7]}',
    "null among the items": b'{"items": ["tea", null]}',
    "NaN among the items": b'{"items": ["tea", NaN]}',
    "a list among the items": b'{"items": [["tea"]]}',
    "an empty label": b'{"items": ["tea", ""]}',
    "a label of 1 MB": b'{"items": ["%b"]}' % (b"x" * 1_000_000),
    "a label one character too long": b'{"items": ["%b"]}' % (b"x" * 1025),
    "wrong encoding": '{"items": ["thé"]}'.encode("latin-1"),
    "UTF-16": '{"items": ["tea"]}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + event("tea"),
    "a lone surrogate": b'{"items": ["\\ud800"]}',
    "an encoded surrogate": b'{"items": ["\xed\xa0\x80"]}',
    "a raw control character": b'{"items": ["a\x00"]}',
    "a user of the wrong type": b'{"items": ["tea"], "user": 7}',
    "a time of the wrong type": b'{"items": ["tea"], "ts": 7}',
    "an id that is no number": b'{"items": ["tea"], "id": 1e400}',
    "deep nesting": b'{"items": ["tea"], "more": %b}' % (b"[" * 100_000 + b"]" * 100_000),
    "open quotes, deeply nested": b"[" * 101 + b'\\"' * 500_000,
    "gzip": gzip.compress(event("tea")),
    "as large as the broker takes": b"x" * LARGEST_RECORD,
}

GOOD: dict[str, bytes] = {
    "unknown fields": b'{"items": ["tea"], "price": 1.5, "nested": {"a": [1, null, true]}}',
    "all fields": b'{"items": ["tea"], "user": "u", "id": "e-17", "ts": "2026-01-31T12:00:00Z"}',
    "null fields": b'{"items": ["tea"], "user": null, "id": null, "ts": null}',
    "10,000 items": event(*(f"item {number}" for number in range(10_000))),
    "repeats": event(*["tea"] * 50),
    "the longest label": event("x" * 1024),
    "escapes": b'{"items": ["t\\u00e9a\\u0000\\n\\ud83c\\udf75"]}',
    "white space": b' \n\t{ "items" : [ "tea" ] } \n',
    "a huge id": b'{"items": ["tea"], "id": 1%b}' % (b"0" * 400),
    "a time that is none": b'{"items": ["tea"], "ts": "yesterday"}',
}


@pytest.fixture
def stream(make_stream: MakeStream) -> Iterator[Stream]:
    with make_stream(horizon=16_383, batch_rounds=500, checkpoint_every="2000") as stream:
        yield stream


def check_dead_letters(stream: Stream, bad: list[Record]) -> None:
    """One for each bad record, with the original bytes, and headers that say why and where it was."""
    letters = sorted(stream.dead_letters(at_least=len(bad)), key=lambda letter: int(letter.headers["offset"]))
    assert [str(record.offset) for record in bad] == [letter.headers["offset"] for letter in letters]
    for record, letter in zip(bad, letters, strict=True):
        assert letter.headers["topic"] == stream.settings.events
        assert letter.headers["partition"] == "0"
        assert letter.headers["reason"]
        if "left-out" in letter.headers:
            assert len(record.value or b"") + len(record.key or b"") > 1_000_000
            assert letter.value is None
        else:
            assert (record.value, record.key or b"") == (letter.value, letter.key or b"")


def is_bad(record: Record) -> bool:
    try:
        decode_event(record.value)
    except BadRecord:
        return True
    return False


@pytest.mark.apache("roles")
def test_each_kind_of_bad_record_closes_one_round_and_becomes_a_dead_letter(stream: Stream) -> None:
    values = [value for pair in zip(BAD.values(), [event("tea")] * len(BAD), strict=True) for value in pair]
    stream.feed(values)
    stream.feed(list(BAD.values())[:12], key=b"key")
    stream.feed([b"{"], key=b"k" * 1_000_000)
    stream.feed(list(GOOD.values()))
    records = stream.events()
    rounds = 2 * len(BAD) + 12 + 1 + len(GOOD)
    assert len(records) == rounds
    assert stream.run(until_round=rounds) == 0
    bad = [record for record in records if is_bad(record)]
    kinds = {value: kind for kind, value in BAD.items()} | {b"{": "with a long key"}
    assert [kinds[record.value] for record in bad] == [*BAD, *list(BAD)[:12], "with a long key"]
    stream.check_everything()
    check_dead_letters(stream, bad)
    left_out = [letter for letter in stream.dead_letters(at_least=len(bad)) if "left-out" in letter.headers]
    assert 1 <= len(left_out) <= 2
    state = stream.checkpoint().state
    counts = dict(zip(state.labels, state.counts.tolist(), strict=True))
    assert counts["tea"] == len(BAD) + 7
    assert set(counts) == {"tea", "x" * 1024, "téa\x00\n🍵", "item 0", "item 1", "item 2"}


PACKED = {
    "sixty megabytes in one value": ("gzip", [b"x" * (60 << 20)]),
    "sixty megabytes of events": ("zstd", [event("large").ljust(1 << 20)] * 60),
    "many megabytes of nothing": ("lz4", [b"", *[b"{" * (1 << 20)] * 20]),
    "a megabyte and a byte": ("snappy", [event("too large").ljust((1 << 20) + 1), event("tea")]),
}


def feed_packed(stream: Stream, codec: str, values: list[bytes]) -> None:
    """Write the values as one compressed batch, whatever they decompress to."""
    producer = Producer(
        {
            "bootstrap.servers": stream.settings.kafka,
            "compression.type": codec,
            "enable.idempotence": True,
            "message.max.bytes": 1_000_000_000,
            "batch.size": 1_000_000_000,
            "linger.ms": 1000,
        }
    )
    failed: list[object] = []
    for value in values:
        producer.produce(stream.settings.events, value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(GIVE_UP_SECONDS) == 0
    assert failed == [None] * len(values)


@pytest.mark.apache("batches")
def test_batches_that_decompress_to_far_more_than_they_are_do_not_end_the_worker(stream: Stream) -> None:
    """What is larger than an event may be counts as none, however small it came; what is not is counted."""
    worker = stream.start()
    stream.feed([event("tea")])
    stream.wait_until_round(1, worker)
    idle = most_memory(worker.pid)
    for codec, values in PACKED.values():
        feed_packed(stream, codec, values)
    rounds = 1 + sum(len(values) for _, values in PACKED.values()) + 1
    stream.feed([event("tea")])
    stream.wait_until_round(rounds, worker)
    assert most_memory(worker.pid) < idle + 400_000_000
    stream.stop(worker)
    stream.check_everything()
    state = stream.checkpoint().state
    assert dict(zip(state.labels, state.counts.tolist(), strict=True)) == {"tea": 3, "large": 60}
    letters = stream.dead_letters(at_least=23)
    assert {letter.headers["reason"] for letter in letters if "left-out" in letter.headers} == {
        "the value has more than 1048576 bytes",
        "arrays and objects are nested more than 100 deep",
    }
    with stream.redis() as client:
        assert verify_epoch(stream.settings, client).certificate.verdict == Verdict.IDENTICAL


def test_a_batch_that_nobody_can_read_is_refused_with_its_place(stream: Stream) -> None:
    stream.feed([event("tea")])
    assert stream.run(until_round=1) == 0
    broken = bytearray(batch([b"tea"]))
    broken[-9:] = b"\x07" * 9
    line = Line(int(stream.settings.kafka.rpartition(":")[2]))
    assert line.produce(stream.settings.events, crc_again(broken)).error_code == 0
    assert "a batch of records from offset 1 on that cannot be read" in stream.refusal()


def most_memory(process: int | None) -> int:
    """The most bytes that a process has held at once, as the system counts them."""
    [line] = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if "VmHWM" in line]
    return int(line.split()[1]) * 1024


def mutated(rng: random.Random, value: bytes) -> bytes:
    """The bytes with a few of them changed, removed, repeated or put in."""
    changed = bytearray(value)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del changed[at : at + rng.randint(1, 9)]
            case 2:
                changed[at:at] = changed[at : at + 9]
            case _:
                changed[at:at] = rng.choice(
                    [b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"null", b"\xff", b"NaN"]
                )
    return bytes(changed)


def test_records_of_which_many_are_mutated_keep_their_rounds(stream: Stream) -> None:
    rng = random.Random(9)
    values = [
        mutated(rng, value) if value and rng.random() < 0.4 else value for value in some_events(4_000, seed=9)
    ]
    stream.feed(values)
    assert stream.run(until_round=4_000) == 0
    records = stream.events()
    bad = [record for record in records if is_bad(record)]
    assert 800 < len(bad) < 2_000
    assert [decode_release(record.value or b"").round for record in stream.releases()] == list(
        range(1, 4_001)
    )
    stream.check_everything()
    check_dead_letters(stream, bad)


@pytest.mark.apache("batches")
def test_strange_timestamps_and_headers_are_read_alike_by_all_clients(stream: Stream) -> None:
    """The record that a start reads again must look as it did to the worker that counted it."""
    producer = Producer(
        {"bootstrap.servers": stream.settings.kafka, "compression.type": "gzip", "linger.ms": 50}
    )
    times = [1, 999, 1_700_000_000_000]
    for number, timestamp in enumerate(times, 1):
        producer.produce(
            stream.settings.events,
            event("tea"),
            b"\xff\x00",
            timestamp=timestamp,
            headers=[("h", b"1"), ("h", None), ("", b"")],
        )
        assert producer.flush(GIVE_UP_SECONDS) == 0
        assert stream.run(until_round=number) == 0
    stream.check_everything()
    told = [decode_release(record.value or b"").ts for record in stream.releases()]
    assert told == ["1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.999Z", "2023-11-14T22:13:20.000Z"]
