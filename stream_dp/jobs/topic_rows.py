"""A range of a topic as rows, with kafka-python."""

import time
from dataclasses import dataclass

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

from stream_dp import log
from stream_dp.connections import Kafka, kafka_options
from stream_dp.jobs.file_rows import Progress
from stream_dp.jobs.request import BadRequest, Source, Unit, parse_time
from stream_dp.jobs.rows import RowCollector

_POLL_MILLISECONDS = 500
_RECORDS_AT_ONCE = 1_000
_GIVE_UP_SECONDS = 30.0
_READER = {
    "bootstrap_timeout_ms": 5_000,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "isolation_level": "read_committed",
    "max_poll_records": _RECORDS_AT_ONCE,
}


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
    partition = TopicPartition(chosen.topic, 0)
    with KafkaConsumer(**kafka_options(kafka), **_READER) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, chosen.first)
        reached, heard = chosen.first, time.monotonic()
        while reached < chosen.end:
            found = consumer.poll(_POLL_MILLISECONDS).get(partition, [])
            collector.add_events([record.value for record in found if record.offset < chosen.end], unit)
            position = consumer.position(partition)
            if position > reached:
                reached, heard = position, time.monotonic()
                progress(min(reached, chosen.end) - chosen.first, chosen.end - chosen.first)
            elif time.monotonic() - heard > _GIVE_UP_SECONDS:
                raise KafkaTimeoutError(f"no records of {chosen.topic!r} from offset {position} on")


def _offset(kafka: Kafka, topic: str, place: int | str | None, default: int, held: log.Offsets) -> int:
    if place is None or isinstance(place, int):
        return default if place is None else place
    if place in ("earliest", "latest"):
        return held.first if place == "earliest" else held.end
    partition = TopicPartition(topic, 0)
    with KafkaConsumer(**kafka_options(kafka), **_READER) as consumer:
        found = consumer.offsets_for_times({partition: parse_time(place)})[partition]
    return held.end if found is None else found.offset
