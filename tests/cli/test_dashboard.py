"""`stream-dp dashboard` tells people and machines where the page is, before it serves."""

import json
import socket

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app


def test_machines_are_told_the_address_that_it_listens_on(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[socket.socket] = []
    monkeypatch.setattr("stream_dp.dashboard.server.serve", lambda listener, *_: served.append(listener))
    ran = CliRunner().invoke(app, ["dashboard", "--stream", "shop", "--port", "0", "--json"])
    [listener] = served
    port = listener.getsockname()[1]
    listener.close()
    assert json.loads(ran.stdout) == {"stream": "shop", "url": f"http://127.0.0.1:{port}/"}
