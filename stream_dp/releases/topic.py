"""The releases topic as an archive: the release of a round or of a moment is found without reading all others.

Rounds only grow along the topic, except where a worker that died or slept has sent some again.  Such a repetition is
no longer than what a worker has in memory, so every search scans back that far to skip duplicates.
Records that are no releases of the topic's stream are passed over.
"""

import time
from collections.abc import Iterator
from math import ceil
from typing import Any

from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaTimeoutError

from stream_dp.config.connections import Kafka
from stream_dp.errors import StreamDpError
from stream_dp.kafka.log import LogRefused, position, read_only_consumer
from stream_dp.kafka.rights import naming, require_seen
from stream_dp.releases.foreign import Place as RecordPlace
from stream_dp.releases.foreign import release_or_none
from stream_dp.releases.release import Release
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release

LONGEST_REPETITION = 2_000
"""Records that a worker may send again: the batch that it sends and two on their way, each of at most
`setting_values.LARGEST_BATCH_ROUNDS` rounds, and what its successor sends in between."""

_POLL_MILLISECONDS = 500
Place = tuple[int, int]
"""An epoch and a round of it."""


class BadPosition(StreamDpError):
    """A position that no release of this topic gave; the message says what to do."""


def read_position(position: str) -> tuple[Place, str]:
    """The (epoch, round) and the nonce of a position; raises `BadPosition`."""
    epoch, _, rest = position.partition(".")
    number, _, nonce = rest.partition(".")
    if not (epoch.isdecimal() and number.isdecimal() and nonce):
        raise BadPosition(f"{position!r} is not a position: give the .position of a release")
    return (int(epoch), int(number)), nonce


class ReleasesTopic:
    """One reader of one releases topic, as it stood when it was last looked at; later records are not searched.

    Every method raises KafkaError where the broker does not answer.
    """

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        *,
        stream: str | None = None,
        seconds: float = 30.0,
        **settings: Any,
    ) -> None:
        """`stream`: its name, where that is not what stands before the last dot of `topic`.

        `seconds`: how long one look-up may take.  `settings` are those of kafka-python's consumer.
        Raises `LogRefused` if there is no such topic.
        """
        self._topic = TopicPartition(topic, 0)
        self._stream = topic.rpartition(".")[0] if stream is None else stream
        self._seconds = seconds
        self._known: tuple[int, WholeRelease] | None = None
        self._rounds_per_release = 1.0
        self._consumer = read_only_consumer(kafka, **settings)
        try:
            if not self._consumer.partitions_for_topic(topic):
                require_seen(kafka, topic)
                raise LogRefused(
                    f"Kafka has no topic {topic!r}: start the stream's worker first, or check the stream's name"
                )
            self._consumer.assign([self._topic])
            self.look()
        except BaseException:
            self.close()
            raise

    def look(self) -> None:
        """Find out which offsets the topic holds now."""
        milliseconds = int(self._seconds * 1000)
        self.first: int = self._consumer.beginning_offsets([self._topic], milliseconds)[self._topic]
        self.end: int = self._consumer.end_offsets([self._topic], milliseconds)[self._topic]

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def seek(self, offset: int) -> None:
        """Read from here on."""
        self._consumer.seek(self._topic, offset)

    def poll(self, seconds: float) -> list[WholeRelease]:
        """The next parts, or none if none come in this time."""
        return [part for _, part in self._poll(int(seconds * 1000))]

    def offset_of(self, place: Place) -> int:
        """The offset of the first record at or past this (epoch, round); the end if there is none."""
        before = self._search(place)
        past = self._between(
            before - self._reach_back(before), before
        )  # it may stand behind a repetition, or in it
        return next((offset for offset, part in past if _place(part) >= place), before)

    def offset_near(self, place: Place) -> int:
        """The offset of `offset_of`, but always by few reads: after a repetition it may be that of a later round.

        A repetition of the place that is asked for is as good as the first of its kind.
        """
        return self._search(place, a_copy_will_do=True)

    def offset_after(self, milliseconds: int) -> int:
        """The offset of the first record with a later time than this (milliseconds since 1970): its release's `ts`."""
        times = {self._topic: max(0, milliseconds + 1)}
        found = self._consumer.offsets_for_times(times, int(self._seconds * 1000)).get(self._topic)
        return self.end if found is None or not 0 <= found.offset < self.end else int(found.offset)

    def offset_past(self, place: Place) -> int:
        """An offset before which all releases at or before this (epoch, round) stand that are no repetitions."""
        return self._search((place[0], place[1] + 1))

    def parts_before(self, end: int, widened: int = 1) -> Iterator[WholeRelease]:
        """The parts before an offset, as many as surely hold the newest whole release that was there then.

        Unless very many foreign records stand there: then ask for a range that is `widened` so many times.
        """
        return (part for _, part in self._between(end - widened * self._reach_back(end), end))

    def parts_from(self, start: int) -> Iterator[WholeRelease]:
        """The parts from an offset to the end."""
        if (
            self._known is not None and self._known[0] == start
        ):  # what a search has found need not be read again
            yield self._known[1]
            start += 1
        yield from (part for _, part in self._between(start, self.end))

    def _search(self, place: Place, a_copy_will_do: bool = False) -> int:
        """An offset before which the record is of an earlier place than this, while the one at it is not.

        `a_copy_will_do`: or any offset at which the release of this place begins.  Rounds lie at even distances nearly
        always, so a guess is nearly always right; every third one halves what is left, so that few are needed always.
        """
        before, at, guesses, here = self.first, self.end, 0, False
        while before < at:
            halve = guesses % 3 == 2 and not here
            guess = (before + at) // 2 if halve else self._guess(place, (before + at) // 2)
            guesses += 1
            guess = min(max(guess, before), at - 1)
            found = self._at(guess)
            if found is not None and _place(found) < place:
                before, here = guess + 1, False
            else:
                at = guess
                here = found is not None and _place(found) == place and found.part == 1
                if here and a_copy_will_do:
                    break
        return at

    def _guess(self, place: Place, otherwise: int) -> int:
        """Where this place should be, if releases lie as far from each other as the last ones that were looked at."""
        if self._known is None or self._known[1].epoch != place[0]:
            return otherwise
        offset, part = self._known
        releases = ceil((place[1] - part.round) / self._rounds_per_release - 1e-6)
        return offset - part.part + 1 + releases * part.parts

    def _reach_back(self, end: int) -> int:
        """How many records before `end` may belong to a repetition; where there is none, those of two releases.

        Where one round in so many is released, the parts between two places without repetitions follow from the rounds.
        How many it is, two neighbours show at each end; behind neighbours that differ everything is looked at.
        """
        far = max(self.first, end - LONGEST_REPETITION)
        if end - far < 2:
            return end - far
        last, earlier = self._at(end - 1), self._at(far)
        if last is None or earlier is None or end - far <= 2 * last.parts:
            return end - far
        following, before = self._at(far + earlier.parts), self._at(end - 1 - last.parts)
        if following is None or before is None:
            return end - far
        step = last.round - before.round
        rounds_by_parts = (last.round - earlier.round) * last.parts + (last.part - earlier.part) * step
        alike = {(part.epoch, part.parts) for part in (earlier, following, before, last)}
        even = step > 0 and step == following.round - earlier.round
        regular = len(alike) == 1 and even and rounds_by_parts == (end - 1 - far) * step
        return 2 * last.parts if regular else LONGEST_REPETITION + 2 * last.parts

    def _between(self, start: int, end: int) -> Iterator[tuple[int, WholeRelease]]:
        start = max(start, self.first)
        self.seek(start)
        heard = time.monotonic()
        while start < end and (before := self._position()) < end:
            for offset, part in self._poll(_POLL_MILLISECONDS):
                if offset >= end:
                    return
                yield offset, part
            if self._position() > before:
                heard = time.monotonic()
            self._give_up_after(heard)

    def _at(self, offset: int) -> WholeRelease | None:
        """The part at this offset, or the next one if there is none (offsets may have gaps)."""
        self.seek(offset)
        heard = time.monotonic()
        while (before := self._position()) < self.end:
            for found in self._poll(_POLL_MILLISECONDS, max_records=1):
                self._learn(found)
                return found[1]
            if self._position() > before:  # past a foreign record
                heard = time.monotonic()
            self._give_up_after(heard)
        return None

    def _position(self) -> int:
        return position(self._consumer, self._topic)

    def _learn(self, found: tuple[int, WholeRelease]) -> None:
        """Remember a part that was looked at, and how far releases lie from each other between it and the last one."""
        if self._known is not None:
            (offset, part), (known_at, known) = found, self._known
            records = (offset - part.part) - (known_at - known.part)
            rounds = part.round - known.round
            if (part.epoch, part.parts) == (known.epoch, known.parts) and records * rounds > 0:
                self._rounds_per_release = rounds * part.parts / records
        self._known = found

    def _give_up_after(self, heard: float) -> None:
        """Raise KafkaTimeoutError if nothing has come since `heard` for too long."""
        if time.monotonic() - heard > self._seconds:
            raise KafkaTimeoutError(f"no records of {self._topic.topic!r} for {self._seconds:g} s")

    def _poll(self, milliseconds: int, **options: Any) -> list[tuple[int, WholeRelease]]:
        """The next parts and their offsets."""
        with naming("READ", self._topic.topic):
            found = self._consumer.poll(milliseconds, **options).get(self._topic, [])
        parts = ((record.offset, self._decoded(record)) for record in found)
        return [(offset, part) for offset, part in parts if part is not None]

    def _decoded(self, record: ConsumerRecord) -> WholeRelease | None:
        place = RecordPlace(self._topic.topic, self._topic.partition, record.offset)
        return release_or_none(decode_whole_release, self._stream, place, record.value)


def _place(part: Release) -> Place:
    return part.epoch, part.round
