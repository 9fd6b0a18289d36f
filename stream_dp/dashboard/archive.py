"""Single releases of the past, found in their topic by round or by time."""

from datetime import datetime
from threading import Lock

from stream_dp.connections import Kafka
from stream_dp.records import Release
from stream_dp.releases_topic import ReleasesTopic
from stream_dp.subscribe import find_release

_ANSWER_SECONDS = 5.0
_FETCH_BYTES = 64 * 1024  # only one release is wanted; the broker sends a whole one in any case


class Archive:
    """Looks releases up, one request at a time, over a connection of its own."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._name = topic
        self._lock = Lock()
        self._topic: ReleasesTopic | None = None

    def close(self) -> None:
        """Leave the broker."""
        with self._lock:
            if self._topic is not None:
                self._topic.close()
                self._topic = None

    def find(self, at: int | datetime, epoch: int | None = None) -> Release | None:
        """The whole release of this round, of the newest epoch unless one is named, or the newest of this moment.

        None if the topic does not hold it.  Raises KafkaError, or `LogRefused` if there is no such topic.
        """
        with self._lock:
            if self._topic is None:
                self._topic = ReleasesTopic(
                    self._kafka,
                    self._name,
                    seconds=_ANSWER_SECONDS,
                    skip_foreign=True,
                    max_partition_fetch_bytes=_FETCH_BYTES,
                )
            else:
                self._topic.look()
            return find_release(self._topic, at, epoch)
