"""`stream-dp dashboard`: the releases of streams on a live web page.  It reads public topics only."""

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from string import ascii_letters, digits
from typing import Annotated
from urllib.parse import urlsplit

import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake, sentence
from stream_dp.cli.statement_page import html
from stream_dp.config.connections import kafka_options
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.dashboard.app import NoStatement
from stream_dp.dashboard.server import Source, serve

PASSWORD = "STREAM_DASHBOARD_PASSWORD"


def dashboard(
    settings: Annotated[
        list[Path] | None,
        typer.Option(
            "--settings",
            "-s",
            metavar="FILE",
            help="Settings file; several show several streams.  [default: stream.toml, if it exists]",
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="Name of the stream; several are shown with an index of them."),
    ] = None,
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
    operators: Annotated[
        bool,
        typer.Option("--operators", help="Show the budget too, from the ledger and Redis; needs --user."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON, for machines.")] = False,
) -> None:
    """Show running histograms on a live web page, until stopped with Ctrl-C.

    It reads the topics of releases, epochs and results, which are public, and nothing else.  Several streams get an
    index at /, and each its page at /streams/NAME/.  With --operators it also serves what `stream-dp statement` writes,
    and reads what that reads: run another one, without, for everybody else.

    [bold]Examples[/]

      stream-dp dashboard --stream shop

      stream-dp dashboard --stream shop --stream news

      stream-dp dashboard --settings shop.toml --settings news.toml

      stream-dp dashboard --stream shop --port 0 --json

      stream-dp dashboard --stream shop --embed-in https://www.example.org

      STREAM_DASHBOARD_PASSWORD=... stream-dp dashboard --stream shop --host 0.0.0.0 --user anna

      STREAM_DASHBOARD_PASSWORD=... stream-dp dashboard --stream shop --user anna --operators
    """
    found = _streams(settings or [], stream or [], kafka)
    login = _login(user)
    if operators and login is None:
        raise Mistake(
            "--operators shows who was charged for what: give --user, so that not everybody sees it"
        )
    embedders = [_origin(each) for each in embed_in or []]
    for each in found:
        kafka_options(each.kafka_address)  # a mistake in it is told before anything is served
    listener = listen(host, port)
    typer.echo(_told([each.stream for each in found], address(listener), as_json))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as cleanly as Ctrl-C
    try:
        sources = [
            Source(
                each.kafka_address,
                each.releases,
                each.results,
                statement_of_operators(each) if operators else None,
            )
            for each in found
        ]
        serve(listener, sources, login, embedders)
    except KeyboardInterrupt:
        return


def statement_of_operators(settings: Settings) -> Callable[[], str]:
    """What writes the statement of a stream, made anew each time."""
    from stream_dp.cli.statement import statement_of  # it loads Redis, which nobody else's page may

    def written() -> str:
        try:
            return html(statement_of(settings))
        except Exception as error:
            told = sentence(error)
            if told is None:
                raise
            raise NoStatement(told) from None

    return written


def _streams(files: list[Path], names: list[str], kafka: str | None) -> list[Settings]:
    """The streams to show: of each settings file one, or those that are named.  Raises `Mistake` or `SettingsError`."""
    if len(files) > 1 and names:
        raise Mistake(
            "each --settings names its stream: leave --stream out, or give one --settings for all of them"
        )
    if len(files) > 1:
        found = [load_settings(each, kafka=kafka) for each in files]
    else:
        file = files[0] if files else None
        given: list[str] | list[None] = names or [None]
        found = [load_settings(file, stream=each, kafka=kafka) for each in given]
    for name, times in Counter(each.stream for each in found).items():
        if times > 1:
            raise Mistake(f"the stream {name!r} is named {times} times: name each once")
    return found


def _told(streams: list[str], url: str, as_json: bool) -> str:
    """Where the page is, for people and for machines."""
    if len(streams) == 1:
        told = {"stream": streams[0], "url": url}
        return json.dumps(told) if as_json else f"Dashboard of {streams[0]}: {url} (Ctrl-C ends it)"
    if as_json:
        pages = [{"stream": each, "url": f"{url}streams/{each}/"} for each in streams]
        return json.dumps({"streams": pages, "url": url})
    return f"Dashboard of {len(streams)} streams: {url} (Ctrl-C ends it)"


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; raises `Mistake` if that cannot be."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a host name"
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
