"""What happened lately: the counts of the last hour, or of the last thousand rounds, from two releases of one epoch.

A second reader of the same topic follows the first at the distance of the window, so that memory stays flat and every
window is exact, however many releases lie within it.  Releases are all that is read, so windows cost no privacy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stream_dp.config.times import milliseconds, parse_time
from stream_dp.releases.estimates.differences import window_intervals, window_sd
from stream_dp.releases.estimates.showings import Showing
from stream_dp.releases.topic import WholeRelease

if TYPE_CHECKING:
    from stream_dp.releases.subscription import Subscription

_START = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"([1-9][0-9]{0,8})([smhd]?)")


@dataclass(frozen=True)
class Span:
    """How far a window reaches back: so many rounds, or so many milliseconds.  One of the two is 0."""

    rounds: int = 0
    milliseconds: int = 0

    @classmethod
    def of(cls, span: str | int | timedelta) -> Span:
        """From "90s", "5m", "1h", "7d", a timedelta, or a number of rounds such as 1000 or "1000".

        Raises ValueError for anything else.
        """
        if isinstance(span, timedelta) and span >= timedelta(milliseconds=1):
            return cls(milliseconds=span // timedelta(milliseconds=1))
        found = _SPAN.fullmatch(str(span)) if isinstance(span, str | int) else None
        if found is None:
            raise ValueError(
                f"a window is a time such as 90s, 5m, 1h or 7d, or a number of rounds, not {span!r}"
            )
        number, unit = int(found[1]), found[2]
        return cls(milliseconds=number * _UNITS[unit] * 1000) if unit else cls(rounds=number)

    def begins(self, release: WholeRelease) -> int:
        """Where a window that ends with this release begins: a round, or milliseconds since 1970."""
        return release.round - self.rounds if self.rounds else self.clock(release) - self.milliseconds

    def clock(self, release: WholeRelease) -> int:
        """What is compared with that."""
        return release.round if self.rounds else milliseconds(parse_time(release.ts))


@dataclass(frozen=True)
class Window:
    """How often each label occurred since an older release of the same epoch, with noise; largest count first.

    `counts`, `low` and `high`, the 95% interval, are of shape (labels,), and `sd` is that of the noise in every count.
    `since` is the older release, None where the window begins with the epoch.  `complete`: the window reaches as far
    back as was asked for.  Labels that were not shown at its beginning are `new`: what they had then is not known.
    """

    release: WholeRelease
    since: WholeRelease | None
    complete: bool
    labels: list[str]
    counts: NDArray[np.int64]
    sd: float
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    new: list[str]

    @property
    def histogram(self) -> dict[str, int]:
        """The noisy count of each label in the window, largest first."""
        return dict(zip(self.labels, self.counts.tolist(), strict=True))


class Windows:
    """The window behind each of a stream's releases, in order.  Close it at the end, or use it as a context."""

    def __init__(self, again: Callable[[str | int | datetime, int | None], Subscription], span: Span) -> None:
        """`again(start, epoch)` opens another reader of the same releases."""
        self._again = again
        self._span = span
        self._trail: _Trail | None = None

    def window(self, release: WholeRelease) -> Window:
        """That which ends with this release, which is later than the one before."""
        if self._trail is None:
            self._trail = self._start(release)
        begins = self._span.begins(release)
        older = self._trail.last_until(lambda earlier: self._is_before(earlier, release, begins))
        complete = older is not None
        if older is None and not _begins_epoch(oldest := self._trail.peek()):
            older = oldest  # what came before it is no longer kept
        if older is not None and (older.nonce != release.nonce or older.round >= release.round):
            complete, older = False, None
        return window_between(release, older, complete)

    def close(self) -> None:
        """Leave the broker."""
        if self._trail is not None:
            self._trail.close()

    def __enter__(self) -> Windows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_before(self, earlier: WholeRelease, release: WholeRelease, begins: int) -> bool:
        if earlier.epoch != release.epoch:
            return earlier.epoch < release.epoch
        return self._span.clock(earlier) <= begins

    def _start(self, release: WholeRelease) -> _Trail:
        """A second reader that stands at or before the window's beginning, as far as the topic reaches."""
        begins = self._span.begins(release)
        if self._span.milliseconds:
            return _Trail(self._again(_START + timedelta(milliseconds=max(0, begins)), None))
        back = 0
        while True:
            trail = _Trail(self._again(max(1, begins - back), release.epoch))
            if begins - back <= 1 or trail.peek().round <= begins:
                return trail
            trail.close()
            back = max(2 * back, release.round - (release.previous or 0))


def _begins_epoch(release: WholeRelease) -> bool:
    """Is no release of its epoch before this one?  Those of old epochs do not say which one was."""
    return release.previous == 0 or (release.previous is None and release.round == 1)


class _Trail:
    """A reader that can look at the next release before it takes it."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._next: WholeRelease | None = None
        self._last: WholeRelease | None = None

    def peek(self) -> WholeRelease:
        if self._next is None:
            self._next = next(self._subscription)
        return self._next

    def last_until(self, is_before: Callable[[WholeRelease], bool]) -> WholeRelease | None:
        """The last release for which that holds; a later one for which it does not has to be there."""
        while is_before(self.peek()):
            self._last, self._next = self._next, None
        return self._last

    def close(self) -> None:
        self._subscription.close()


def window_between(release: WholeRelease, older: WholeRelease | None, complete: bool = True) -> Window:
    """The counts from `older`, an earlier release of the same epoch, or from the epoch's beginning, to `release`.

    Raises ValueError where the two are of different epochs.
    """
    if older is None:
        low, high = release.intervals()
        counts = np.array(release.counts, np.int64)
        return Window(release, None, complete, list(release.labels), counts, release.sd, low, high, [])
    if older.nonce != release.nonce or older.round > release.round:
        raise ValueError("a window is between two releases of one epoch, the older one first")
    before = older.histogram
    labels = [label for label in release.labels if label in before]
    now = release.histogram
    counts = np.array([now[label] - before[label] for label in labels], np.int64)
    shown = (
        [_seen_at(release.showings[label], older, before[label]) for label in labels]
        if release.showings
        else []
    )
    low, high = window_intervals(release, older, shown, counts, 0.95)
    order = np.argsort(-counts, kind="stable")
    return Window(
        release,
        older,
        complete,
        [labels[place] for place in order],
        counts[order],
        window_sd(release, older.round),
        low[order],
        high[order],
        [label for label in release.labels if label not in before],
    )


def _seen_at(showing: Showing, older: WholeRelease, count: int) -> Showing:
    """Of a label that the reader saw later than at the older end: it was shown then, nobody can say since when."""
    if showing.round <= older.round:
        return showing
    return Showing(older.round, count, older.sd, older.tau, showing.step, first=False)


def windows_of(subscription: Subscription, span: Span) -> Iterator[Window]:
    """The window behind each release that a subscription gives."""
    with Windows(subscription.again, span) as windows:
        for release in subscription:
            yield windows.window(release)
