"""The web application of one stream: a page, frames for it, and a JSON API (static/openapi.json describes it)."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path

import anyio
import msgspec
from kafka.errors import KafkaError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles

from stream_dp.config.times import parse_time
from stream_dp.dashboard.answers import FrameRelease, Problem, StreamSummary, ToldRelease
from stream_dp.dashboard.earlier import EarlierEpochs
from stream_dp.dashboard.frames import Frames, age_of
from stream_dp.dashboard.guarantee import guarantee, protects
from stream_dp.dashboard.protection import EMBEDDED, STATEMENT, BasicAuth, SafeHeaders
from stream_dp.dashboard.reader import Reader
from stream_dp.dashboard.told_totals import told_totals
from stream_dp.dashboard.windows import TooManySpans, Windows
from stream_dp.kafka.log import LogRefused
from stream_dp.releases.estimates.intervals import whole_intervals
from stream_dp.releases.release import Release
from stream_dp.releases.windows import Span

MOST_VIEWERS = 1_000
MOST_LABELS = 100
"""Of one question for the history."""

MOST_LARGEST = 3
"""Labels that the index names of each stream."""

_MOST_LOOKUPS = 8  # questions for a past round that wait for their turn
STATIC = Path(__file__).parent / "static"


class NoStatement(Exception):
    """A statement cannot be written now; the message says why, in one sentence."""


class Dashboard:
    """The answers to every request.  `reader` has to run for them to be about anything.

    `statement` writes the page for those who run the stream, if they are to have it; raises `NoStatement`.
    """

    def __init__(self, reader: Reader, statement: Callable[[], str] | None = None) -> None:
        self.reader = reader
        self._statement = statement
        self.frames = Frames(reader.board, reader.stream)
        self.windows = Windows(reader.board, reader.archive)
        self.earlier = EarlierEpochs(reader.archive)
        self._lookups = 0

    def app(self, login: tuple[str, str] | None = None, embedders: Sequence[str] = ()) -> Starlette:
        """The ASGI application, behind `login` (name and password) if there is one.

        `embedders`: the origins whose pages may embed the chart.
        """
        return guarded(self.routes(), self.runs, login, embedders)

    def routes(self, one_of_several: bool = False) -> list[BaseRoute]:
        """The page, its files and the API; with a link to the index where it is `one_of_several`."""
        files: list[BaseRoute] = [Mount("/", StaticFiles(directory=STATIC, html=True))]
        marks = {"place": "one-of-several"} if one_of_several else {}
        if self._statement is not None:
            marks["operators"] = ""
            files.insert(0, Route(STATEMENT, self.statement))
        if marks:
            files.insert(0, Route("/", lambda _: HTMLResponse(_marked(**marks))))
        return [
            Route("/api/v1/release/latest", self.latest),
            Route("/api/v1/release", self.release),
            Route("/api/v1/window", self.window),
            Route("/api/v1/history", self.history),
            Route("/api/v1/results", self.results),
            Route("/api/v1/stream", self.stream),
            Route("/api/v1/streams", self.streams),
            Route(EMBEDDED, self.embedded),
            Route("/livez", self.alive),
            Route("/readyz", self.ready),
            Mount("/", GZipMiddleware(Router(files))),
        ]

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        """Read the stream and make frames of it, until the block ends."""
        self.reader.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.frames.follow)
            yield
            self.close()
            tasks.cancel_scope.cancel()
        await run_in_threadpool(self.reader.stop)

    async def latest(self, _: Request) -> Response:
        """The newest release."""
        release = self.reader.board.release
        return _problem(404, "nothing has been released yet") if release is None else self._released(release)

    async def release(self, request: Request) -> Response:
        """The newest release at or before a round, or of a moment, read from the topic."""
        try:
            at, epoch = _place(request.query_params)
        except ValueError as mistake:
            return _problem(400, str(mistake))
        return await self._looked_up(at, epoch, self._released)

    async def window(self, request: Request) -> Response:
        """How often each label occurred lately and what rises and falls, up to now or to a release of the past."""
        asked = request.query_params
        try:
            span = Span.of(asked.get("span", ""))
            place = _place(asked) if "round" in asked or "at" in asked else None
        except ValueError as mistake:
            return _problem(400, str(mistake))
        if place is not None:
            return await self._looked_up(*place, lambda release: _raw(self.windows.behind(release, span)))
        try:
            body = await self.windows.newest(span)
        except TooManySpans:
            return _problem(503, "too many different windows at once: ask again in a moment")
        except (KafkaError, LogRefused) as failure:
            return _unread(failure)
        return _problem(404, "nothing has been released yet") if body is None else _raw(body)

    async def _looked_up(
        self, at: int | datetime, epoch: int | None, answer: Callable[[Release], Response]
    ) -> Response:
        """What a release of the past gives; both are found in a thread."""

        def look() -> Response:
            found = self.reader.archive.find(at, epoch)
            if found is not None:
                return answer(found)
            what = f"a release of {f'round {at}' if isinstance(at, int) else at.isoformat()} or before"
            of = "" if epoch is None else f" of epoch {epoch}"
            return _problem(404, f"the topic does not hold {what}{of}")

        return await self._in_turn(look)

    async def _in_turn(self, look: Callable[[], Response]) -> Response:
        """What a look at servers gives, in a thread, if not too many wait for theirs."""
        if self._lookups >= _MOST_LOOKUPS:
            return _problem(503, "too many questions at once: ask again in a moment")
        self._lookups += 1
        try:
            return await run_in_threadpool(look)
        except (KafkaError, LogRefused) as failure:
            return _unread(failure)
        except NoStatement as reason:
            return _problem(503, str(reason))
        finally:
            self._lookups -= 1

    def _released(self, release: Release) -> Response:
        """A release by count, its 95% intervals and totals, and what it guarantees in words."""
        release = release.largest_first()
        low, high = whole_intervals(release)
        guaranteed = guarantee(release, self.reader.board.is_unmetered(release))
        told = msgspec.structs.asdict(release) | told_totals(release)
        return json_answer(
            ToldRelease(
                **told,
                low=low,
                high=high,
                protects=protects(release),
                guarantee=guaranteed,
                counted=release.counts_what,
            )
        )

    async def history(self, request: Request) -> Response:
        """How the counts of some labels grew in the newest epoch or in one before, in at most 128 steps."""
        asked, newest = request.query_params, self.reader.board.release
        labels = asked.getlist("label")
        if not 1 <= len(labels) <= MOST_LABELS:
            return _problem(400, f"name 1 to {MOST_LABELS} labels: /api/v1/history?label=a&label=b")
        try:
            epoch = _number(asked, "epoch") if "epoch" in asked else None
        except ValueError as mistake:
            return _problem(400, str(mistake))
        if epoch is None or newest is None or epoch == newest.epoch:
            return json_answer(self.reader.board.series(labels))
        if epoch > newest.epoch:
            return _problem(404, f"epoch {epoch} has not begun: the newest is {newest.epoch}")
        nonce, number = newest.nonce, epoch
        return await self._in_turn(lambda: json_answer(self.earlier.history(nonce, number).series(labels)))

    async def results(self, _: Request) -> Response:
        """The results of one-shot jobs, newest first."""
        return json_answer(self.reader.board.results)

    async def streams(self, _: Request) -> Response:
        """How the stream is, as one of those that this place has."""
        return json_answer([self.summary("./")])

    def summary(self, address: str) -> StreamSummary:
        """How the stream is at this moment, for an index from which its page is at `address`."""
        view = self.reader.board.view(time.monotonic())
        release = view.release
        largest = [] if release is None else release.largest_first().labels[:MOST_LARGEST]
        grew = self.reader.board.series(largest[:1])
        return StreamSummary(
            stream=self.reader.stream,
            address=address,
            state=view.state,
            age=age_of(view),
            delay=round(view.delay, 3),
            behind=view.behind,
            release=None if release is None else msgspec.convert(release, FrameRelease, from_attributes=True),
            released=None if release is None else len(release.labels),
            largest=largest,
            rounds=grew.rounds if largest else [],
            counts=grew.series[0].counts if largest else [],
            protects=None if release is None else protects(release),
            unmetered=view.unmetered,
        )

    def close(self) -> None:
        """End every viewer's stream."""
        self.frames.close()

    async def stream(self, _: Request) -> Response:
        """Server-sent events: the whole picture, then updates."""
        if self.frames.viewers >= MOST_VIEWERS:
            return _problem(503, "too many viewers: try again later")
        return StreamingResponse(
            self._events(),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def _events(self) -> AsyncIterator[bytes]:
        self.frames.viewers += 1
        try:
            yield b"retry: 1000\n\n"
            seen, frame = await self.frames.next(0)
            while frame:
                yield frame
                seen, frame = await self.frames.next(seen)
        finally:
            self.frames.viewers -= 1

    async def embedded(self, _: Request) -> Response:
        """The page with the chart alone, for a frame on another page."""
        page = _marked(place="embed")
        return HTMLResponse(page.replace("<head>", '<head><base target="_blank">'))

    async def statement(self, _: Request) -> Response:
        """What the stream guarantees, and what is spent and left, for those who run it."""
        write = self._statement
        assert write is not None
        return await self._in_turn(lambda: HTMLResponse(write(), headers={"Cache-Control": "no-store"}))

    async def alive(self, _: Request) -> Response:
        """That this process answers."""
        return Response("ok\n", media_type="text/plain")

    async def ready(self, _: Request) -> Response:
        """Whether the releases topic can be read."""
        if self.reader.is_ready():
            return Response("ok\n", media_type="text/plain")
        return Response("the releases topic cannot be read\n", 503, media_type="text/plain")


def guarded(
    routes: Sequence[BaseRoute],
    runs: Callable[[], AbstractAsyncContextManager[None]],
    login: tuple[str, str] | None,
    embedders: Sequence[str],
) -> Starlette:
    """An application with safe headers, behind `login` if there is one; `runs` is entered while it serves."""
    middleware = [Middleware(SafeHeaders, embedders=embedders)]
    if login is not None:
        middleware.append(Middleware(BasicAuth, user=login[0], password=login[1]))
    return Starlette(routes=routes, middleware=middleware, lifespan=lambda _: runs())


def _marked(**marks: str) -> str:
    """The page with marks that its styles know."""
    told = "".join(f' data-{name}="{value}"' for name, value in marks.items())
    return (STATIC / "index.html").read_text().replace('<html lang="en">', f'<html lang="en"{told}>')


def _place(asked: QueryParams) -> tuple[int | datetime, int | None]:
    """The round or the moment that a question names, and its epoch; raises ValueError with what to ask instead."""
    if ("round" in asked) == ("at" in asked):
        raise ValueError("say which round or which time: ?round=1000, or ?at=2026-01-31T12:00:00Z")
    epoch = _number(asked, "epoch") if "epoch" in asked else None
    if "round" in asked:
        return _number(asked, "round"), epoch
    try:
        return parse_time(asked["at"]), epoch
    except ValueError:
        raise ValueError(
            f"a time is written like 2026-01-31T12:00:00Z, not {asked['at'][:40]!r}; a + before a zone is %2B here"
        ) from None


def _number(asked: QueryParams, name: str) -> int:
    text = asked[name]
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0):
        raise ValueError(f"{name} is a whole number from 1 on, not {text[:40]!r}")
    return int(text)


def json_answer(value: object) -> Response:
    """An answer that is never kept, because the next one is another."""
    return _raw(msgspec.json.encode(value))


def _raw(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


def _unread(failure: KafkaError | LogRefused) -> Response:
    if isinstance(failure, LogRefused):
        return _problem(404, str(failure))
    return _problem(503, "Kafka does not answer: ask again in a moment")


def _problem(status: int, sentence: str) -> Response:
    return Response(
        msgspec.json.encode(Problem(sentence)),
        status,
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )
