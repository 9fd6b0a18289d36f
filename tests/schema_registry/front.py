"""What stands in front of a registry, or in place of it: a server of HTTP that a test can tell what to answer.

It asks for a password and speaks TLS where it is told to, as the proxies do that companies put in front of theirs.
"""

import ssl
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError

import msgspec

Answer = tuple[int, bytes]
Answers = Callable[[str], Answer]
"""What is answered to the path of a question."""


def scripted(answers: Mapping[str, Any], status: int = 404) -> Answers:
    """Answers by their path: a status, bytes, or what is written as JSON.  `status` for all else."""

    def answer(path: str) -> Answer:
        found = answers.get(path)
        if found is None:
            return status, b"{}"
        if isinstance(found, int):
            return found, b"{}"
        return 200, found if isinstance(found, bytes) else msgspec.json.encode(found)

    return answer


def passed_on(address: str) -> Answers:
    """What the registry at `address` answers."""

    def answer(path: str) -> Answer:
        try:
            with urllib.request.urlopen(address + path, timeout=30) as found:
                return found.status, found.read()
        except HTTPError as error:
            return error.code, error.read()

    return answer


@dataclass
class Front:
    """A running one: `answers` may be changed at any time, `asked` are the paths of what was asked.

    Between two bytes it waits `drip_seconds`, with `drips_head` in the head of the answer too.
    """

    answers: Answers
    address: str = ""
    asked: list[str] = field(default_factory=list)
    drip_seconds: float = 0.0
    drips_head: bool = False


@contextmanager
def front(
    answers: Answers, login: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[Front]:
    """A `Front` on loopback, for whoever knows `login`."""
    running = Front(answers)
    expected = None if login is None else "Basic " + b64encode(":".join(login).encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def do_GET(self) -> None:
            running.asked.append(self.path)
            let_in = expected is None or self.headers["Authorization"] == expected
            status, content = running.answers(self.path) if let_in else (401, b"{}")
            for each in (
                b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000
                if running.drips_head and running.drip_seconds
                else b""
            ):
                self.wfile.write(bytes([each]))
                self.wfile.flush()
                time.sleep(running.drip_seconds)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if not running.drip_seconds:
                self.wfile.write(content)
            for each in content if running.drip_seconds else b"":
                self.wfile.write(bytes([each]))
                self.wfile.flush()
                time.sleep(running.drip_seconds)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that goes away in the middle is what some tests want."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    running.address = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
