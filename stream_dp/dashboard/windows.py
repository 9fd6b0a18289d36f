"""What happened lately, for all who watch: the window that ends now, found once however many ask."""

import asyncio
import time
from dataclasses import dataclass

import msgspec
from starlette.concurrency import run_in_threadpool

from stream_dp.dashboard.archive import Archive
from stream_dp.dashboard.board import Board
from stream_dp.releases.release import Release
from stream_dp.releases.windows import Span

_SECONDS_BETWEEN = 0.5  # between two looks for the same window
_SHARE_OF_SPAN = 1 / 120  # while nothing is released, one by time begins later by so much at most
_MOST_SPANS = 8
"""So many are looked for at once, and so many answers are kept."""


class TooManySpans(Exception):
    """Too many different windows are asked for at once."""


@dataclass(frozen=True)
class _Answer:
    release: tuple[str, int]
    made_at: float
    body: bytes


class Windows:
    """For the server's event loop."""

    def __init__(self, board: Board, archive: Archive) -> None:
        self._board = board
        self._archive = archive
        self._answers: dict[Span, _Answer] = {}
        self._looking: dict[Span, asyncio.Task[bytes]] = {}

    async def newest(self, span: Span) -> bytes | None:
        """The window that ends with the newest release or, by time, now, as JSON; None before there is a release.

        It may be half a second old, and while nothing is released as old as a 120th of its length.
        Raises `TooManySpans`, KafkaError or `LogRefused`.
        """
        release = self._board.release
        if release is None:
            return None
        known = self._answers.get(span)
        if known is not None:
            age, is_same = time.monotonic() - known.made_at, known.release == (release.nonce, release.round)
            stays = span.rounds or age < _SHARE_OF_SPAN * span.milliseconds / 1_000
            if age < _SECONDS_BETWEEN or (is_same and stays):
                return known.body
        if span not in self._looking:
            if len(self._looking) >= _MOST_SPANS:
                raise TooManySpans
            self._looking[span] = asyncio.create_task(self._look(release, span))
        return await asyncio.shield(self._looking[span])

    async def _look(self, release: Release, span: Span) -> bytes:
        try:
            body = await run_in_threadpool(self.behind, release, span, int(time.time() * 1_000))
            self._answers.pop(span, None)
            self._answers[span] = _Answer((release.nonce, release.round), time.monotonic(), body)
            if len(self._answers) > _MOST_SPANS:
                del self._answers[next(iter(self._answers))]
            return body
        finally:
            del self._looking[span]

    def behind(self, release: Release, span: Span, now: int = 0) -> bytes:
        """That behind any release, or up to `now`, as JSON.  It reads the topic.  Raises KafkaError or `LogRefused`."""
        return msgspec.json.encode(self._archive.window(release, span, now))
