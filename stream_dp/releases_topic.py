"""The releases topic as an archive: the release of a round or of a moment is found without reading all others.

Rounds only grow along the topic, except where a worker that died or slept has sent some again.  Such a repetition is
no longer than what a worker holds in its hands, so every search looks that far back before it believes itself.
"""

from collections.abc import Iterator
from statistics import NormalDist

import msgspec
from kafka import KafkaConsumer, TopicPartition

from stream_dp.connections import Kafka, kafka_options
from stream_dp.log import LogRefused
from stream_dp.records import Release

LONGEST_REPETITION = 2_000
"""Records that a worker may send again: twice its largest usual batch, in parts."""

_POLL_MILLISECONDS = 500
Place = tuple[int, int]
"""An epoch and a round of it."""


class WholeRelease(Release, frozen=True, kw_only=True):
    """A release with all its parts: `part` and `parts` are 1, `labels` and `counts` are complete."""

    @property
    def histogram(self) -> dict[str, int]:
        """The noisy count of each released label, largest first."""
        return dict(zip(self.labels, self.counts, strict=True))

    @property
    def position(self) -> str:
        """What `subscribe(position=...)` takes to go on after this release."""
        return f"{self.epoch}.{self.round}.{self.nonce}"

    def interval(self, label: str, confidence: float = 0.95) -> tuple[float, float]:
        """Bounds that hold the true count with this probability, for a label chosen before looking.

        Raises KeyError for a label that was not released, whose count is not zero but unknown, and ValueError.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"a confidence is between 0 and 1, not {confidence}")
        count = self.histogram[label]
        margin = NormalDist().inv_cdf((1 + confidence) / 2) * self.sd
        return count - margin, count + margin


class BadPosition(Exception):
    """A position that no release of this topic gave; the message says what to do."""


def read_position(position: str) -> tuple[Place, str]:
    """The (epoch, round) and the nonce of a position; raises `BadPosition`."""
    epoch, _, rest = position.partition(".")
    number, _, nonce = rest.partition(".")
    if not (epoch.isdecimal() and number.isdecimal() and nonce):
        raise BadPosition(f"{position!r} is no position: give what a release's .position was")
    return (int(epoch), int(number)), nonce


_DECODER = msgspec.json.Decoder(WholeRelease)


class ReleasesTopic:
    """One reader of one releases topic, as it stood when it was opened; later records are read, but not searched."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._topic = TopicPartition(topic, 0)
        self._consumer = KafkaConsumer(
            **kafka_options(kafka),
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # what is no longer kept is passed over
            isolation_level="read_committed",
            allow_auto_create_topics=False,
        )
        self._consumer.assign([self._topic])
        self.first: int = self._consumer.beginning_offsets([self._topic])[self._topic]
        self.end: int = self._consumer.end_offsets([self._topic])[self._topic]

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def seek(self, offset: int) -> None:
        """Read from here on."""
        self._consumer.seek(self._topic, offset)

    def poll(self, seconds: float) -> list[WholeRelease]:
        """The next parts, or none if none come in this time.  Raises `LogRefused`."""
        found = self._consumer.poll(int(seconds * 1000)).get(self._topic, [])
        return [self._decoded(record.offset, record.value) for record in found]

    def offset_of(self, place: Place) -> int:
        """The offset of the first record at or past this (epoch, round); the end if there is none."""
        before, at = self.first, self.end
        while before < at:
            middle = (before + at) // 2
            found = self._at(middle)
            if found is not None and _place(found) < place:
                before = middle + 1
            else:
                at = middle
        here = self._at(before) if before < self.end else None
        if here is not None and _place(here) == place:
            return before
        past = self._between(before - self._reach_back(before), before)  # it may be the end of a repetition
        return next((offset for offset, part in past if _place(part) >= place), before)

    def offset_after(self, milliseconds: int) -> int:
        """The offset of the first record that was published later than this (milliseconds since 1970)."""
        found = self._consumer.offsets_for_times({self._topic: max(0, milliseconds + 1)}).get(self._topic)
        return self.end if found is None or not 0 <= found.offset < self.end else int(found.offset)

    def parts_before(self, end: int) -> Iterator[WholeRelease]:
        """The parts before an offset, as many as surely hold the newest whole release that was there then."""
        return (part for _, part in self._between(end - self._reach_back(end), end))

    def parts_from(self, start: int) -> Iterator[WholeRelease]:
        """The parts from an offset to the end."""
        return (part for _, part in self._between(start, self.end))

    def _reach_back(self, end: int) -> int:
        """How many records before `end` may belong to a repetition; where there is none, those of two releases.

        All rounds are released, so without repetitions as many parts lie between two places as between their offsets.
        """
        far = max(self.first, end - LONGEST_REPETITION)
        if end - far < 2:
            return end - far
        last, earlier = self._at(end - 1), self._at(far)
        if last is None or earlier is None:
            return end - far
        parts_between = (last.round - earlier.round) * last.parts + last.part - earlier.part
        alike = (last.epoch, last.parts) == (earlier.epoch, earlier.parts)
        regular = alike and parts_between == end - 1 - far
        return 2 * last.parts if regular else LONGEST_REPETITION + 2 * last.parts

    def _between(self, start: int, end: int) -> Iterator[tuple[int, WholeRelease]]:
        start = max(start, self.first)
        self.seek(start)
        while start < end and self._consumer.position(self._topic) < end:
            for record in self._consumer.poll(_POLL_MILLISECONDS).get(self._topic, []):
                if record.offset >= end:
                    return
                yield record.offset, self._decoded(record.offset, record.value)

    def _at(self, offset: int) -> WholeRelease | None:
        """The part at this offset, or the next one if there is none (offsets may have gaps)."""
        self.seek(offset)
        while self._consumer.position(self._topic) < self.end:
            found = self._consumer.poll(_POLL_MILLISECONDS, max_records=1).get(self._topic, [])
            if found:
                return self._decoded(found[0].offset, found[0].value)
        return None

    def _decoded(self, offset: int, value: bytes | None) -> WholeRelease:
        try:
            return _DECODER.decode(value or b"")
        except (msgspec.DecodeError, UnicodeError):
            raise LogRefused(
                f"the topic {self._topic.topic!r} holds a record at offset {offset} that is no release: "
                "only the worker may write there"
            ) from None


def _place(part: Release) -> Place:
    return part.epoch, part.round
