"""Replaying recorded events into an events topic, at their own pace or another, each exactly once.

What was done is read from the target itself: every replayed record carries the number of its row.  A replay that is
started again goes on after the last one, and one that is complete does nothing.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from stream_dp.config.connections import Kafka
from stream_dp.kafka import log
from stream_dp.kafka.clients import producer_client
from stream_dp.replay.source import HEADER, FileSource, ReplayRefused, Row, TopicSource

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
    """What the target holds of one source, and how many records that are not of it.

    `last` is the row replayed last and the digest of its key and value.
    """

    rows: Numbers = field(default_factory=Numbers)
    foreign: int = 0
    repeated: int = 0
    last: tuple[int, bytes] | None = None

    def take(self, row: Row, digest: str) -> None:
        """Count one record of the target."""
        source, _, number = (row.mark or "").partition(":")
        if source != digest or not number.isdecimal():
            self.foreign += 1
        elif not self.rows.add(int(number)):
            self.repeated += 1
        else:
            self.last = int(number), _digest(row)


def held_by(kafka: Kafka, into: str, digest: str) -> Held:
    """Read the whole target."""
    held = Held()
    for row in TopicSource(kafka, into).rows():
        held.take(row, digest)
    return held


def check_held(held: Held, source: FileSource | TopicSource, into: str) -> None:
    """Refuse where the target, if a stream counts it, could hold an event twice."""
    if held.repeated:
        raise ReplayRefused(
            f"the topic {into!r} holds {held.repeated} rows twice, because two replays ran at once: replay into a new "
            "stream"
        )
    if held.foreign and into.endswith(".events"):
        raise ReplayRefused(
            f"the topic {into!r} holds {held.foreign} records that are not of this replay, so an event could be "
            "counted twice in one epoch: replay into a stream of its own, whose setting source names the data source"
        )
    if held.last is not None and isinstance(source, TopicSource):
        number, digest = held.last
        if [_digest(row) for row in source.between(number, number + 1)] != [digest]:
            raise ReplayRefused(
                f"the topic {source.topic!r} is not the one that was replayed into {into!r}: its record at offset "
                f"{number} is gone or another; replay into a new stream"
            )


def paced(
    rows: Iterable[Row],
    speed: float | None,
    now: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Row]:
    """Each row when it is due: the first at once, others as long after it as their times say, divided by `speed`.

    Rows without a time, or with one of the past, are due at once.  None is as fast as possible.
    """
    began: tuple[float, int] | None = None
    for row in rows:
        if speed is not None and row.timestamp is not None:
            began = began or (now(), row.timestamp)
            due = began[0] + (row.timestamp - began[1]) / 1000 / speed
            if (left := due - now()) > 0:
                wait(left)
        yield row


def missing(source: FileSource | TopicSource, held: Held) -> Iterator[Row]:
    """The rows that the target does not hold.  Refuses a source that is itself a replay."""
    for row in source.rows():
        if row.mark is not None:
            raise ReplayRefused(
                f"the source holds a replayed record at offset {row.number}: replay what it was replayed from, so that "
                "no event comes twice under two names"
            )
        if row.number not in held.rows:
            yield row


def replay(
    kafka: Kafka,
    rows: Iterable[Row],
    digest: str,
    into: str,
    keep_timestamps: bool = False,
    progress: Callable[[int], None] = lambda sent: None,
) -> int:
    """Send the rows and wait until the broker has them all; returns how many.  Raises `ReplayRefused`, KafkaError.

    Stopped in the middle, it leaves the rows up to some one, without gaps: the producer is idempotent.
    """
    held_before = log.offsets(kafka, into).end
    sent, failed = 0, list[BaseException]()
    producer = producer_client(
        kafka,
        linger_ms=5,
        max_request_size=_LARGEST_REQUEST,
        max_block_ms=_ANSWER_SECONDS * 1000,
    )
    try:
        for row in rows:
            mark = (HEADER, f"{digest}:{row.number}".encode())
            key = b"" if row.key is None and row.value is None else row.key  # no client sends neither
            answer = producer.send(
                into, row.value, key, [mark], timestamp_ms=row.timestamp if keep_timestamps else None
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
    if (
        sent and log.offsets(kafka, into).end != held_before + sent
    ):  # others wrote too: another replay, perhaps
        repeated = held_by(kafka, into, digest).repeated
        if repeated:
            raise ReplayRefused(
                f"another replay ran at the same time: the topic {into!r} holds {repeated} rows twice; replay into a "
                "new stream, one replay at a time"
            )
    return sent


def _digest(row: Row) -> bytes:
    """Of key and value; a record without both is stored with an empty key."""
    key = row.key or b""
    return blake2b(b"%d %b%b" % (len(key), key, row.value or b"")).digest()
