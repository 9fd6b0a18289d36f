"""The one reader of Kafka, in a thread of its own, however many people watch."""

import logging
import time
from datetime import datetime
from threading import Event, Thread

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError

from stream_dp.config.connections import Kafka
from stream_dp.dashboard.answers import State
from stream_dp.dashboard.archive import Archive
from stream_dp.dashboard.board import Board
from stream_dp.dashboard.results import read_result
from stream_dp.dashboard.unmetered import unmetered_nonce
from stream_dp.kafka.log import LogRefused, position, read_only_consumer
from stream_dp.kafka.rights import NotPermitted, naming, require_seen
from stream_dp.operations.backoff import Backoff, retry_in_thread
from stream_dp.releases.foreign import Place as RecordPlace
from stream_dp.releases.foreign import release_or_none
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release

_POLL_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_ANSWER_SECONDS = 3.0
_ANSWER_MILLISECONDS = int(_ANSWER_SECONDS * 1000)
_QUIET_SECONDS = 2.0  # after which a silent broker is asked whether it is there
_RESULTS_SECONDS = 10.0  # between two looks for topics that come later
_BACKLOG = 64  # records before the end of the topic to begin with: the newest release in all its parts
_SEEDING_SECONDS = 5.0
_LOGGER = logging.getLogger(__name__)


class Reader:
    """Follows `<stream>.releases`, and `<stream>.epochs` and `<stream>.results` once they exist.

    What comes is written on the board.
    """

    def __init__(self, kafka: Kafka, releases: str, results: str, board: Board) -> None:
        self.board = board
        self.archive = Archive(kafka, releases)
        self._kafka = kafka
        self.stream = releases.rpartition(".")[0]
        self._releases = TopicPartition(releases, 0)
        self._results = TopicPartition(results, 0)
        self._epochs = TopicPartition(f"{self.stream}.epochs", 0)
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="kafka-reader", daemon=True)
        self._reached_at = float("-inf")
        self._whole = WholeReleases()
        self._place = ("", 0)
        self._since = ("", 0)
        self._live_from = 0
        self._asked_at = 0.0
        self._told: State = "connecting"

    def start(self) -> None:
        """Begin; Kafka need not be there yet."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the broker and end the thread."""
        self._stopping.set()
        self._thread.join(_ANSWER_SECONDS + _RETRY_SECONDS)
        self.archive.close()

    def is_ready(self) -> bool:
        """Whether the releases topic was there when Kafka was last asked, moments ago."""
        recent = time.monotonic() - self._reached_at < 3 * (_QUIET_SECONDS + _ANSWER_SECONDS)
        return recent and self._thread.is_alive()

    def _run(self) -> None:
        retry_in_thread(self._connect_and_follow, _Told(self), self._stopping)

    def _connect_and_follow(self) -> None:
        consumer = read_only_consumer(
            self._kafka, bootstrap_timeout_ms=_ANSWER_MILLISECONDS, reconnect_backoff_max_ms=1000
        )
        try:
            self._follow(consumer)
        finally:
            consumer.close(timeout_ms=_ANSWER_MILLISECONDS)

    def failed(self, failure: Exception) -> None:
        """Say what ended an attempt to follow the topics."""
        if isinstance(failure, LogRefused):
            self._tell("no-topic", str(failure))
        elif isinstance(failure, NotPermitted):
            self._tell("unreachable", str(failure))
        elif isinstance(failure, KafkaError | OSError):
            self._tell("unreachable", f"Kafka does not answer at {self._kafka} ({failure}): trying again")
            self._reached_at = float("-inf")
        else:
            _LOGGER.error("the reader starts again", exc_info=failure)

    def _follow(self, consumer: KafkaConsumer) -> None:
        """Read until asked to stop; raises KafkaError when the broker is gone."""
        while not consumer.partitions_for_topic(self._releases.topic):
            require_seen(self._kafka, self._releases.topic)
            self._tell("no-topic", f"waiting for the topic {self._releases.topic!r}, which the worker makes")
            if self._stopping.wait(_RETRY_SECONDS):
                return
        self._begin(consumer)
        heard = time.monotonic()
        while not self._stopping.is_set():
            with naming("READ", self._releases.topic):
                found = consumer.poll(int(_POLL_SECONDS * 1000))
            now = time.monotonic()
            if found:
                heard = self._reached_at = now
            elif now - max(heard, self._reached_at) > _QUIET_SECONDS:
                self._end_of_releases(consumer)
            self._take_releases(consumer, found.get(self._releases, []))
            self._take_results(found.get(self._results, []))
            self._take_epochs(found.get(self._epochs, []))
            if now - self._asked_at > _RESULTS_SECONDS:
                self._look_for_others(consumer, now)

    def _tell(self, state: State, sentence: str) -> None:
        """Put on the board why nothing comes, and say it once on the console."""
        if state != self._told:
            _LOGGER.warning(sentence)
        self._told = state
        self.board.set_state(state)

    def _begin(self, consumer: KafkaConsumer) -> None:
        """Show the newest release at once, then fill the history, then go on from there."""
        consumer.assign([self._releases])
        self._since = ("", 0)
        first = consumer.beginning_offsets([self._releases], timeout_ms=_ANSWER_MILLISECONDS)
        end = self._live_from = self._end_of_releases(consumer)
        begin = max(first[self._releases], end - _BACKLOG)
        consumer.seek(self._releases, begin)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while position(consumer, self._releases) < end and time.monotonic() < deadline:
            self._take_releases(consumer, consumer.poll(int(_POLL_SECONDS * 1000)).get(self._releases, []))
        self._fill_history()
        self._look_for_others(consumer, time.monotonic())

    def _end_of_releases(self, consumer: KafkaConsumer) -> int:
        end = consumer.end_offsets([self._releases], timeout_ms=_ANSWER_MILLISECONDS)[self._releases]
        self._reached_at = time.monotonic()
        self._told = "open"
        self.board.confirm()
        return int(end)

    def _fill_history(self) -> None:
        """Fetch the releases that the sparklines need, for as long as that takes little time."""
        view = self.board.view(time.monotonic())
        deadline = time.monotonic() + _SEEDING_SECONDS
        for number in self.board.missing(self._since[1]):
            if view.release is None or self._stopping.is_set() or time.monotonic() > deadline:
                return
            release = self.archive.find_near(number, view.release.epoch)
            if release is not None:
                self.board.take_past(release)

    def _look_for_others(self, consumer: KafkaConsumer, now: float) -> None:
        """Read the topics of epochs and results from their beginning, once they exist."""
        self._asked_at = now
        if not consumer.partitions_for_topic(self._epochs.topic):
            require_seen(self._kafka, self._epochs.topic)  # they say whether anything bounds what is released
        read = consumer.assignment()
        new = [
            each
            for each in (self._epochs, self._results)
            if each not in read and consumer.partitions_for_topic(each.topic)
        ]
        if new:
            positions = {each: position(consumer, each) for each in read}
            consumer.assign([*read, *new])
            for each, before in positions.items():
                consumer.seek(each, before)
            consumer.seek_to_beginning(*new)

    def _take_releases(self, consumer: KafkaConsumer, records: list[ConsumerRecord]) -> None:
        for record in records:
            place = RecordPlace(self._releases.topic, 0, record.offset)
            part = release_or_none(decode_whole_release, self.stream, place, record.value)
            release = None if part is None else self._whole_release(part)
            if release is None:
                continue
            if release.nonce != self._since[0]:
                self._since = release.nonce, release.round
            published = record.timestamp / 1000
            behind = max(0, (consumer.highwater(self._releases) or 0) - record.offset - 1)
            live = record.offset >= self._live_from
            delay = published - _seconds(release.ts)
            self.board.take(release, published, delay, behind, time.monotonic(), live)

    def _whole_release(self, part: WholeRelease) -> WholeRelease | None:
        """The whole release, if this part completes it.

        An epoch of the same number and another nonce means that the topic was made anew.
        """
        nonce, epoch = self._place
        if part.nonce != nonce:
            if part.epoch < epoch:
                return None
            self._place, self._whole = (part.nonce, part.epoch), WholeReleases()
        return self._whole.add(part)

    def _take_results(self, records: list[ConsumerRecord]) -> None:
        for record in records:
            result = read_result(record.key, record.value)
            if result is not None:
                self.board.take_result(result)

    def _take_epochs(self, records: list[ConsumerRecord]) -> None:
        for record in records:
            nonce = unmetered_nonce(record.value)
            if nonce is not None:
                self.board.note_unmetered(nonce)


class _Told(Backoff):
    """Attempts of a reader, which says why they fail; none is given up."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(_RETRY_SECONDS)
        self._reader = reader

    def failed(self, failure: Exception) -> float:
        """See `Backoff`."""
        self._reader.failed(failure)
        return super().failed(failure)


def _seconds(ts: str) -> float:
    """A timestamp of a release in seconds since 1970."""
    return datetime.fromisoformat(ts).timestamp()
