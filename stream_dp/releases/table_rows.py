"""The newest release of a topic, looked for again and again."""

from stream_dp.config.connections import Kafka
from stream_dp.releases.lookup import newest_release
from stream_dp.releases.topic import LONGEST_REPETITION, ReleasesTopic
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease


class NewestRelease:
    """Follows the end of a releases topic.  Where much has come, most of it is not read."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        """Raises `LogRefused` where there is no such topic, or KafkaError."""
        self._topic = ReleasesTopic(kafka, topic)
        self._read = self._topic.first
        self._whole = WholeReleases()
        self._newest: WholeRelease | None = None

    def look(self) -> WholeRelease | None:
        """The newest whole release that the topic holds now; None if it holds none.  Raises KafkaError."""
        self._topic.look()
        if self._topic.end - self._read > LONGEST_REPETITION:
            self._skip()
        for part in self._topic.parts_from(self._read):
            self._newest = self._whole.add(part) or self._newest
        self._read = self._topic.end
        return self._newest

    def _skip(self) -> None:
        """Go on behind the newest whole release."""
        newest = newest_release(self._topic)
        if newest is not None:
            self._newest = newest
            place = newest.epoch, newest.round
            self._whole = WholeReleases(place)
            self._read = max(self._read, self._topic.offset_past(place))

    def close(self) -> None:
        """Leave the broker."""
        self._topic.close()
