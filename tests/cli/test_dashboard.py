"""`stream-dp dashboard` tells people and machines where the page is, or what is wrong, before it serves."""

import json
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.cli.dashboard import PASSWORD
from stream_dp.dashboard.server import Source


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The sockets on which it would have served."""
    listeners: list[socket.socket] = []
    monkeypatch.setattr("stream_dp.cli.dashboard.serve", lambda listener, *_: listeners.append(listener))
    return listeners


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The broker and the releases topic of each stream that it would have shown."""
    found: list[tuple[str, str]] = []

    def serve(listener: socket.socket, sources: Sequence[Source], *_: object) -> None:
        listener.close()
        found.extend((str(each.kafka), each.releases) for each in sources)

    monkeypatch.setattr("stream_dp.cli.dashboard.serve", serve)
    return found


def test_machines_are_told_the_address_that_it_listens_on(served: list[socket.socket]) -> None:
    ran = CliRunner().invoke(app, ["dashboard", "--stream", "shop", "--port", "0", "--json"])
    [listener] = served
    port = listener.getsockname()[1]
    listener.close()
    assert json.loads(ran.stdout) == {"stream": "shop", "url": f"http://127.0.0.1:{port}/"}


def test_several_streams_of_one_broker(shown: list[tuple[str, str]]) -> None:
    words = ["--stream", "shop", "--stream", "news", "--kafka", "broker:9092", "--port", "0"]
    ran = CliRunner().invoke(app, ["dashboard", *words])
    assert shown == [("broker:9092", "shop.releases"), ("broker:9092", "news.releases")]
    assert ran.stdout.startswith("Dashboard of 2 streams: http://127.0.0.1:")


def test_several_settings_files_each_with_its_broker(shown: list[tuple[str, str]], tmp_path: Path) -> None:
    words = ["--port", "0", "--json"]
    for name in ("shop", "news"):
        file = tmp_path / f"{name}.toml"
        file.write_text(f'stream = "{name}"\nkafka = "{name}.example:9092"\n')
        words += ["--settings", str(file)]
    ran = CliRunner().invoke(app, ["dashboard", *words])
    assert shown == [("shop.example:9092", "shop.releases"), ("news.example:9092", "news.releases")]
    told = json.loads(ran.stdout)
    assert told["streams"] == [
        {"stream": name, "url": f"{told['url']}streams/{name}/"} for name in ("shop", "news")
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--port", "{taken}"], "change --port"),
        (["--host", "no.such.host.invalid"], "change --host"),
        (["--user", "anna"], PASSWORD),
        (["--operators"], "give --user, so that not everybody sees it"),
        (["--embed-in", "https://a.example/page"], "--embed-in takes a site such as https://www.example.org"),
        (["--embed-in", "https://a.example; script-src *"], "--embed-in takes a site"),
        (["--embed-in", "*"], "--embed-in takes a site"),
        (["--settings", "{settings}"], "kafka_security"),
        (["--stream", "x"], "the stream 'x' is named 2 times: name each once"),
        (["--settings", "{settings}", "--settings", "{settings}"], "leave --stream out"),
        (["--stream", "two words"], "--stream"),
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
