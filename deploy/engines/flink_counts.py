"""Counts the events of a stream with Flink SQL, for intake = "counts": docs/operations/counts.md.

python flink_counts.py KAFKA STREAM ITEMS_PER_EVENT flink-sql-connector-kafka-5.0.0-2.2.jar
"""

import json
import sys
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment

KAFKA, STREAM, BOUND, CONNECTOR = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
EVENTS, BARRIERS, COUNTS = f"{STREAM}.events", f"{STREAM}.barriers", f"{STREAM}.counts"
TABLE = f"""
CREATE TEMPORARY TABLE events (
    `value` BYTES, `partition` INT METADATA VIRTUAL, `offset` BIGINT METADATA VIRTUAL
) WITH (
    'connector' = 'kafka', 'topic' = '{EVENTS}', 'format' = 'raw', 'properties.bootstrap.servers' = '{KAFKA}',
    'properties.isolation.level' = 'read_committed',
    'scan.startup.mode' = 'specific-offsets', 'scan.bounded.mode' = 'specific-offsets')"""
# `shape` is the text of an event's items with x for each escaped character, and then s for each string of 1 to 1,024
# characters: only an array of such strings is [s,s,s].  150 labels of 1,024 characters each fit into a record.
QUERY = rf"""
WITH texts AS (
    SELECT `partition`, `offset`, `value`, DECODE(`value`, 'UTF-8') AS text
    FROM events /*+ OPTIONS('scan.startup.specific-offsets' = '%(first)s',
                            'scan.bounded.specific-offsets' = '%(stop)s') */
), arrays AS (
    SELECT `partition`, `offset`, JSON_QUERY(text, 'strict $.items' RETURNING ARRAY<STRING>) AS items,
           REGEXP_REPLACE(JSON_QUERY(text, 'strict $.items'), '\\(u....|.)', 'x') AS shape
    FROM texts WHERE ENCODE(text, 'UTF-8') = `value`
), bounded AS (
    SELECT id, ARRAY_SLICE(ARRAY_DISTINCT(items), 1, {BOUND}) AS items
    FROM arrays JOIN rounds ON `partition` = place AND `offset` >= first AND `offset` < stop
    WHERE REGEXP(REGEXP_REPLACE(shape, '"[^"]{{1,1024}}"', 's'), '^\[s(,s)*+\]$')
), counts AS (
    SELECT id, label, COUNT(*) AS times FROM bounded CROSS JOIN UNNEST(items) AS labels (label) GROUP BY id, label
), placed AS (
    SELECT *, (ROW_NUMBER() OVER (PARTITION BY id ORDER BY label) - 1) / 150 AS part FROM counts)
SELECT id, part, JSON_OBJECTAGG(KEY label VALUE times) FROM placed GROUP BY id, part"""
ROUND = {"id": "INT", "place": "INT", "first": "BIGINT", "stop": "BIGINT"}


class Barrier(NamedTuple):
    """What a record of the barriers topic says."""

    n: int
    tag: str
    previous: str
    offsets: dict[int, int]


class Round(NamedTuple):
    """What a barrier closes in one partition: the events from one offset up to another."""

    barrier: Barrier
    partition: int
    first: int
    stop: int


group = {"group.id": f"{STREAM}.engine", "enable.auto.commit": False}
read = {"isolation.level": "read_committed", "auto.offset.reset": "error"}
consumer = Consumer({"bootstrap.servers": KAFKA, **group, **read})
producer = Producer({"bootstrap.servers": KAFKA})
flink = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
flink.get_config().set("pipeline.jars", CONNECTOR.resolve().as_uri())
flink.execute_sql(TABLE)
ends = {"0" * 32: dict[int, int]()}  # by digest of a barrier; this one stands for the beginning of the chain


def remember(value: bytes | None) -> Barrier | None:
    """The barrier in a record; None if it holds something else."""
    try:
        told = json.loads(value or b"")
        offsets = {int(number): int(offset) for number, offset in told["offsets"].items()}
        barrier = Barrier(int(told["n"]), str(told["tag"]), str(told["previous"]), offsets)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    ends[blake2b(value or b"", digest_size=16).hexdigest()] = offsets
    return barrier


def places(offsets: dict[int, int]) -> str:
    """Offsets of partitions, as the connector's options name them."""
    return ";".join(f"partition:{number},offset:{offset}" for number, offset in offsets.items())


def counted(rounds: list[Round]) -> list[dict[int, dict[str, int]]]:
    """The counts of each round, in parts, as Flink finds them."""
    first = dict.fromkeys(consumer.list_topics(EVENTS).topics[EVENTS].partitions, 0)
    stop = dict(first)  # Flink asks for offsets of every partition
    for number in {each.partition for each in rounds}:
        first[number] = min(each.first for each in rounds if each.partition == number)
        stop[number] = max(each.stop for each in rounds if each.partition == number)
    flink.drop_temporary_view("rounds")
    rows = [(key, each.partition, each.first, each.stop) for key, each in enumerate(rounds)]
    fields = [DataTypes.FIELD(name, getattr(DataTypes, kind)()) for name, kind in ROUND.items()]
    flink.create_temporary_view("rounds", flink.from_elements(rows, DataTypes.ROW(fields)))
    counts: list[dict[int, dict[str, int]]] = [{} for _ in rounds]
    with flink.execute_sql(QUERY % {"first": places(first), "stop": places(stop)}).collect() as found:
        for key, part, told in found:
            counts[key][part] = json.loads(told)
    for number, begin in first.items():  # Flink passes over what is gone
        if begin < min(stop[number], consumer.get_watermark_offsets(TopicPartition(EVENTS, number))[0]):
            raise RuntimeError(f"{EVENTS}, partition {number}: the events from offset {begin} on are gone")
    return counts


def delivered(error: KafkaError | None, _: object) -> None:
    """Stop, and count the barriers again after the next start, where the broker did not take a record."""
    if error is not None:
        raise KafkaException(error)


def write(closed: Round, counts: dict[int, dict[str, int]]) -> None:
    """Write the counts of a round into the partition that has the number of the one they come from."""
    barrier, number, first, _ = closed
    place = {"partition": number, "n": barrier.n, "tag": barrier.tag, "first": first, "bound": BOUND}
    for part, told in sorted((counts or {0: {}}).items()):
        pairs = [{"label": label, "count": times} for label, times in sorted(told.items())]
        record = {**place, "part": part + 1, "parts": len(counts) or 1, "counts": pairs}
        value = json.dumps(record, ensure_ascii=False).encode()
        producer.produce(COUNTS, value, partition=number, on_delivery=delivered)
        producer.poll(0)


done = consumer.committed([TopicPartition(BARRIERS, 0)])[0].offset
consumer.assign([TopicPartition(BARRIERS, 0, 0)])  # those before say where the next rounds begin
while True:
    rounds, last = list[Round](), None
    for message in consumer.consume(100, timeout=1.0):
        if message.error() is not None:
            raise KafkaException(message.error())
        barrier = remember(message.value())
        if barrier is None or message.offset() < done or barrier.previous not in ends:
            continue
        last, before = message, ends[barrier.previous]
        rounds += [Round(barrier, each, before.get(each, 0), end) for each, end in barrier.offsets.items()]
    if last is not None:
        for closed, counts in zip(rounds, counted(rounds), strict=True):
            write(closed, counts)
        producer.flush()
        consumer.commit(last, asynchronous=False)
    for old in [*ends][1:-1_000]:
        del ends[old]
