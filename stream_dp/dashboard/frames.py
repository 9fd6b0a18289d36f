"""What viewers receive: one frame at a time, at most ten a second, the same bytes for all of them.

There is one newest frame and no queue.  A viewer who has the frame before it gets an update, anybody else the
whole picture, so a slow connection skips frames and never makes the server remember them.
Labels travel once and are numbers afterwards: all counts change with every round, because all noise does.
"""

import asyncio
import time

import msgspec

from stream_dp.dashboard.answers import Frame, FrameRelease
from stream_dp.dashboard.board import Board, BoardView
from stream_dp.dashboard.guarantee import guarantee, protects
from stream_dp.dashboard.told_totals import told_totals
from stream_dp.releases.estimates.intervals import whole_intervals
from stream_dp.releases.release import Release

SECONDS_PER_FRAME = 0.1
SECONDS_WITHOUT_NEWS = 5.0
"""A frame comes after this long in any case, so that a page notices a connection that is dead."""

BYTES_PER_SECOND = 1_000_000
"""What one viewer is sent at most: very large releases come less often."""

_SPARE_LABELS = 10_000


class Frames:
    """The newest frame of a board, for an event loop: `follow` makes them, `next` waits for them."""

    def __init__(self, board: Board, stream: str) -> None:
        self.viewers = 0
        self.made = 0
        self._board = board
        self._stream = stream
        self._number = 0
        self._update = self._whole = b""
        self._view: BoardView | None = None
        self._made_at = 0.0
        self._labels: list[str] = []
        self._ids: dict[str, int] = {}
        self._nonce = ""
        self._came = asyncio.Event()
        self._closed = False

    async def follow(self) -> None:
        """Make frames for as long as somebody watches."""
        while not self._closed:
            await asyncio.sleep(max(SECONDS_PER_FRAME, len(self._update) / BYTES_PER_SECOND))
            if self.viewers and self._is_due(time.monotonic()):
                self._make()

    def close(self) -> None:
        """End every viewer's stream."""
        self._closed = True
        self._came.set()

    async def next(self, seen: int) -> tuple[int, bytes]:
        """The number and the bytes of the newest frame, once that is not `seen`; 0 is nobody's.

        Returns no bytes when the server stops.
        """
        if not seen and (self._view is None or self._is_due(time.monotonic())):
            self._make()
        while self._number == seen and not self._closed:
            await self._came.wait()
        if self._closed:
            return seen, b""
        if seen and seen == self._number - 1:
            return self._number, self._update
        if not self._whole:
            self._whole = self._event("whole", self._content(None))
        return self._number, self._whole

    def _is_due(self, now: float) -> bool:
        old = now - self._made_at >= SECONDS_WITHOUT_NEWS
        return old or self._view is None or self._board.version != self._view.version

    def _make(self) -> None:
        now = time.monotonic()
        before, self._view, self._made_at = self._view, self._board.view(now), now
        self._number += 1
        self.made += 1
        whole = self._renumber()
        content = self._content(None if whole else before)
        self._update = self._event("whole" if whole else "update", content)
        self._whole = self._update if whole else b""
        self._came.set()
        self._came = asyncio.Event()

    def _renumber(self) -> bool:
        """Give up the labels' numbers for a new epoch, or when most of them are of no use any more."""
        release = self._view.release if self._view is not None else None
        if release is None:
            return False
        if release.nonce == self._nonce and len(self._labels) <= _SPARE_LABELS + 4 * len(release.labels):
            return False
        self._nonce, self._labels, self._ids = release.nonce, [], {}
        return True

    def _content(self, before: BoardView | None) -> Frame:
        """What is to be told to somebody who was told `before`, or nothing so far."""
        view = self._view
        assert view is not None
        frame = Frame(
            state=view.state,
            stream=self._stream,
            age=age_of(view),
            delay=round(view.delay, 3),
            behind=view.behind,
            rate=None if view.rate is None else round(view.rate, 2),
            history=view.history,
            viewers=self.viewers,
        )
        release = view.release
        if release is not None and (before is None or release is not before.release):
            self._tell(release, frame, all_labels=before is None)
        if release is not None and (
            before is None or before.release is None or before.unmetered != view.unmetered
        ):
            frame.guarantee = guarantee(release, view.unmetered)
            frame.protects = protects(release)
        if before is None or view.new != before.new:
            frame.new = view.new
        if before is None or view.results_version != before.results_version:
            frame.results = view.results
        return frame

    def _tell(self, release: Release, frame: Frame, all_labels: bool) -> None:
        """Write a release into a frame; without `all_labels`, only labels that have no number yet are named."""
        known, release = len(self._labels), release.largest_first()
        for label in release.labels:
            if label not in self._ids:
                self._ids[label] = len(self._labels)
                self._labels.append(label)
        frame.release = msgspec.convert(release, FrameRelease, from_attributes=True)
        frame.ids = [self._ids[label] for label in release.labels]
        frame.counts, frame.found = release.counts, release.found
        frame.low, frame.high = whole_intervals(release)
        totals = told_totals(release)
        frame.totals, frame.total_margins, frame.since = (
            totals[name] for name in ("totals", "total_margins", "since")
        )
        frame.labels = self._labels if all_labels else self._labels[known:]

    def _event(self, name: str, frame: Frame) -> bytes:
        """One message of a server-sent event stream."""
        return b"event: %b\nid: %d\ndata: %b\n\n" % (name.encode(), self._number, msgspec.json.encode(frame))


def age_of(view: BoardView) -> float | None:
    """Seconds since the newest release was written into its topic, None before there is one."""
    return max(0.0, round(time.time() - view.published, 3)) if view.release else None
