"""Following a stream's releases as any subscriber may: whole snapshots, in order, each once.

It reads one Kafka topic and nothing else.  Redis and the dead letters are out of its sight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING

from stream_dp.config.connections import Kafka
from stream_dp.errors import needs_extra
from stream_dp.releases.lookup import beginning, find_release, newest_release
from stream_dp.releases.topic import ReleasesTopic
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease

if TYPE_CHECKING:
    from stream_dp.releases.smoothing import Smoothed
    from stream_dp.releases.windows import Window

_POLL_SECONDS = 0.25


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
        until: str | datetime | None = None,
    ) -> None:
        """Begin and end as `subscribe` says.  Raises `BadPosition`, `LogRefused`, ValueError or KafkaError."""
        if isinstance(start, str) and start not in ("earliest", "latest"):
            raise ValueError(f"start is earliest, latest, a round or a datetime, not {start!r}")
        if isinstance(until, str) and until != "latest":
            raise ValueError(f"until is latest or a datetime, not {until!r}")
        self._source = kafka, topic
        self._epoch = epoch
        self._ready: list[WholeRelease] = []
        self._using = Lock()  # a cancelled task leaves its thread behind, which still reads
        self._closed = False
        self._last: tuple[int, int] | None = None
        self._ended = False
        if until is not None:
            self._last = _last_until(kafka, topic, until, epoch)
            self._ended = self._last is None
        self._topic = ReleasesTopic(kafka, topic)
        try:
            after, begin = beginning(self._topic, start, epoch, position)
            self._releases = WholeReleases(after)
            self._ended |= self._last is not None and after >= self._last
            self._topic.seek(begin)
        except BaseException:
            self._topic.close()
            raise

    def poll(self, seconds: float) -> list[WholeRelease]:
        """The whole releases that have come, or none if none come in this time.

        Raises `LogRefused`.
        """
        with self._using:
            if self._closed:
                raise ValueError("the subscription is closed")
            wholes = map(self._releases.add, self._topic.poll(seconds))
            return [whole for whole in wholes if whole is not None and self._epoch in (None, whole.epoch)]

    def close(self) -> None:
        """Leave the broker; waits for a poll that another thread has not finished."""
        with self._using:
            if not self._closed:
                self._closed = True
                self._topic.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> WholeRelease:
        while not self._ready and not self._ended:
            self._fill()
        if (release := self._taken()) is None:
            raise StopIteration
        return release

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> WholeRelease:
        while not self._ready and not self._ended:
            # Kept by the thread itself: what a cancelled task had asked for is there for the next one.
            await asyncio.to_thread(self._fill)
        if (release := self._taken()) is None:
            raise StopAsyncIteration
        return release

    def smoothed(self) -> Iterator[Smoothed]:
        """The releases with smoothed counts, which are nearer to the truth on average: `smoothing.py`.

            for release, counts in stream_dp.subscribe("localhost:9092", "shop").smoothed(): ...

        Raises ValueError at an epoch whose labels are not kept.  `stream_dp.Smoother` does the
        same for releases that come from an asynchronous loop.
        """
        with needs_extra("smoothing", "estimates"):
            from stream_dp.releases.smoothing import Smoother

        smoother = Smoother()
        return (smoother.add(release) for release in self)

    def windows(
        self, span: str | int | timedelta, *, false_discoveries: float | None = None
    ) -> Iterator[Window]:
        """What happened lately, for each release: how often each label occurred in the last `span`, with intervals.

        `span`: a time such as "5m", "1h" or "7d", a timedelta, or a number of rounds.

            for window in stream_dp.subscribe("localhost:9092", "shop").windows("1h"):
                print(window.release.round, window.histogram)

        With `false_discoveries`, say 0.1, each window names the labels that rise and fall: those whose count differs
        from that in the window before by more than noise explains.  At most this share of them is wrong, on average.

        Further readers of the topic follow at those distances.  Raises ValueError for any other span or share.
        """
        with needs_extra("a window", "estimates"):
            from stream_dp.releases.window_readers import windows_of
            from stream_dp.releases.windows import Span

        return windows_of(self, Span.of(span), false_discoveries)

    def again(self, start: str | int | datetime, epoch: int | None = None) -> Subscription:
        """Another subscription to the same releases."""
        return type(self)(*self._source, start, epoch)

    def _fill(self) -> None:
        self._ready.extend(self.poll(_POLL_SECONDS))

    def _taken(self) -> WholeRelease | None:
        """The next release that is there; None after the last one that was asked for."""
        if self._ended:
            return None
        release = self._ready.pop(0)
        if self._last is None:
            return release
        place = release.epoch, release.round
        self._ended = place >= self._last
        return release if place <= self._last else None


def _last_until(kafka: Kafka, topic: str, until: str | datetime, epoch: int | None) -> tuple[int, int] | None:
    """The (epoch, round) of the last release to give; None if there is none."""
    releases = ReleasesTopic(kafka, topic)
    try:
        found = (
            newest_release(releases, epoch)
            if isinstance(until, str)
            else find_release(releases, until, epoch)
        )
    finally:
        releases.close()
    return None if found is None else (found.epoch, found.round)
