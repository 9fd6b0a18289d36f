"""Results on their way into `<stream>.results`, where everybody may read them: those of the worker, and of commands."""

from datetime import datetime

from kafka import KafkaProducer
from kafka.errors import MessageSizeTooLargeError

from stream_dp.config.connections import Kafka
from stream_dp.config.settings import Settings
from stream_dp.errors import Refused
from stream_dp.jobs.request import id_in
from stream_dp.jobs.result import decode_result
from stream_dp.kafka import log
from stream_dp.kafka.clients import producer_client
from stream_dp.kafka.rights import naming

RESULT_BYTES = 1_048_588
"""What Kafka allows unless told otherwise, and every part of a result fits into."""

_ANSWER_SECONDS = 30


def send(producer: KafkaProducer, topic: str, job_id: str | None, parts: list[bytes], asked: int) -> None:
    """Write the parts of a result and wait until the broker has them.  Raises KafkaError.

    Its records have the time of the request, `asked` (milliseconds): how long the job took is private.
    """
    key = None if job_id is None else job_id.encode()
    with naming("WRITE", topic):
        sent = [producer.send(topic, part, key, timestamp_ms=asked) for part in parts]
        for each in sent:
            each.get(timeout=_ANSWER_SECONDS)


def too_large(topic: str) -> str:
    """What is to be done about a topic that takes no record of the size of a result."""
    return (
        f"the topic {topic!r} does not take a record as large as this result: set its max.message.bytes to "
        f"{RESULT_BYTES} or more, and ask again with the same id, which is not charged again"
    )


def check_place(settings: Settings, job_id: str, stored: list[bytes] | None) -> None:
    """Raise `Refused`, before anything is charged, where the result of this id could not be published.

    That is where there is no topic, and where it holds another result of this id; `stored` is the job's own, if it has
    one.  Makes the topic where the settings say so.  Raises KafkaError.
    """
    kafka, topic = settings.kafka_address, settings.results
    if settings.create_topics:
        log.create_topics(kafka, topic)
    found = log.describe(kafka, topic)
    if found is None:
        raise Refused(f"there is no topic {topic!r}: create it with one partition, or leave --publish out")
    if _held(kafka, topic, job_id) - set(stored or ()):
        raise Refused(
            f"the topic {topic!r} holds another result of the id {job_id!r}, and readers would take one for the "
            "other: choose another --id"
        )


def publish(settings: Settings, job_id: str, parts: list[bytes]) -> bool:
    """Write the stored result of a job into the stream's topic, once; whether it was not there yet.

    Two at the same time may write it twice, and both write the same.  Raises `Refused` where the topic does not
    take it, and KafkaError.
    """
    kafka, topic = settings.kafka_address, settings.results
    if set(parts) <= _held(kafka, topic, job_id):
        return False
    ts = decode_result(parts[0]).ts
    assert ts is not None
    asked = round(datetime.fromisoformat(ts).timestamp() * 1000)
    producer = producer_client(kafka)
    try:
        send(producer, topic, job_id, parts, asked)
    except MessageSizeTooLargeError:
        raise Refused(too_large(topic)) from None
    finally:
        producer.close(timeout=_ANSWER_SECONDS)
    return True


def _held(kafka: Kafka, topic: str, job_id: str) -> set[bytes]:
    """The records of this id that the topic holds, whoever wrote them."""
    held = log.offsets(kafka, topic)
    found = (record.value for record in log.read(kafka, topic, held.first, held.end))
    return {value for value in found if value is not None and id_in(value) == job_id}
