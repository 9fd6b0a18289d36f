"""What the template of an engine reads of values that no good producer sends: each of them has a round of its own."""

import json
from collections.abc import Callable, Mapping

from confluent_kafka import Producer

from stream_dp.events.barrier_chain import BarrierChain, beginning, named
from stream_dp.events.counts_record import decode_counts
from stream_dp.events.event import BadRecord, decode_event
from stream_dp.events.record import Record
from stream_dp.kafka import log
from tests.system.counted_elsewhere import BOUND, PARTITIONS, Engine, killed_at_the_end
from tests.system.example_events import event
from tests.system.sharded import ShardedStream


def behind(json_text: bytes) -> bytes:
    """An event with another field behind its items."""
    return b'{"items": ["tea"], "more": ' + json_text + b"}"


TEA = event("tea")
VALUES: list[bytes | None] = [
    *(TEA, event("tea", "milk", "tea"), event("a", "a", "b", "c", "d"), event(*map(str, range(5_000)))),
    *(None, b"", b"\0", b"null", b"5", b'"tea"', b"[]", b'["tea"]', b"{}", b"[" * 200_000),
    *(b'{"items": []}', b'{"items": null}', b'{"items": "tea"}', b'{"items": {"tea": 1}}', b'{"a": ' + TEA + b"}"),
    *(b'{"Items": ["tea"]}', b'{"items": ["tea"], "items": ["milk"]}', b" " + TEA + b"\n", TEA[:-1], TEA[:-2]),
    *(b"{'items': ['tea']}", b'{items: ["tea"]}', b'{"items": ["tea",]}', b'{"items": ["tea"],}'),
    *(event(""), event("tea", ""), event(" ", "  ", "\t"), event("null", "5", "true"), event("é", "e\u0301", "É")),
    *(event("\0", "a\0", "a"), event("\ufeff", "\u2028", "\ufffd"), event('"', "\\", "\\u0041"), event("%s", "'")),
    *(event("x" * 1024), event("x" * 1025), event("tea", "x" * 2_000), event("\n" * 1024), event("\n" * 1025)),
    *(event("\U0001f375" * 1024), event("\U0001f375" * 1025), TEA.decode().encode("utf-16")),
    *(b'{"items": ["\xff"]}', b'{"items": ["\xed\xa0\x80"]}', b'{"items": ["\xc0\x80"]}', b"\xef\xbb\xbf" + TEA),
    '{"items": ["é", "梨", "\U0001f375", "tea"]}'.encode(),
    *(b'{"items": ["a\tb"]}', b'{"items": ["a\0b"]}', rb'{"items": ["a\x"]}', rb'{"items": ["\u12"]}'),
    *(behind(b'"\xff"'), behind(b"[" * 99 + b"]" * 99), behind(b'"%b"' % (b"x" * 900_000)), behind(b"1e999")),
]  # fmt: skip
"""Values that all templates read as stream_dp does."""

COUNTED_ANYWAY = {
    b'{"items": ["tea"], "user": 5}': {"tea"},
    b'{"items": ["tea"], "user": ""}': {"tea"},
    b'{"items": ["tea"], "id": 1.5}': {"tea"},
    b'{"items": ["tea"], "ts": 3}': {"tea"},
    behind(b"[" * 100 + b"]" * 100): {"tea"},
    rb'{"items": ["tea"], "more": "\ud800"}': {"tea"},
}
"""Dead letters of stream_dp that all templates count, and what they count of them."""


def full(characters: str) -> list[bytes]:
    """Events whose labels just fit into one record of counts: 150 of 1,024 characters."""
    labels = [characters * 1023 + chr(0x1F300 + number) for number in range(150)]
    return [event(*labels[place : place + BOUND]) for place in range(0, 150, BOUND)]


def labels_of(value: bytes | None) -> set[str]:
    """What stream_dp counts of a value."""
    try:
        return {*list(dict.fromkeys(decode_event(value).items))[:BOUND]}
    except BadRecord:
        return set()


def feed_transactions(stream: ShardedStream) -> None:
    """Append an event that is aborted, and one that is not: each with the broker's marker behind it."""
    options = {"bootstrap.servers": stream.settings.kafka, "transactional.id": stream.settings.stream}
    producer = Producer(options)
    producer.init_transactions()
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(stream.settings.events, event("in a transaction"), partition=0)
        producer.flush()
        end()


def check_reading(
    stream: ShardedStream, engine: Callable[[], Engine], otherwise: Mapping[bytes, set[str]]
) -> None:
    """An engine reads what stream_dp reads, but for the values in `otherwise`: of those it counts these labels."""
    settings = stream.settings
    log.create_topics(settings.kafka, settings.barriers)
    log.create_topics(settings.kafka, settings.counts, partitions=PARTITIONS)
    rounds: list[list[bytes | None]] = [[each] for each in (*VALUES, *otherwise)]
    expected = [*map(labels_of, VALUES), *otherwise.values()]
    rounds += [[*full("\0")], [*full("\U0001f375")]]
    expected += [set().union(*map(labels_of, each)) for each in rounds[-2:]]
    stream.feed([value for each in rounds for value in each])
    feed_transactions(stream)
    ends = [sum(map(len, rounds[: number + 1])) for number in range(len(rounds))]
    ends += [ends[-1] + 2, ends[-1] + 4]
    expected += [set(), {"in a transaction"}]

    chain, records = BarrierChain(bytes(32), settings.stream, beginning("chain", 0)), []
    for offset, end in enumerate(ends):
        value = chain.encode(offset + 1, named([end, *[0] * (PARTITIONS - 1)]))
        chain.take(offset, value)
        records.append(Record(0, 1_000, None, value))
    stream.write(settings.barriers, records)
    with killed_at_the_end(engine()) as counting:
        counting.wait_until_counted(len(ends))

    found: list[dict[str, int]] = [{} for _ in ends]
    for record in stream.records_of(settings.counts, 0):
        counts = decode_counts(record.value)
        found[counts.n - 1] |= {each.label: each.count for each in counts.counts}
    for offset, (labels, counted) in enumerate(zip(expected, found, strict=True)):
        shown = json.dumps([str(value)[:80] for value in rounds[offset]]) if offset < len(rounds) else ""
        assert counted == dict.fromkeys(labels, 1), f"round {offset + 1}: {shown[:200]}"
