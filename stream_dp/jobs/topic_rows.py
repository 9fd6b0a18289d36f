"""A range of a topic as rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from stream_dp.config.connections import Kafka
from stream_dp.config.events_section import EventsSection
from stream_dp.config.secret import SettingsError
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.record import Record
from stream_dp.jobs.request import BadRequest, Source, Unit, time_in
from stream_dp.jobs.rows import Progress, RowCollector
from stream_dp.kafka import log
from stream_dp.privacy.vector import Vector

PIECE_RECORDS = 1 << 17
"""So many offsets of a partition are a piece: what can be read alone."""


class Stretch(NamedTuple):
    """The offsets from `first` to before `end` of a partition; its pieces are numbered from `piece` on."""

    piece: int
    partition: int
    first: int
    end: int

    def piece_of(self, record: Any) -> int:
        """The number of the piece in which a record stands."""
        return self.piece + (int(record.offset) - self.first) // PIECE_RECORDS

    @property
    def pieces(self) -> Iterator["Stretch"]:
        """Each of its pieces by itself."""
        for number, first in enumerate(range(self.first, self.end, PIECE_RECORDS), self.piece):
            yield Stretch(number, self.partition, first, min(first + PIECE_RECORDS, self.end))


@dataclass(frozen=True)
class TopicRange:
    """The records of `topic` from the offsets `firsts` to before `ends`, one of each for every partition that is read.

    `mapping` says what an event is in a record; None: an event of our own format.
    """

    topic: str
    firsts: Vector
    ends: Vector
    mapping: Mapping | None = None

    @property
    def mark(self) -> str | None:
        """What changes when records are read in another way; None for events of our own format."""
        if self.mapping is None:
            return None
        return blake2b(msgspec.json.encode(self.mapping, order="deterministic"), digest_size=16).hexdigest()

    @property
    def records(self) -> int:
        """How many offsets it spans."""
        return sum(self.ends) - sum(self.firsts)

    @property
    def stretches(self) -> Iterator[Stretch]:
        """What is read of each partition."""
        piece = 0
        for number, first, end in self.partitions:
            yield Stretch(piece, number, first, end)
            piece += -(-(end - first) // PIECE_RECORDS)

    @property
    def partitions(self) -> Iterator[tuple[int, int, int]]:
        """Number, first offset and end of each."""
        for number, (first, end) in enumerate(zip(self.firsts, self.ends, strict=True)):
            yield number, first, end


def mapping_of(topic: str, section: EventsSection | None) -> Mapping | None:
    """How records are read where settings have this section; raises `BadRequest`."""
    try:
        mapping = Mapping.of(section)
        if mapping is None or not mapping.maps:
            return None
        if mapping.needs_schemas:
            raise BadRequest(
                f"the records of {topic!r} are read by the schemas that they name, and jobs cannot do that yet: give a "
                "file, or in [events] a schema for all of them"
            )
        decoder_of(mapping)
    except SettingsError as mistake:
        raise BadRequest(str(mistake)) from None
    return mapping


def find_range(kafka: Kafka, topic: str, source: Source, mapping: Mapping | None = None) -> TopicRange:
    """The offsets that a source means now; raises `BadRequest`, also for a range that is empty."""
    held = _held(kafka, topic)
    firsts = _offsets(kafka, topic, "earliest" if source.start is None else source.start, held)
    ends = _offsets(kafka, topic, "latest" if source.to is None else source.to, held)
    if len(held) > 1:  # a partition whose records are all before or all after has none of them
        ends = tuple(map(max, firsts, ends))
    return _checked(TopicRange(topic, firsts, ends, mapping), held)


def find_again(kafka: Kafka, chosen: TopicRange) -> TopicRange:
    """A range that was found before, if the topic still holds all of it; raises `BadRequest`."""
    return _checked(chosen, _held(kafka, chosen.topic))


def read_topic(
    kafka: Kafka, chosen: TopicRange, unit: Unit, collector: RowCollector, progress: Progress
) -> None:
    """Add the records of a range to `collector`, partition by partition.  Raises KafkaError, a time-out included."""
    before = 0
    for stretch in chosen.stretches:
        for reached in read_stretch(kafka, chosen, stretch, unit, collector):
            progress(before + reached - stretch.first, chosen.records)
        before += stretch.end - stretch.first


def read_stretch(
    kafka: Kafka, chosen: TopicRange, stretch: Stretch, unit: Unit, collector: RowCollector
) -> Iterator[int]:
    """Add the records of a stretch of `chosen` to `collector`; gives the offsets that are reached."""
    decode = None if chosen.mapping is None else decoder_of(chosen.mapping)
    piece = -1
    for reached, batch in log.read_batches(
        kafka, chosen.topic, stretch.first, stretch.end, stretch.partition
    ):
        for number, records in groupby(batch, stretch.piece_of):
            if number != piece:
                collector.begin(number)
                piece = number
            if decode is None:
                collector.add_events([record.value for record in records], unit)
            else:
                collector.add_events([Record.of(record) for record in records], unit, decode)
        yield reached


def _held(kafka: Kafka, topic: str) -> list[log.Offsets]:
    """What each partition holds; raises `BadRequest` for a topic that cannot be a log."""
    try:
        found = log.describe(kafka, topic)
        log.check_topic(kafka, topic, many_partitions=True)
    except log.LogRefused as refused:
        raise BadRequest(str(refused)) from None
    return [log.offsets(kafka, topic, number) for number in range(1 if found is None else found.partitions)]


def _offsets(kafka: Kafka, topic: str, place: int | str, held: Sequence[log.Offsets]) -> Vector:
    """The offset of each partition that a place means."""
    if isinstance(place, int):
        if len(held) > 1:
            raise BadRequest(
                f"the topic {topic!r} has {log.partitions_text(len(held))}, each with offsets of its own: give a time, "
                f"earliest or latest instead of the offset {place}"
            )
        return (place,)
    if place in ("earliest", "latest"):
        return tuple([each.first if place == "earliest" else each.end for each in held])
    moment = time_in(place)
    found = [log.offset_at(kafka, topic, moment, number) for number in range(len(held))]
    return tuple([there.end if each is None else each for each, there in zip(found, held, strict=True)])


def _checked(chosen: TopicRange, held: Sequence[log.Offsets]) -> TopicRange:
    """The range, if it holds records and the topic holds all of them."""
    for number, first, end in chosen.partitions:
        there = held[number] if number < len(held) else log.Offsets(0, 0)
        if first < there.first or end > there.end:
            if len(chosen.firsts) > 1:  # in a copy by users, how many records each holds is private
                raise BadRequest(
                    f"the topic {chosen.topic!r} does not hold all records of the range any more"
                )
            raise BadRequest(
                f"the topic {chosen.topic!r} holds the offsets {there.first} to {there.end}, not all of {first} to "
                f"{end}"
            )
        if len(chosen.firsts) == 1 and first >= end:
            raise BadRequest(
                f"the range of {chosen.topic!r} is empty: it goes from offset {first} to {end}, and the topic holds "
                f"{there.first} to {there.end}"
            )
    if chosen.records == 0:
        raise BadRequest(f"the range of {chosen.topic!r} is empty in every partition")
    return chosen
