"""What changed from one release to the next, as a topic of its own: `<stream>.changes`, for readers who keep a table.

It is derived from released values alone, so it spends nothing and needs neither key nor Redis.  The same releases give
the same records, so a writer that died goes on where the last whole change stands, and may repeat it.
"""

from collections.abc import Iterator, Mapping

import msgspec
import orjson

from stream_dp.config.connections import Kafka
from stream_dp.kafka import log
from stream_dp.kafka.clients import producer_client
from stream_dp.releases.lookup import release_at
from stream_dp.releases.release import LARGEST_PART, VERSION
from stream_dp.releases.subscription import Subscription
from stream_dp.releases.topic import BadPosition
from stream_dp.releases.whole_release import WholeRelease

_ANSWER_SECONDS = 30
_BYTES_BESIDE_LABEL = 16


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One part of what differs between the release of `round` and the one of `since`, both of one epoch.

    `entered` and `changed` hold the counts of `round`; labels in `left` are no longer released.  The first change of an
    epoch is since round 0, when nothing was released.
    """

    v: int
    stream: str
    epoch: int
    nonce: str
    round: int
    since: int
    ts: str
    sd: float
    tau: int | None
    part: int
    parts: int
    entered: dict[str, int]
    changed: dict[str, int]
    left: list[str]


def derive(before: WholeRelease | None, release: WholeRelease) -> list[Change]:
    """The parts of the change from `before`, None where it was not kept, to `release`; each fits into a message."""
    same_epoch = before is not None and (before.epoch, before.nonce) == (release.epoch, release.nonce)
    since = before.round if before is not None and same_epoch else 0
    old: Mapping[str, int] = before.histogram if before is not None and same_epoch else {}
    new = release.histogram
    entries = [
        *(("entered", label) for label in new if label not in old),
        *(("changed", label) for label, count in new.items() if old.get(label, count) != count),
        *(("left", label) for label in old if label not in new),
    ]
    pieces = list(_pieces(entries))
    return [
        Change(
            v=VERSION,
            stream=release.stream,
            epoch=release.epoch,
            nonce=release.nonce,
            round=release.round,
            since=since,
            ts=release.ts,
            sd=release.sd,
            tau=release.tau,
            part=part,
            parts=len(pieces),
            entered={label: new[label] for kind, label in piece if kind == "entered"},
            changed={label: new[label] for kind, label in piece if kind == "changed"},
            left=[label for kind, label in piece if kind == "left"],
        )
        for part, piece in enumerate(pieces, 1)
    ]


def _pieces(entries: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """The entries in pieces that fit into a message: one, unless there are very many; empty if there are none."""
    piece: list[tuple[str, str]] = []
    size = 0
    for kind, label in entries:
        needed = len(orjson.dumps(label)) + _BYTES_BESIDE_LABEL
        if piece and size + needed > LARGEST_PART:
            yield piece
            piece, size = [], 0
        piece.append((kind, label))
        size += needed
    yield piece


class ChangesWriter:
    """Follows `<stream>.releases` and writes `<stream>.changes`, from where the latter stands."""

    def __init__(self, kafka: Kafka, stream: str, create_topics: bool = True) -> None:
        """Raises `LogRefused` where a topic is not there and not to be made, or one of the two holds something else.

        Only the changes topic is made, and only where `create_topics`.
        """
        self._topic = f"{stream}.changes"
        self._stream = stream
        releases = f"{stream}.releases"
        if create_topics:
            log.create_topics(kafka, self._topic)
        log.check_topic(kafka, self._topic)
        self._before: WholeRelease | None = None
        self._releases = self._subscription(kafka, releases)
        self._producer = producer_client(kafka, linger_ms=5)

    def _subscription(self, kafka: Kafka, releases: str) -> Subscription:
        """The releases after the last whole change; all of them where there is none, or the topic is another one."""
        last = self._last(kafka)
        if last is not None:
            done = last.round if last.part == last.parts else last.since
            try:
                following = Subscription(
                    kafka, releases, position=f"{last.epoch}.{done}.{last.nonce}", start="latest"
                )
            except BadPosition:
                return Subscription(kafka, releases, "earliest")
            self._before = release_at(kafka, releases, done, last.epoch) if done else None
            return following
        return Subscription(kafka, releases, "earliest")

    def _last(self, kafka: Kafka) -> Change | None:
        """The newest record of the changes topic."""
        held = log.offsets(kafka, self._topic)
        for record in log.read(kafka, self._topic, max(held.first, held.end - 1), held.end):
            try:
                return msgspec.json.decode(record.value or b"", type=Change)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                raise log.LogRefused(
                    f"the topic {self._topic!r} holds a record that is not a change: only stream_dp may write there"
                ) from None
        return None

    def write(self, seconds: float) -> int:
        """Write what the releases of so many seconds have changed; returns how many there were, all of them stored."""
        releases = self._releases.poll(seconds)
        answers = []
        for release in releases:
            for change in derive(self._before, release):
                value = msgspec.json.encode(change)
                answers.append(self._producer.send(self._topic, value, self._stream.encode(), partition=0))
            self._before = release
        for answer in answers:
            answer.get(timeout=_ANSWER_SECONDS)
        return len(releases)

    def close(self) -> None:
        """Leave the broker."""
        self._releases.close()
        self._producer.close()

    def __enter__(self) -> "ChangesWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
