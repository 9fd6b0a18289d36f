"""What every answer carries to keep a page safe, and the optional password in front of it."""

import base64
import binascii
from collections.abc import Sequence
from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

EMBEDDED = "/embed"
"""The page that pages of other sites may show in a frame, if they are named."""

STATEMENT = "/statement"
"""A page without scripts, whose styles are in it."""

COMPONENT = "/stream-dp-chart.js"
"""The script that they load for it: it holds no data, and is everybody's."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_OF_STATEMENT = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_NOBODY = "frame-ancestors 'none'"
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_OPEN_PATHS = ("/livez", "/readyz")  # probes have no password, and these say nothing but yes or no


class SafeHeaders:
    """ASGI middleware: sets the security headers on every answer, and that browsers ask again for what they keep."""

    def __init__(self, app: ASGIApp, embedders: Sequence[str] = ()) -> None:
        """`embedders`: the origins whose pages may show the page at `EMBEDDED`."""
        self._app = app
        allowed = CONTENT_SECURITY_POLICY.replace(_NOBODY, " ".join(["frame-ancestors 'self'", *embedders]))
        self._own = {
            EMBEDDED: {"Content-Security-Policy": allowed},
            STATEMENT: {"Content-Security-Policy": _OF_STATEMENT},
            COMPONENT: {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        last = (
            "/" + scope.get("path", "").rpartition("/")[2]
        )  # each of several streams has such a page and script
        chosen = _HEADERS | self._own.get(last, {})

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in chosen.items():
                    headers[name] = value
                headers.setdefault(
                    "Cache-Control", "no-cache"
                )  # files: ask again, get them when they have changed
            await send(message)

        await self._app(scope, receive, send_safely)


class BasicAuth:
    """ASGI middleware: lets nobody in without the name and the password, except probes."""

    def __init__(self, app: ASGIApp, user: str, password: str) -> None:
        self._app = app
        self._expected = f"{user}:{password}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS or self._is_known(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        challenge = {"WWW-Authenticate": 'Basic realm="stream-dp", charset="UTF-8"'}
        await PlainTextResponse("name and password, please", 401, challenge)(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        scheme, _, coded = headers.get("authorization", "").partition(" ")
        try:
            given = base64.b64decode(coded, validate=True)
        except (binascii.Error, ValueError):
            return False
        return scheme.lower() == "basic" and compare_digest(given, self._expected)
