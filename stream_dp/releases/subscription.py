"""Following a stream's releases as any subscriber may: whole snapshots, in order, each once.

It reads one Kafka topic and nothing else.  Redis and the dead letters are out of its sight.
Everything large is imported when a subscription begins: the package offers `subscribe` and stays light.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from stream_dp.releases.estimates.showings import Showings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from stream_dp.config.connections import Kafka
    from stream_dp.releases.estimates.smoothing import Smoothed
    from stream_dp.releases.release import Release
    from stream_dp.releases.table_topic import Table
    from stream_dp.releases.topic import ReleasesTopic, WholeRelease

    AnyRelease = TypeVar("AnyRelease", bound=Release)

_POLL_SECONDS = 0.25


class WholeReleases:
    """Puts the parts of each release together and drops what comes again, as it may after a worker's crash.

    The one place where parts are merged.
    """

    def __init__(self, after: tuple[int, int] = (0, 0)) -> None:
        """`after` is an (epoch, round): releases up to it are dropped too."""
        self._last = after
        self._collecting = after
        self._parts: dict[int, Release] = {}
        self._showings = Showings()

    def add(self, part: AnyRelease) -> AnyRelease | None:
        """The whole release, as one part, if this part was the last one missing."""
        place = part.epoch, part.round
        if place <= self._last:
            return None
        if place != self._collecting:
            self._collecting, self._parts = place, {}
        self._parts[part.part] = part
        if len(self._parts) < part.parts:
            return None
        from msgspec.structs import replace

        from stream_dp.releases.topic import WholeRelease

        self._last = place
        ordered = [self._parts[number] for number in sorted(self._parts)]
        whole = replace(
            part,
            part=1,
            parts=1,
            labels=[label for each in ordered for label in each.labels],
            counts=[count for each in ordered for count in each.counts],
        )
        if isinstance(whole, WholeRelease):
            whole.follow(self._showings)
        return whole


class Subscription:
    """A place in the releases topic of a stream: iterate over it, with `for` or `async for`, and close it at the end.

    It is a context too, `with` or `async with`.  One thread or task at a time may ask it for releases.
    """

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        start: str | int | datetime,
        epoch: int | None = None,
        position: str | None = None,
    ) -> None:
        """Begin as `subscribe` says.  Raises `BadPosition`, `LogRefused`, ValueError or KafkaError."""
        if isinstance(start, str) and start not in ("earliest", "latest"):
            raise ValueError(f"start is earliest, latest, a round or a datetime, not {start!r}")
        self._epoch = epoch
        self._ready: list[WholeRelease] = []
        self._using = Lock()  # a cancelled task leaves its thread behind, which still reads
        self._closed = False
        self._begin(kafka, topic, start, position)

    def _begin(self, kafka: Kafka, topic: str, start: str | int | datetime, position: str | None) -> None:
        from stream_dp.releases.topic import ReleasesTopic

        self._topic = ReleasesTopic(kafka, topic)
        try:
            after, begin = beginning(self._topic, start, self._epoch, position)
            self._releases = WholeReleases(after)
            self._topic.seek(begin)
        except BaseException:
            self._leave()
            raise

    def poll(self, seconds: float) -> list[WholeRelease]:
        """The whole releases that have come, or none if none come in this time.

        Raises `LogRefused`, or `ShardsRefused` where those of shards do not make up rounds.
        """
        with self._using:
            if self._closed:
                raise ValueError("the subscription is closed")
            return [whole for whole in self._wholes(seconds) if self._epoch in (None, whole.epoch)]

    def _wholes(self, seconds: float) -> list[WholeRelease]:
        wholes = map(self._releases.add, self._topic.poll(seconds))
        return [whole for whole in wholes if whole is not None]

    def _leave(self) -> None:
        self._topic.close()

    def close(self) -> None:
        """Leave the broker; waits for a poll that another thread has not finished."""
        with self._using:
            if not self._closed:
                self._closed = True
                self._leave()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> WholeRelease:
        while not self._ready:
            self._ready = self.poll(_POLL_SECONDS)
        return self._ready.pop(0)

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> WholeRelease:
        import asyncio

        while not self._ready:
            # Kept by the thread itself: what a cancelled task had asked for is there for the next one.
            await asyncio.to_thread(self._fill)
        return self._ready.pop(0)

    def smoothed(self) -> Iterator[Smoothed]:
        """The releases with smoothed counts, which are nearer to the truth on average: `estimates/smoothing.py`.

            for release, counts in stream_dp.subscribe("localhost:9092", "shop").smoothed(): ...

        Raises ValueError at an epoch whose labels are not kept.  `Smoother` (releases/estimates/smoothing.py) does the
        same for releases that come from an asynchronous loop.
        """
        from stream_dp.releases.estimates.smoothing import Smoother

        smoother = Smoother()
        return (smoother.add(release) for release in self)

    def _fill(self) -> None:
        self._ready.extend(self.poll(_POLL_SECONDS))


def subscribe(
    kafka: Kafka,
    stream: str,
    start: str | int | datetime = "latest",
    *,
    epoch: int | None = None,
    position: str | None = None,
    shards: bool = False,
) -> Subscription:
    """The releases of `stream`, whole, in order and each once, from the brokers `kafka`: "host:port,host:port",
    or a `stream_dp.config.connections.KafkaAddress` for TLS and credentials.

    `start`: the "latest" release there is, the "earliest" that is kept, a round of the newest epoch (or of `epoch`) or
    the first one released after it, or what was newest at a moment (a datetime; without a zone, UTC).  `epoch` leaves
    out all others.
    `position`, of a release that was handled, goes on after it instead.
    `shards` reads what the shards of a stream release and puts the rounds together here; nobody needs to merge them.

        for release in stream_dp.subscribe("localhost:9092", "shop"):
            print(release.round, release.histogram)

    Raises `BadPosition`, `LogRefused` for a topic that is not there, ValueError or KafkaError.  Records that are no
    releases of the stream are passed over with a warning.
    """
    if shards:
        from stream_dp.releases.sharded_subscription import ShardsSubscription

        return ShardsSubscription(kafka, f"{stream}.shards", start, epoch, position)
    return Subscription(kafka, f"{stream}.releases", start, epoch, position)


def read_table(kafka: Kafka, stream: str) -> Table:
    """What `stream` shows now, for those who need no history: `rows()` by label, and `catch_up()` for what is newer.

        with stream_dp.read_table("localhost:9092", "shop") as table:
            print(table.rows())

    `stream-dp table` writes it.  Raises `LogRefused` for a topic that is not there, or KafkaError.
    """
    from stream_dp.releases.table_topic import Table

    return Table(kafka, f"{stream}.table")


def release_at(kafka: Kafka, topic: str, at: int | datetime, epoch: int | None = None) -> WholeRelease | None:
    """The newest whole release at or before a round, or the newest one whose record is not from after a moment.

    A round that was released gives its own release; where it was not, the answer's `round` is an earlier one.  None if
    the topic holds nothing as old as that.
    A round is one of the newest epoch or of `epoch`; of a moment, `epoch` means its newest release by then.
    Raises `LogRefused` for a topic that is not there, or KafkaError.
    """
    from stream_dp.releases.topic import ReleasesTopic

    releases = ReleasesTopic(kafka, topic)
    try:
        return find_release(releases, at, epoch)
    finally:
        releases.close()


def find_release(
    releases: ReleasesTopic, at: int | datetime, epoch: int | None = None
) -> WholeRelease | None:
    """The release that `release_at` means, in a topic that is open."""
    if not isinstance(at, int):
        return _newest_at(releases, at, epoch)
    place = _epoch_or_newest(releases, epoch), at
    found = release_near(releases, place)
    if found is None or (found.epoch, found.round) != place:
        found = newest_before(releases, releases.offset_past(place), place)
    return found if found is not None and found.epoch == place[0] else None


def history_begins(releases: ReleasesTopic) -> str:
    """Where a topic's history begins, as a sentence for those who asked for something older."""
    oldest = next(releases.parts_from(releases.first), None)
    if oldest is None:
        return "the topic holds no release"
    return f"its history begins with round {oldest.round:,} of epoch {oldest.epoch}"


def release_near(releases: ReleasesTopic, place: tuple[int, int]) -> WholeRelease | None:
    """The first whole release at or past an (epoch, round), found by few reads always; None if there is none.

    Where a worker has sent something again, it may be a later one.
    """
    merged = WholeReleases((place[0], place[1] - 1))
    wholes = map(merged.add, releases.parts_from(releases.offset_near(place)))
    return next((whole for whole in wholes if whole is not None), None)


def newest_release(releases: ReleasesTopic) -> WholeRelease | None:
    """The newest whole release that a topic held when it was last looked at."""
    return _newest_at(releases, None, None)


def _newest_at(releases: ReleasesTopic, moment: datetime | None, epoch: int | None) -> WholeRelease | None:
    """The newest whole release of a moment (None: of now)."""
    end = releases.end if moment is None else releases.offset_after(_milliseconds(moment))
    if epoch is not None:
        end = min(end, releases.offset_of((epoch + 1, 0)))
    newest = newest_before(releases, end)
    return newest if newest is not None and epoch in (None, newest.epoch) else None


def newest_before(
    releases: ReleasesTopic, end: int, up_to: tuple[int, int] | None = None
) -> WholeRelease | None:
    """The newest whole release before an offset; `up_to`: leave out all that are past this (epoch, round)."""
    widened = 1
    while True:
        merged, last = WholeReleases(), None
        for part in releases.parts_before(end, widened):
            if up_to is None or (part.epoch, part.round) <= up_to:
                last = merged.add(part) or last
        if last is not None or widened > end - releases.first:
            return last
        widened *= 16  # there are many foreign records, or hardly any releases: look at all in the end


def beginning(
    releases: ReleasesTopic, start: str | int | datetime, epoch: int | None, position: str | None
) -> tuple[tuple[int, int], int]:
    """The (epoch, round) after which to begin, and the offset from which to read."""
    if position is not None:
        return _after(releases, position)
    if isinstance(start, int):
        place = _epoch_or_newest(releases, epoch), start
    elif start == "earliest":
        place = epoch or 0, 1
    else:
        newest = _newest_at(releases, None if isinstance(start, str) else start, epoch)
        place = (epoch or 0, 1) if newest is None else (newest.epoch, newest.round)
    begin = releases.offset_of(place) if place[0] else releases.first
    if start not in ("earliest", "latest") and begin == releases.first > 0:
        _say_if_not_kept(releases, place)
    return (place[0], place[1] - 1), begin


def _say_if_not_kept(releases: ReleasesTopic, place: tuple[int, int]) -> None:
    """Warn a subscriber who asks for releases from before what is left in the topic."""
    oldest = next(releases.parts_from(releases.first), None)
    if oldest is not None and (oldest.epoch, oldest.round) > place:
        import logging

        logging.getLogger(__name__).warning(
            "what was asked for is no longer kept: %s", history_begins(releases)
        )


def _after(releases: ReleasesTopic, position: str) -> tuple[tuple[int, int], int]:
    """Where to go on after a position, if the topic is still the one that it came from."""
    from stream_dp.releases.topic import BadPosition, read_position

    place, nonce = read_position(position)
    begin = releases.offset_of(place)
    known = next(releases.parts_from(begin), None)
    if known is None:
        made_anew = releases.end == 0 or releases.first < releases.end  # else everything is forgotten by now
    else:
        made_anew = known.epoch == place[0] and known.nonce != nonce
    if made_anew:
        raise BadPosition(
            f"the topic does not hold the releases that the position {position!r} came from: it was made anew or "
            'truncated; begin again with start="earliest"'
        )
    if begin == releases.first > 0:
        _say_if_not_kept(releases, (place[0], place[1] + 1))
    return place, begin


def _epoch_or_newest(releases: ReleasesTopic, epoch: int | None) -> int:
    if epoch is not None:
        return epoch
    newest = _newest_at(releases, None, None)
    return 1 if newest is None else newest.epoch


def _milliseconds(moment: datetime) -> int:
    from datetime import UTC

    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)
