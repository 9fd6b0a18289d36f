"""Single releases of the past, found in their topic by round."""

from threading import Lock

import msgspec
from kafka import KafkaConsumer, TopicPartition

from stream_dp.connections import Kafka
from stream_dp.dashboard.consumer import read_only_consumer
from stream_dp.records import Release, decode_release
from stream_dp.subscribe import WholeReleases

_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 5.0
_FETCH_BYTES = 64 * 1024  # only one release is wanted; the broker sends a whole one in any case


class Archive:
    """Looks releases up, one request at a time, over a connection of its own."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._topic = TopicPartition(topic, 0)
        self._lock = Lock()
        self._consumer: KafkaConsumer | None = None
        self._known: tuple[int, Release] | None = None

    def close(self) -> None:
        """Leave the broker."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close(timeout_ms=1000)
                self._consumer = None

    def find(self, epoch: int, round_number: int) -> Release | None:
        """The whole release of this round; None if the topic does not hold it.  Raises KafkaError."""
        with self._lock:
            consumer = self._open()
            timeout = int(_ANSWER_SECONDS * 1000)
            first = consumer.beginning_offsets([self._topic], timeout_ms=timeout)[self._topic]
            end = consumer.end_offsets([self._topic], timeout_ms=timeout)[self._topic]
            offset = self._offset_of((epoch, round_number), first, end)
            return self._whole_from(offset, end, (epoch, round_number))

    def _open(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = read_only_consumer(
                self._kafka, _ANSWER_SECONDS, max_partition_fetch_bytes=_FETCH_BYTES
            )
            self._consumer.assign([self._topic])
        return self._consumer

    def _offset_of(self, place: tuple[int, int], before: int, at: int) -> int:
        """The offset of the first release at or past this (epoch, round): rounds only grow along the topic.

        Rounds lie at even distances nearly always, so the first guess is nearly always right.
        """
        end, guess = at, (before + at) // 2
        if self._known is not None and self._known[1].epoch == place[0]:
            offset, release = self._known
            guess = offset + (place[1] - release.round) * release.parts
        while before < at:
            guess = min(max(guess, before), at - 1)
            found = self._at(guess, end)
            if found is not None and (found.epoch, found.round) < place:
                before = guess + 1
            else:
                at = guess
                if found is not None and (found.epoch, found.round) == place and found.part == 1:
                    return guess
            guess = (before + at) // 2
        return before

    def _whole_from(self, offset: int, end: int, place: tuple[int, int]) -> Release | None:
        releases = WholeReleases()
        while offset < end:
            part = self._at(offset, end)
            if part is None or (part.epoch, part.round) != place:
                return None
            whole = releases.add(part)
            if whole is not None:
                return whole
            offset += 1
        return None

    def _at(self, offset: int, end: int) -> Release | None:
        """The release at this offset, or the next one if there is none (offsets may have gaps)."""
        assert self._consumer is not None
        self._consumer.seek(self._topic, offset)
        while self._consumer.position(self._topic) < end:
            for record in self._consumer.poll(int(_POLL_SECONDS * 1000), max_records=1).get(self._topic, []):
                try:
                    release = decode_release(record.value or b"")
                except msgspec.DecodeError:
                    continue
                self._known = record.offset, release
                return release
        return None
