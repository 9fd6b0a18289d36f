"""The window behind each release of a stream, by further readers that follow the first one at a distance.

So memory stays flat and every window is exact, however many releases lie within it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from stream_dp.releases.windows import Span, Window, begins_epoch, may_be_between, window_between, with_moves

if TYPE_CHECKING:
    from stream_dp.releases.subscription import Subscription
    from stream_dp.releases.whole_release import WholeRelease

_START = datetime(1970, 1, 1, tzinfo=UTC)


class Windows:
    """The window behind each of a stream's releases, in order.  Close it at the end, or use it as a context."""

    def __init__(
        self,
        again: Callable[[str | int | datetime, int | None], Subscription],
        span: Span,
        false_discoveries: float | None = None,
    ) -> None:
        """`again(start, epoch)` opens another reader of the same releases.

        With `false_discoveries` windows say what is rising and falling, and at most this share of it is wrong, on
        average.  Raises ValueError where that is not between 0 and 1.
        """
        if false_discoveries is not None and not 0 < false_discoveries < 1:
            raise ValueError(f"a share of false discoveries is between 0 and 1, not {false_discoveries}")
        self._share = false_discoveries
        self._firsts = _Firsts(again)
        self._trails = (
            [_Trail(again, span)]
            if false_discoveries is None
            else [_Trail(again, span), _Trail(again, span.twice())]
        )

    def window(self, release: WholeRelease) -> Window:
        """That which ends with this release, which is later than the one before."""
        (older, complete), *before = [trail.behind(release) for trail in self._trails]
        self._firsts.forget(release, older)
        window = window_between(release, older, complete, self._firsts.since)
        if self._share is None or not before[0][1]:
            return window
        return with_moves(window, before[0][0], self._share)

    def close(self) -> None:
        """Leave the broker."""
        for trail in self._trails:
            trail.close()

    def __enter__(self) -> Windows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Firsts:
    """The releases that were the first to show what a test had found, for tests within the window."""

    def __init__(self, again: Callable[[str | int | datetime, int | None], Subscription]) -> None:
        self._again = again
        self._nonce = ""
        self._known: dict[int, WholeRelease] = {}

    def since(self, release: WholeRelease, number: int) -> WholeRelease:
        """The first release of the epoch at or past a round, which is there."""
        if number not in self._known:
            subscription = self._again(number, release.epoch)
            try:
                self._known[number] = next(subscription)
            finally:
                subscription.close()
        return self._known[number]

    def forget(self, release: WholeRelease, older: WholeRelease | None) -> None:
        """Let go what lies before the window."""
        if release.nonce != self._nonce:
            self._nonce, self._known = release.nonce, {}
        begins = older.round if older is not None and older.nonce == release.nonce else 0
        self._known = {number: each for number, each in self._known.items() if number > begins}


class _Trail:
    """A second reader of the releases, which follows the first one at a distance."""

    def __init__(self, again: Callable[[str | int | datetime, int | None], Subscription], span: Span) -> None:
        self._again = again
        self._span = span
        self._subscription: Subscription | None = None
        self._nonce = ""
        self._next: WholeRelease | None = None
        self._last: WholeRelease | None = None

    def behind(self, release: WholeRelease) -> tuple[WholeRelease | None, bool]:
        """The last release of the same epoch from so long before this one, and whether there is one.

        Where there is none: None if the epoch is younger than that, or the oldest one that is kept.
        """
        begins = self._span.begins(release)
        if self._subscription is None or self._ends_before(release):
            self._start(release, begins)
        while self._is_before(self._peek(), release, begins):
            self._last, self._next = self._next, None
        older, complete = self._last, self._last is not None
        if older is None and not begins_epoch(oldest := self._peek()):
            older = oldest
        if older is None or not may_be_between(older, release, self._span):
            return None, False
        return older, complete

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()

    def _ends_before(self, release: WholeRelease) -> bool:
        """Whether the reader gives no release of this one's epoch: by rounds it is given those of one epoch only."""
        return not self._span.milliseconds and release.nonce != self._nonce

    def _start(self, release: WholeRelease, begins: int) -> None:
        """Begin at or before the window's beginning, as far as the topic reaches."""
        self.close()
        self._nonce, self._next, self._last = release.nonce, None, None
        if self._span.milliseconds:
            self._subscription = self._again(_START + timedelta(milliseconds=max(0, begins)), None)
            return
        back = 0
        while True:
            self._subscription = self._again(max(1, begins - back), release.epoch)
            if begins - back <= 1 or self._peek().round <= begins:
                return
            self._subscription.close()
            self._next = None
            back = max(2 * back, release.round - release.previous)

    def _peek(self) -> WholeRelease:
        """The next release, which is there: the one that the first reader has is later than all that are asked for."""
        assert self._subscription is not None
        if self._next is None:
            self._next = next(self._subscription)
        return self._next

    def _is_before(self, earlier: WholeRelease, release: WholeRelease, begins: int) -> bool:
        if earlier.epoch != release.epoch and not may_be_between(earlier, release, self._span):
            return earlier.epoch < release.epoch
        return self._span.clock(earlier) <= begins


def windows_of(
    subscription: Subscription, span: Span, false_discoveries: float | None = None
) -> Iterator[Window]:
    """The window behind each release that a subscription gives."""
    return _each(subscription, Windows(subscription.again, span, false_discoveries))


def _each(subscription: Subscription, windows: Windows) -> Iterator[Window]:
    with windows:
        for release in subscription:
            yield windows.window(release)
