"""Single releases of the past, found in their topic by round or by time."""

from datetime import datetime
from threading import Lock

from stream_dp.config.connections import Kafka
from stream_dp.releases.lookup import find_release, release_near
from stream_dp.releases.release import Release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.window_lookup import find_window
from stream_dp.releases.window_record import WindowRecord, record_of
from stream_dp.releases.windows import Span

_ANSWER_SECONDS = 5.0
_FETCH_WAIT = (
    10  # milliseconds; what is looked for is there, and a fetch beyond the end must not hold up the next one
)
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
        """The newest whole release at or before this round, of the newest epoch unless one is named, or of this moment.

        None if the topic holds none.  Raises KafkaError, or `LogRefused` if there is no such topic.
        """
        with self._lock:
            return find_release(self._looked(), at, epoch)

    def find_near(self, round_number: int, epoch: int) -> Release | None:
        """A whole release at or soon after this round, by few reads: see `release_near`.  Raises as `find`."""
        with self._lock:
            return release_near(self._looked(), (epoch, round_number))

    def window(self, release: Release, span: Span, now: int = 0) -> WindowRecord:
        """What happened in the window of this span that ends with a release of the topic, or `now`: see `find_window`.

        Raises as `find`.
        """
        assert isinstance(release, WholeRelease)
        with self._lock:
            return record_of(find_window(self._looked(), release, span, now=now), span)

    def _looked(self) -> ReleasesTopic:
        """The topic as it is now."""
        if self._topic is None:
            self._topic = ReleasesTopic(
                self._kafka,
                self._name,
                seconds=_ANSWER_SECONDS,
                max_partition_fetch_bytes=_FETCH_BYTES,
                fetch_max_wait_ms=_FETCH_WAIT,
            )
        else:
            self._topic.look()
        return self._topic
