"""`stream-dp dashboard` tells people and machines where the page is, or what is wrong, before it serves."""

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.cli.dashboard import PASSWORD


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The sockets on which it would have served."""
    listeners: list[socket.socket] = []
    monkeypatch.setattr("stream_dp.cli.dashboard.serve", lambda listener, *_: listeners.append(listener))
    return listeners


def test_machines_are_told_the_address_that_it_listens_on(served: list[socket.socket]) -> None:
    ran = CliRunner().invoke(app, ["dashboard", "--stream", "shop", "--port", "0", "--json"])
    [listener] = served
    port = listener.getsockname()[1]
    listener.close()
    assert json.loads(ran.stdout) == {"stream": "shop", "url": f"http://127.0.0.1:{port}/"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--port", "{taken}"], "change --port"),
        (["--host", "no.such.host.invalid"], "change --host"),
        (["--user", "anna"], PASSWORD),
        (["--embed-in", "https://a.example/page"], "--embed-in takes a site such as https://www.example.org"),
        (["--embed-in", "https://a.example; script-src *"], "--embed-in takes a site"),
        (["--embed-in", "*"], "--embed-in takes a site"),
        (["--settings", "{settings}"], "kafka_security"),
    ],
)
def test_a_mistake_ends_it_with_one_sentence(
    served: list[socket.socket], tmp_path: Path, options: list[str], sentence: str
) -> None:
    settings = tmp_path / "stream.toml"
    settings.write_text('kafka_username = "anna"\n')
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        words = [each.format(taken=taken, settings=settings) for each in ["--port", "0", *options]]
        ran = CliRunner().invoke(app, ["dashboard", "--stream", "x", *words], env={PASSWORD: None})
    assert (ran.exit_code, ran.stdout, served) == (2, "", [])
    assert sentence in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
