"""Writing what happened lately, and which labels rise and fall, into a topic that alerting can subscribe to.

A record follows from the releases before it alone, and not from what this writer has seen of them, so the same releases
give the same bytes.  A writer that died goes on where the topic stands, in the middle of a round too.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from threading import Event

import msgspec

from stream_dp.config.settings import Settings
from stream_dp.config.times import milliseconds, parse_time
from stream_dp.kafka import log, roles
from stream_dp.kafka.clients import producer_client
from stream_dp.kafka.log import LogRefused
from stream_dp.kafka.time_limits import time_warnings
from stream_dp.releases.subscription import Subscription
from stream_dp.releases.topic import BadPosition
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.window_readers import Windows
from stream_dp.releases.window_record import WindowRecord, cut_to_fit, record_of
from stream_dp.releases.windows import FALSE_DISCOVERIES, Span
from stream_dp.workers.derived_topic import keep
from stream_dp.workers.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 30
_POLL_SECONDS = 0.25
_MOST_SPANS = 100
"""More than anybody asks for: so many records of the last round are looked at."""


class WindowsWriter(ExitStack):
    """One connection to Kafka that writes `<stream>.windows`.  It is a context; close it at the end."""

    def __init__(
        self, settings: Settings, spans: Sequence[Span], start: str = "latest", every: float = 1.0
    ) -> None:
        """`start`: "earliest" or "latest", where the topic holds nothing yet.

        Makes the topic where it may.  Raises `LogRefused` where it holds something else, or KafkaError.
        """
        super().__init__()
        self._settings, self._spans = settings, spans
        self._period_ms = max(1, round(1000 * every))
        self._written: set[str] = set()
        self._last: tuple[str, int] | None = None
        with ExitStack() as opened:  # what is open when the next step fails is closed
            self._open(opened, start)
            self.push(opened.pop_all())

    def _open(self, opened: ExitStack, start: str) -> None:
        settings, kafka = self._settings, self._settings.kafka_address
        if settings.create_topics:
            log.create_topics(kafka, settings.windows_topic)
        log.check_topic(kafka, settings.windows_topic)  # what it forgets is as the operator likes
        for warning in time_warnings(settings, settings.windows_topic):
            logger.warning(warning)
        self._watch = TopicWatch(settings, "releases", "windows_topic")
        self._watch.for_readers(settings.releases)
        opened.callback(self._watch.close)
        self._watch.look()
        self._releases = opened.enter_context(self._subscription(start))
        self._windows = [
            opened.enter_context(Windows(self._releases.again, span, FALSE_DISCOVERIES))
            for span in self._spans
        ]
        compression = None if settings.compression == "none" else settings.compression
        self._producer = producer_client(kafka, linger_ms=5, compression_type=compression)
        opened.callback(self._producer.close, timeout=0)

    def _subscription(self, start: str) -> Subscription:
        """The releases from the last round on that windows were written of."""
        kafka, releases = self._settings.kafka_address, self._settings.releases
        newest = list(self._newest())
        if not newest:
            return Subscription(kafka, releases, start)
        last = newest[-1]
        done = {each.window for each in newest if (each.nonce, each.round) == (last.nonce, last.round)}
        whole = done.issuperset(map(str, self._spans))
        try:
            place = f"{last.epoch}.{last.round if whole else last.round - 1}.{last.nonce}"
            found = Subscription(kafka, releases, "latest", position=place)
        except BadPosition:
            return Subscription(kafka, releases, "earliest")
        if whole:
            self._last = last.nonce, self._period(last.ts)
        else:
            self._written = done
        return found

    def _newest(self) -> Iterator[WindowRecord]:
        """The last records of the topic of windows."""
        kafka, topic = self._settings.kafka_address, self._settings.windows_topic
        held = log.offsets(kafka, topic)
        for record in log.read(kafka, topic, max(held.first, held.end - _MOST_SPANS), held.end):
            try:
                yield msgspec.json.decode(record.value or b"", type=WindowRecord)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                raise LogRefused(
                    f"the topic {topic!r} holds a record that is not a window: only `stream-dp windows` may write there"
                ) from None

    def write(self, seconds: float) -> int:
        """Write the windows behind the releases of so many seconds; returns how many records, all of them stored.

        Raises `TopicChanged` or KafkaError.
        """
        self._watch.look()
        sent = []
        for release in self._releases.poll(seconds):
            period = release.nonce, self._period(release.ts)
            if period == self._last:
                continue
            self._last = period
            for record in self._records(release):
                value, key = msgspec.json.encode(record), record.window.encode()
                moment = milliseconds(parse_time(release.ts))
                sent.append(
                    self._producer.send(
                        self._settings.windows_topic, value, key, timestamp_ms=max(0, moment), partition=0
                    )
                )
        for each in sent:
            each.get(timeout=_ANSWER_SECONDS)
        return len(sent)

    def _records(self, release: WholeRelease) -> Iterator[WindowRecord]:
        """The window records of one round that are not in the topic yet."""
        written, self._written = self._written, set()
        alone = msgspec.structs.replace(release)  # without what this reader has seen before
        for span, windows in zip(self._spans, self._windows, strict=True):
            if str(span) not in written:
                yield cut_to_fit(record_of(windows.window(alone), span))

    def _period(self, ts: str) -> int:
        """Windows are those of the first release in each period of `every` so many seconds."""
        return milliseconds(parse_time(ts)) // self._period_ms


def keep_windows(
    settings: Settings, spans: Sequence[Span], stopping: Event, start: str = "latest", every: float = 1.0
) -> None:
    """Write `<stream>.windows` until `stopping`, from where it stands.

    What is not there yet, or no more, is waited for.  Raises `LogRefused` where the topic cannot serve, and
    `Refused`.
    """

    def follow() -> None:
        with WindowsWriter(settings, spans, start, every) as writer:
            while not stopping.is_set():
                writer.write(_POLL_SECONDS)

    keep(settings, partial(roles.windows_writer, settings), follow, stopping)
