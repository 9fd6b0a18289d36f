"""Replaying recorded events into an events topic, at their own pace or another, each exactly once.

What was done is read from the target itself: every replayed record carries the number of its row.  A replay that is
started again goes on after the last one, and one that is complete does nothing.
"""

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from stream_dp.config.connections import Kafka
from stream_dp.kafka import log
from stream_dp.kafka.clients import producer_client
from stream_dp.kafka.log import LogRefused
from stream_dp.replay.source import HEADER, FileSource, Place, Row, TopicSource

_ANSWER_SECONDS = 30
_LARGEST_REQUEST = 2 << 20


class Numbers:
    """A set of row numbers, as ranges: nearly all come in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, number: int) -> bool:
        """Take a number; false if it is there already."""
        place = bisect_right(self._starts, number)
        if place and number < self._ends[place - 1]:
            return False
        if place and number == self._ends[place - 1]:
            self._ends[place - 1] += 1
        else:
            self._starts.insert(place, number)
            self._ends.insert(place, number + 1)
        return True

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._starts, number)
        return place > 0 and number < self._ends[place - 1]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)


@dataclass
class Held:
    """What the target holds of one source, by its partitions, and how many records that are not of it.

    `lasts` are the furthest rows that were replayed, and the digests of their keys and values.
    """

    rows: defaultdict[int, Numbers] = field(default_factory=lambda: defaultdict(Numbers))
    foreign: int = 0
    repeated: int = 0
    lasts: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def __contains__(self, place: Place) -> bool:
        return place.partition in self.rows and place.number in self.rows[place.partition]

    def take(self, row: Row, digest: str) -> None:
        """Count one record of the target."""
        source, _, told = (row.mark or "").partition(":")
        place = Place.parsed(told) if source == digest else None
        if place is None:
            self.foreign += 1
        elif not self.rows[place.partition].add(place.number):
            self.repeated += 1
        elif place.number > self.lasts.get(place.partition, (-1, b""))[0]:
            self.lasts[place.partition] = place.number, _digest(row)


def held_by(kafka: Kafka, into: str, digest: str) -> Held:
    """Read the whole target."""
    held = Held()
    for row in TopicSource(kafka, into).rows():
        held.take(row, digest)
    return held


def check_held(held: Held, source: FileSource | TopicSource, into: str, is_counted: bool) -> None:
    """Refuse where the target, if a stream counts it, could hold an event twice."""
    if held.repeated:
        raise LogRefused(
            f"the topic {into!r} holds {held.repeated} rows twice, because two replays ran at once: replay into a new "
            "stream"
        )
    if held.foreign and is_counted:
        raise LogRefused(
            f"the topic {into!r} holds {held.foreign} records that are not of this replay, so an event could be "
            "counted twice in one epoch: replay into a stream of its own, whose setting source names the data source"
        )
    if not isinstance(source, TopicSource):
        return
    for partition, (number, digest) in sorted(held.lasts.items()):
        there = source.between(number, number + 1, partition) if partition < source.partitions else ()
        if [_digest(row) for row in there] != [digest]:
            where = f" of partition {partition}" if source.partitions > 1 else ""
            raise LogRefused(
                f"the topic {source.topic!r} is not the one that was replayed into {into!r}: its record at offset "
                f"{number}{where} is missing or has changed; replay into a new stream"
            )


def check_partitions(source: FileSource | TopicSource, into: str, partitions: int) -> None:
    """Refuse where nothing says which partition of the target a record would belong to."""
    if isinstance(source, TopicSource) and source.partitions != partitions:
        raise LogRefused(
            f"the topic {source.topic!r} has {log.partitions_text(source.partitions)} and {into!r} has "
            f"{log.partitions_text(partitions)}, so records that are in order now would not be: replay into a topic "
            f"with {log.partitions_text(source.partitions)}"
        )


def evenly(
    rows: Iterable[Row],
    rate: float,
    now: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Row]:
    """So many rows a second: each is due by its place alone, whatever it holds."""
    began = now()
    for place, row in enumerate(rows):
        if (left := began + place / rate - now()) > 0:
            wait(left)
        yield row


def by_their_times(
    rows: Iterable[Row],
    speed: float,
    now: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Row]:
    """Each row when it is due: the first at once, others as long after it as their times say, divided by `speed`.

    Only for times that are PUBLIC: one row's moves all that come after it.  Rows without a time, or with one of the
    past, are due at once.
    """
    began: tuple[float, int] | None = None
    for row in rows:
        if row.timestamp is not None:
            began = began or (now(), row.timestamp)
            due = began[0] + (row.timestamp - began[1]) / 1000 / speed
            if (left := due - now()) > 0:
                wait(left)
        yield row


def missing(source: FileSource | TopicSource, held: Held) -> Iterator[Row]:
    """The rows that the target does not hold.  Refuses a source that is itself a replay."""
    for row in source.rows():
        if row.mark is not None:
            raise LogRefused(
                f"the source holds a replayed record at offset {row.number}{_of(row)}: replay what it was replayed "
                "from, so that no event comes twice under two names"
            )
        if row.place not in held:
            yield row


def _of(row: Row) -> str:
    return f" of partition {row.partition}" if row.partition else ""


def replay(
    kafka: Kafka,
    source: FileSource | TopicSource,
    rows: Iterable[Row],
    into: str,
    keep_timestamps: bool = False,
    progress: Callable[[int], None] = lambda sent: None,
) -> int:
    """Send these rows of the source and wait until the broker has them all; returns how many.

    Raises `LogRefused`, KafkaError.  A row of a topic goes to the partition that it is in there,
    and rows of a file to all partitions in turn.  Stopped in the middle, it leaves in each the rows up to some one,
    without gaps: the producer is idempotent.
    """
    ends = _ends(kafka, into)
    sent, failed = 0, list[BaseException]()
    producer = producer_client(
        kafka,
        linger_ms=5,
        max_request_size=_LARGEST_REQUEST,
        max_block_ms=_ANSWER_SECONDS * 1000,
    )
    try:
        for row in rows:
            headers = [*row.headers, (HEADER, f"{source.digest}:{row.place}".encode())]
            key = b"" if row.key is None and row.value is None else row.key  # no client sends neither
            answer = producer.send(
                into,
                row.value,
                key,
                headers,
                partition=row.partition if isinstance(source, TopicSource) else row.number % len(ends),
                timestamp_ms=row.timestamp if keep_timestamps else None,
            )
            answer.add_errback(failed.append)
            sent += 1
            progress(sent)
            if failed:
                break
        producer.flush(timeout=_ANSWER_SECONDS)
    finally:
        producer.close(timeout=_ANSWER_SECONDS)
    if failed:
        raise failed[0]
    if sent and sum(_ends(kafka, into)) != sum(ends) + sent:  # others wrote too: another replay, perhaps
        repeated = held_by(kafka, into, source.digest).repeated
        if repeated:
            raise LogRefused(
                f"another replay ran at the same time: the topic {into!r} holds {repeated} rows twice; replay into a "
                "new stream, one replay at a time"
            )
    return sent


def _ends(kafka: Kafka, topic: str) -> list[int]:
    return [held.end for held in log.offsets_of_all(kafka, topic)]


def _digest(row: Row) -> bytes:
    """Of key and value; a record without both is stored with an empty key."""
    key = row.key or b""
    return blake2b(b"%d %b%b" % (len(key), key, row.value or b"")).digest()
