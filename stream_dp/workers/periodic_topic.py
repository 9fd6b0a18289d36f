"""Writing records of one release in each while into a topic of their own, which follow from releases alone.

The same releases give the same bytes, whatever this writer has seen of them.  A writer that died goes on where the
topic stands, in the middle of a release too.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from threading import Event

from stream_dp.config.settings import Settings
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.kafka.clients import producer_client
from stream_dp.kafka.time_limits import time_warnings
from stream_dp.operations.retry import Needed
from stream_dp.releases.subscription import Subscription
from stream_dp.releases.topic import BadPosition, read_position
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.workers.derived_topic import keep
from stream_dp.workers.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 30
_POLL_SECONDS = 0.25


class PeriodicWriter(ExitStack):
    """One connection to Kafka that writes a topic of this kind.  It is a context; close it at the end.

    Subclasses say in `_kind` which of the settings names the topic, in `_newest` how many of its last records tell
    where it stands, in `_resume` where that is, and in `_records` what is written of a release.
    """

    _kind: str
    _newest: int

    def __init__(self, settings: Settings, start: str, every: float) -> None:
        """`start`: "earliest" or "latest", where the topic holds nothing yet.

        Makes the topic where it may.  Raises `LogRefused` where it holds something else, or KafkaError.
        """
        super().__init__()
        self._settings, self._topic = settings, str(getattr(settings, self._kind))
        self._period_ms = max(1, round(1000 * every))
        self._last: tuple[str, int] | None = None
        self._begun = ""  # the position of the last release that the topic has records of, if it had any
        with ExitStack() as opened:  # what is open when the next step fails is closed
            self._open(opened, start)
            self.push(opened.pop_all())

    @abstractmethod
    def _resume(self, newest: Sequence[Record]) -> str:
        """The position of the last release that the topic has records of; which these are is for `_records` to know.

        Raises `LogRefused` for records that are not this writer's.
        """

    @abstractmethod
    def _records(self, release: WholeRelease, is_begun: bool) -> Iterator[tuple[bytes, bytes]]:
        """The values and keys of one release; if it is begun, those that `_resume` has not seen."""

    def _open(self, opened: ExitStack, start: str) -> None:
        settings, kafka = self._settings, self._settings.kafka_address
        if settings.create_topics:
            log.create_topics(kafka, self._topic)
        log.check_topic(kafka, self._topic)  # what it forgets is as the operator likes
        for warning in time_warnings(settings, self._topic):
            logger.warning(warning)
        self._watch = TopicWatch(settings, "releases", self._kind)
        self._watch.for_readers(settings.releases)
        opened.callback(self._watch.close)
        self._watch.look()
        self._releases = opened.enter_context(self._subscription(start))
        self._begin(opened)
        compression = None if settings.compression == "none" else settings.compression
        self._producer = producer_client(kafka, linger_ms=5, compression_type=compression)
        opened.callback(self._producer.close, timeout=0)

    def _begin(self, opened: ExitStack) -> None:
        """Open what else is needed."""

    def _subscription(self, start: str) -> Subscription:
        """The releases from the last one on that the topic has records of: perhaps not all of them."""
        kafka, releases = self._settings.kafka_address, self._settings.releases
        held = log.offsets(kafka, self._topic)
        newest = list(log.read(kafka, self._topic, max(held.first, held.end - self._newest), held.end))
        if not newest:
            return Subscription(kafka, releases, start)
        self._begun = self._resume(newest)
        (epoch, number), nonce = read_position(self._begun)
        try:
            return Subscription(kafka, releases, "latest", position=f"{epoch}.{number - 1}.{nonce}")
        except BadPosition:
            return Subscription(kafka, releases, "earliest")

    def write(self, seconds: float) -> int:
        """Write the records of the releases of so many seconds; returns how many, all of them stored.

        Raises `TopicChanged` or KafkaError.
        """
        self._watch.look()
        sent = []
        for release in self._releases.poll(seconds):
            moment = max(0, milliseconds(parse_time(release.ts)))
            period = release.nonce, moment // self._period_ms  # the first release in each is written
            if period == self._last:
                continue
            self._last = period
            sent += [
                self._producer.send(self._topic, value, key, timestamp_ms=moment, partition=0)
                for value, key in self._records(release, release.position == self._begun)
            ]
        for each in sent:
            each.get(timeout=_ANSWER_SECONDS)
        return len(sent)


def keep_writing(
    settings: Settings, needed: Needed, opened: Callable[[], PeriodicWriter], stopping: Event
) -> None:
    """Write what `opened` writes until `stopping`, from where its topic stands.

    What is not there yet, or no more, is waited for.  `needed`: the rights without which it cannot go on.  Raises
    `LogRefused` where the topic cannot serve, and `Refused`.
    """

    def follow() -> None:
        with opened() as writer:
            while not stopping.is_set():
                writer.write(_POLL_SECONDS)

    keep(settings, needed, follow, stopping)
