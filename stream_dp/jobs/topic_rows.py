"""A range of a topic as rows."""

from dataclasses import dataclass

from stream_dp.config.connections import Kafka
from stream_dp.jobs.file_rows import Progress
from stream_dp.jobs.request import BadRequest, Source, Unit, time_in
from stream_dp.jobs.rows import RowCollector
from stream_dp.kafka import log


@dataclass(frozen=True)
class TopicRange:
    """The records of `topic` from offset `first` to before `end`."""

    topic: str
    first: int
    end: int


def find_range(kafka: Kafka, topic: str, source: Source) -> TopicRange:
    """The offsets that a source means now; raises `BadRequest`, also for a range that is empty."""
    try:
        log.check_topic(kafka, topic)
    except log.LogRefused as refused:
        raise BadRequest(str(refused)) from None
    held = log.offsets(kafka, topic)
    first = _offset(kafka, topic, source.start, held.first, held)
    end = _offset(kafka, topic, source.to, held.end, held)
    if first < held.first or end > held.end:
        raise BadRequest(
            f"the topic {topic!r} holds the offsets {held.first} to {held.end}, not all of {first} to {end}"
        )
    if first >= end:
        raise BadRequest(
            f"the range of {topic!r} is empty: it goes from offset {first} to {end}, and the topic holds "
            f"{held.first} to {held.end}"
        )
    return TopicRange(topic, first, end)


def read_topic(
    kafka: Kafka, chosen: TopicRange, unit: Unit, collector: RowCollector, progress: Progress
) -> None:
    """Add the records of a range to `collector`.  Raises KafkaError, a time-out included."""
    for reached, batch in log.read_batches(kafka, chosen.topic, chosen.first, chosen.end):
        collector.add_events([record.value for record in batch], unit)
        progress(reached - chosen.first, chosen.end - chosen.first)


def _offset(kafka: Kafka, topic: str, place: int | str | None, default: int, held: log.Offsets) -> int:
    if place is None or isinstance(place, int):
        return default if place is None else place
    if place in ("earliest", "latest"):
        return held.first if place == "earliest" else held.end
    found = log.offset_at(kafka, topic, time_in(place))
    return held.end if found is None else found
