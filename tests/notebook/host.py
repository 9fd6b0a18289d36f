"""A page that shows a widget as a notebook does, without Jupyter: anywidget's model over HTTP, a comm behind it."""

import json
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import comm
from comm.base_comm import BaseComm

from tests.http_server import serving

_ALIVE_SECONDS = 2.0
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Notebook</title><link rel="icon" href="data:,"></head>
<body><main id="cell"></main><script type="module">
const state = await (await fetch("/state")).json();
const heard = new Map(), hear = (name) => heard.get(name) ?? heard.set(name, new Set()).get(name);
const model = {
  get: (name) => state[name],
  send: (content) => fetch("/to-kernel", { method: "POST", body: JSON.stringify(content) }),
  on: (name, listener) => hear(name).add(listener),
  off: (name, listener) => hear(name).delete(listener),
};
const { default: widget } = await import("/widget.js");
let leave = widget.render({ model, el: document.getElementById("cell") });
window.away = () => leave();
window.again = () => { leave = widget.render({ model, el: document.getElementById("cell") }); };
for (;;) {
  const messages = await (await fetch("/from-kernel")).json();
  for (const message of messages) for (const listener of hear("msg:custom")) listener(message, []);
}
</script></body></html>
"""


class Comm(BaseComm):
    """Keeps what the widget says for the page."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.said: queue.Queue[Any] = queue.Queue()
        super().__init__(*arguments, **named)

    def publish_msg(self, msg_type: str, data: Any = None, *_: Any, **__: Any) -> None:
        if msg_type == "comm_msg" and data["method"] == "custom":
            self.said.put(data["content"])


@contextmanager
def comms() -> Iterator[None]:
    """Widgets that are made in this block speak over such a comm."""
    before, comm.create_comm = comm.create_comm, Comm
    try:
        yield
    finally:
        comm.create_comm = before


@contextmanager
def shown(widget: Any) -> Iterator[str]:
    """The address of a page that shows a widget, which was made within `comms`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = answers[self.path]()
            self._answer(kind, body)

        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            widget.comm.handle_msg(
                {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
            )
            self._answer("text/plain", "")

        def _answer(self, kind: str, body: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # the page was left
                self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            pass

    said = widget.comm.said
    state = {name: getattr(widget, name) for name in ("page", "title", "height")}
    answers: dict[str, Callable[[], tuple[str, str]]] = {
        "/": lambda: ("text/html", _PAGE),
        "/state": lambda: ("application/json", json.dumps(state)),
        "/widget.js": lambda: ("text/javascript", str(widget._esm)),
        "/from-kernel": lambda: ("application/json", json.dumps(_some(said))),
    }
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


def _some(said: "queue.Queue[Any]") -> list[Any]:
    """What was said, or nothing after a while."""
    try:
        return [said.get(timeout=_ALIVE_SECONDS)]
    except queue.Empty:
        return []
