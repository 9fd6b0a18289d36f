"""Counts the events of a stream with Quix Streams, for intake = "counts": docs/operations/counts.md.

python quix_counts.py KAFKA STREAM ITEMS_PER_EVENT
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

from confluent_kafka import KafkaError, TopicPartition
from quixstreams import Application, message_context

KAFKA, STREAM, BOUND = sys.argv[1], sys.argv[2], int(sys.argv[3])
EVENTS, BARRIERS, COUNTS = f"{STREAM}.events", f"{STREAM}.barriers", f"{STREAM}.counts"
LABELS = 150  # in a record: of 1,024 characters each, they fit into 1 MiB

app = Application(
    KAFKA, consumer_group=f"{STREAM}.engine", auto_offset_reset="earliest", auto_create_topics=False
)
read = {"isolation.level": "read_committed", "enable.partition.eof": True}
reading = Application(
    KAFKA, consumer_group=f"{STREAM}.engine", auto_offset_reset="error", consumer_extra_config=read
)
ends = {"0" * 32: dict[str, int]()}  # by digest of a barrier; this one stands for the beginning of the chain


def values(topic: str, partition: int, first: int, stop: int) -> Iterator[bytes | None]:
    """What stands from one offset up to another.  Waits until the broker shows all of it; fails where it is gone."""
    if first >= stop:
        return
    with reading.get_consumer(auto_commit_enable=False) as consumer:
        consumer.assign([TopicPartition(topic, partition, first)])
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error, offset = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise RuntimeError(f"{topic}, partition {partition}: {error}")
            if offset is not None and offset >= stop:
                return
            if error is None:
                yield message.value()


def remember(value: bytes | None) -> dict[str, object] | None:
    """The barrier in a record; None if it holds something else."""
    try:
        barrier = dict(json.loads(value or b""))
        ends[blake2b(value or b"", digest_size=16).hexdigest()] = barrier["offsets"]
        return barrier
    except (ValueError, TypeError, KeyError):
        return None


def labels_of(value: bytes | None) -> list[str]:
    """What an event contributes.  It must follow from the event alone, and be bounded here."""
    try:
        items = json.loads((value or b"").decode())["items"]
        "".join(items).encode()  # fails for what is no text, and for half a surrogate pair
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    if not isinstance(items, list) or not all(1 <= len(each) <= 1024 for each in items):
        return []
    return list(dict.fromkeys(items))[:BOUND]


def delivered(error: KafkaError | None, _: object) -> None:
    """Stop, and count the barrier again after the next start, where the broker did not take a record."""
    if error is not None:
        raise RuntimeError(f"{COUNTS}: {error}")


def count(value: bytes | None) -> None:
    """Count the round that a barrier closes: from where the one ends that it names as `previous`."""
    barrier = remember(value)
    if barrier is None:
        return
    if barrier["previous"] not in ends:  # after a start
        for earlier in values(BARRIERS, 0, 0, message_context().offset):
            remember(earlier)
    if (before := ends.get(str(barrier["previous"]))) is None:
        return
    with app.get_producer() as producer:  # which waits for the broker at the end
        for number, stop in dict(barrier["offsets"]).items():
            first = before.get(number, 0)
            counts = Counter(
                label for each in values(EVENTS, int(number), first, stop) for label in labels_of(each)
            )
            pairs = [{"label": label, "count": times} for label, times in sorted(counts.items())]
            pieces = [pairs[place : place + LABELS] for place in range(0, len(pairs), LABELS)] or [[]]
            place = {
                "partition": int(number),
                "n": barrier["n"],
                "tag": barrier["tag"],
                "first": first,
                "bound": BOUND,
            }
            for part, piece in enumerate(pieces, 1):
                told = {**place, "part": part, "parts": len(pieces), "counts": piece}
                text = json.dumps(told, ensure_ascii=False).encode()  # escaped, it could be too long
                producer.produce(COUNTS, text, partition=int(number), on_delivery=delivered)
    for old in [*ends][1:-1_000]:
        del ends[old]


app.dataframe(app.topic(BARRIERS, value_deserializer="bytes")).update(count)
app.run()
