"""`stream-dp dashboard`: a stream's releases on a live web page.  It reads public topics only."""

import json
import os
import signal
import socket
from string import ascii_letters, digits
from typing import Annotated
from urllib.parse import urlsplit

import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.config.connections import kafka_options
from stream_dp.config.reading import load_settings
from stream_dp.dashboard.server import serve

PASSWORD = "STREAM_DASHBOARD_PASSWORD"


def dashboard(
    settings: options.SettingsFile = None,
    stream: options.Stream = None,
    kafka: options.Kafka = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")
    ] = 8080,
    user: Annotated[
        str | None, typer.Option(help=f"Ask for this name and the password in {PASSWORD}.")
    ] = None,
    embed_in: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="Let pages of this site show the chart, such as https://www.example.org."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON, for machines.")] = False,
) -> None:
    """Show a stream's running histogram on a live web page, until stopped with Ctrl-C.

    It reads the topics of releases and of results, which are public, and nothing else.

    [bold]Examples[/]

      stream-dp dashboard --stream shop

      stream-dp dashboard --stream shop --port 0 --json

      stream-dp dashboard --stream shop --embed-in https://www.example.org

      STREAM_DASHBOARD_PASSWORD=... stream-dp dashboard --stream shop --host 0.0.0.0 --user anna
    """
    found = load_settings(settings, stream=stream, kafka=kafka)
    login = _login(user)
    embedders = [_origin(each) for each in embed_in or []]
    kafka_options(found.kafka_address)  # a mistake in it is told before anything is served
    listener = listen(host, port)
    url = address(listener)
    told = json.dumps({"stream": found.stream, "url": url})
    typer.echo(told if as_json else f"Dashboard of {found.stream}: {url} (Ctrl-C ends it)")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as cleanly as Ctrl-C
    try:
        serve(listener, found.kafka_address, found.releases, found.results, login, embedders)
    except KeyboardInterrupt:
        return


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; raises `Mistake` if that cannot be."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no host name"
        raise Mistake(f"cannot listen on {host!r} ({reason}): change --host") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
    except OSError as error:
        listener.close()
        raise Mistake(f"cannot listen on {host}:{port} ({error.strerror}): change --port or --host") from None
    return listener


def address(listener: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


def _origin(text: str) -> str:
    """A site whose pages may embed the chart, as browsers compare it; raises `Mistake`."""
    found = urlsplit(text)
    origin = f"{found.scheme}://{found.netloc}"
    plain = set(found.netloc) <= set(ascii_letters + digits + ".-:[]")
    if found.scheme not in ("http", "https") or not found.netloc or not plain or text.rstrip("/") != origin:
        raise Mistake(
            f"--embed-in takes a site such as https://www.example.org, without a path, not {text!r}"
        )
    return origin


def _login(user: str | None) -> tuple[str, str] | None:
    if user is None:
        return None
    password = os.environ.get(PASSWORD, "")
    if not password or ":" in user:
        raise Mistake(f"--user needs a name without a colon, and the password in the variable {PASSWORD}")
    return user, password
