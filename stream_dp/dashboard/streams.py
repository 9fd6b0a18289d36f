"""Several streams by one server: an index of them, and below it the page of each."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from stream_dp.dashboard.app import STATIC, Dashboard, guarded, json_answer


class Streams:
    """The index at `/`, and each dashboard at `/streams/NAME/` with all that it has as the only one."""

    def __init__(self, dashboards: Sequence[Dashboard]) -> None:
        """`dashboards` in the order of the index; their streams have different names."""
        self._dashboards = {each.reader.stream: each for each in dashboards}

    def app(self, login: tuple[str, str] | None = None, embedders: Sequence[str] = ()) -> Starlette:
        """The ASGI application; the parameters are those of `Dashboard.app`."""
        routes: list[BaseRoute] = [
            Route("/", self.index),
            Route("/index.html", self.index),
            Route("/api/v1/streams", self.streams),
            Route("/livez", self.alive),
            Route("/readyz", self.ready),
        ]
        for name, dashboard in self._dashboards.items():
            routes.append(Route(f"/streams/{name}", self.with_slash, name=name))
            routes.append(Mount(f"/streams/{name}", routes=dashboard.routes(one_of_several=True)))
        routes.append(Mount("/", GZipMiddleware(StaticFiles(directory=STATIC))))
        return guarded(routes, self.runs, login, embedders)

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        """Read all streams until the block ends."""
        async with AsyncExitStack() as running:
            for each in self._dashboards.values():
                await running.enter_async_context(each.runs())
            yield

    def close(self) -> None:
        """End every viewer's stream."""
        for each in self._dashboards.values():
            each.close()

    async def index(self, _: Request) -> Response:
        """The page that lists the streams."""
        return FileResponse(STATIC / "streams.html")

    async def with_slash(self, request: Request) -> Response:
        """The address of a stream's page as its relative links need it, wherever a proxy serves it."""
        name = request.url.path.rpartition("/")[2]
        asked = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{name}/{asked}")

    async def streams(self, _: Request) -> Response:
        """How each stream is."""
        return json_answer([each.summary(f"streams/{name}/") for name, each in self._dashboards.items()])

    async def alive(self, _: Request) -> Response:
        """That this process answers."""
        return Response("ok\n", media_type="text/plain")

    async def ready(self, _: Request) -> Response:
        """Whether at least one stream can be read: one that is not there yet takes the others from nobody."""
        if any(each.reader.is_ready() for each in self._dashboards.values()):
            return Response("ok\n", media_type="text/plain")
        return Response("no releases topic can be read\n", 503, media_type="text/plain")
