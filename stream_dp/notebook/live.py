"""A live chart in a notebook: the dashboard's page in the output of a cell, with the dashboard's own answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, MutableMapping, Sequence
from concurrent.futures import Future
from functools import cache
from html import escape
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import anywidget
import orjson
import traitlets
from starlette.concurrency import run_in_threadpool

from stream_dp.config.connections import Kafka, kafka_options
from stream_dp.dashboard.app import Dashboard
from stream_dp.dashboard.board import Board
from stream_dp.dashboard.reader import Reader
from stream_dp.notebook.page import OWN, document
from stream_dp.releases.estimates.intervals import whole_intervals
from stream_dp.releases.history import history
from stream_dp.releases.release import Release
from stream_dp.releases.windows import Span

if TYPE_CHECKING:
    import pyarrow

_API = "/api/v1/"
_ROWS = 10  # of the table for those who see no widget
_LOOK_SECONDS = 1.0


def watch(
    kafka: Kafka,
    stream: str,
    *,
    labels: Sequence[str] = (),
    window: str | None = None,
    round: int | None = None,
    height: int = 720,
) -> LiveChart:
    """A live chart of `stream` for a notebook: what its dashboard shows, in the output of a cell.

        stream_dp.watch("localhost:9092", "shop")

    Bars with 95% intervals and the threshold, counts over time, windows, and a slider to look back.
    `labels` are pinned at first; `window` ranks by what happened lately, such as "5m"; `round` begins by looking back.
    The chart is `height` CSS pixels high.  Kafka and the topics need not be there yet.

    Raises ValueError for anything that is no window, and `SettingsError`.  `close` leaves the broker.
    """
    kafka_options(kafka)
    query = [("label", each) for each in labels]
    query += [] if window is None else [("window", str(Span.of(window)))]
    query += [] if round is None else [("round", str(round))]
    return LiveChart(kafka, stream, query, height)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop that answers for all widgets of this kernel, in a thread beside that of the cells."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="stream-dp-widgets", daemon=True).start()
    return loop


def _beside(work: Coroutine[Any, Any, None]) -> Future[None]:
    """Have this done in the thread of the widgets."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


class LiveChart(anywidget.AnyWidget):
    """What `watch` returns: display it.  `release` is the newest one, `history` how counts grew."""

    _esm = OWN / "widget.js"
    page = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int(720).tag(sync=True)

    def __init__(self, kafka: Kafka, stream: str, query: list[tuple[str, str]], height: int) -> None:
        self._stream = kafka, stream
        self._dashboard = Dashboard(Reader(kafka, f"{stream}.releases", f"{stream}.results", Board()))
        self._app = self._dashboard.app()
        self._is_open = True
        super().__init__(page=document(query), title=f"Live chart of {stream}", height=height)
        self.on_msg(self._asked)
        self._dashboard.reader.start()
        _beside(self._dashboard.frames.follow())

    @property
    def release(self) -> Release | None:
        """The newest release, None before there is one."""
        return self._dashboard.reader.board.release

    def history(self, **choices: Any) -> pyarrow.Table:
        """How counts grew, as a table: see `stream_dp.history`, which takes the same choices.

        chart.history(every="1h").to_pandas()
        """
        return history(*self._stream, **choices)

    def close(self) -> None:
        """Leave the broker; the picture goes."""
        if self._is_open:
            self._is_open = False
            _beside(self._leave()).result()
        super().close()

    def __del__(self) -> None:
        """Leave nothing to be done when the kernel ends: threads end with it."""

    async def _leave(self) -> None:
        self._dashboard.frames.close()
        await run_in_threadpool(self._dashboard.reader.stop)

    def _asked(self, _: object, message: object, __: object) -> None:
        match message:
            case {"view": str(view), "number": int(number), "question": str(question)}:
                _beside(self._reply(view, number, question))

    async def _reply(self, view: str, number: int, question: str) -> None:
        status, body = await self._answer(question)
        self.send({"view": view, "number": number, "status": status, "body": body})

    async def _answer(self, question: str) -> tuple[int, str]:
        """Answer as the dashboard's server does; `frame?seen=N` is the next event of its stream after number N."""
        asked = urlsplit(question)
        if asked.path == "frame":
            return await self._frame(int(parse_qs(asked.query)["seen"][0]))
        return await _got(self._app, _API + asked.path, asked.query)

    async def _frame(self, seen: int) -> tuple[int, str]:
        frames = self._dashboard.frames
        frames.viewers += 1
        try:
            number, event = await frames.next(seen)
        finally:
            frames.viewers -= 1
        fields = dict(line.split(": ", 1) for line in event.decode().splitlines() if line)
        if not fields:
            return 404, "{}"
        return 200, orjson.dumps({"kind": fields["event"], "number": number, "data": fields["data"]}).decode()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and for whoever cannot show it a table of the newest release."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        until = time.monotonic() + _LOOK_SECONDS
        while self.release is None and time.monotonic() < until:
            time.sleep(0.02)
        data, metadata = bundle
        return data | ({} if self.release is None else {"text/html": table(self.release)}), metadata


def table(release: Release) -> str:
    """The largest counts of a release as HTML."""
    release = release.largest_first()
    low, high = whole_intervals(release)
    rows = "".join(
        f"<tr><td>{escape(label)}</td><td>{count:,}</td><td>{least:,} – {most:,}</td></tr>"
        for label, count, least, most in zip(release.labels[:_ROWS], release.counts, low, high, strict=False)
    )
    return (
        f"<table><caption>{escape(release.stream)}, round {release.round:,}</caption>"
        f"<thead><tr><th>label</th><th>count</th><th>95% interval</th></tr></thead><tbody>{rows}</tbody></table>"
    )


async def _got(app: Any, path: str, query: str) -> tuple[int, str]:
    """What an ASGI application answers to GET, without a server between."""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
        "server": ("kernel", 0),
        "client": None,
    }
    status, body = 500, b""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await app(scope, receive, send)
    return status, body.decode()
