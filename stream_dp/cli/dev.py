"""`stream-dp dev`: the embedded Kafka and Redis, for trying out and for tests, started and stopped by hand."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.dev import servers

app = typer.Typer(
    help="""Start and stop an embedded Kafka and Redis, for trying things out and for tests.

    [bold]Examples[/]

      stream-dp dev up

      stream-dp dev status --json

      stream-dp dev down
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)

Folder = Annotated[Path, typer.Option(help="Where the servers keep their data and their logs.")]
DEFAULT_FOLDER = Path(".stream-dp/dev")


@app.command(epilog="Example: stream-dp dev up --folder /tmp/trial --kafka-port 19092 --redis-port 16379")
def up(
    folder: Folder = DEFAULT_FOLDER,
    kafka_port: Annotated[int, typer.Option(min=1, max=65535, help="Port for Kafka clients.")] = 9092,
    redis_port: Annotated[int, typer.Option(min=1, max=65535, help="Port for Redis clients.")] = 6379,
    as_json: options.Json = False,
) -> None:
    """Start both servers on 127.0.0.1; they run until `stream-dp dev down`."""
    try:
        started = servers.up(folder, kafka_port, redis_port)
    except OSError as error:
        raise Mistake(
            f"cannot keep data in {folder} ({error.strerror}): name another one with --folder"
        ) from None
    _print(folder, started, as_json)


@app.command(epilog="Example: stream-dp dev down --folder /tmp/trial")
def down(folder: Folder = DEFAULT_FOLDER, as_json: options.Json = False) -> None:
    """Stop the servers that `stream-dp dev up` started with the same folder; their data stay."""
    stopped = servers.down(folder)
    if not stopped:
        raise Mistake(f"nothing is running in {folder}: name the folder given to `dev up` with --folder")
    _print(folder, stopped, as_json)


@app.command(epilog="Example: stream-dp dev status --json")
def status(folder: Folder = DEFAULT_FOLDER, as_json: options.Json = False) -> None:
    """Say which servers run, and where; the exit code is 0 only if both do."""
    found = servers.status(folder)
    _print(folder, found, as_json)
    if not found or not all(server.running for server in found):
        raise typer.Exit(1)


def _print(folder: Path, found: list[servers.ServerStatus], as_json: bool) -> None:
    """The servers as they are now."""
    if as_json:
        rows = [
            {key: value for key, value in asdict(server).items() if key != "birth"}
            | {"running": server.running}
            for server in found
        ]
        typer.echo(json.dumps({"folder": str(folder), "servers": rows}))
        return
    if not found:
        typer.echo(f"Nothing is running in {folder}. Start both servers with: stream-dp dev up")
    for server in found:
        state = f"running, process {server.pid}" if server.running else "stopped"
        typer.echo(f"{server.name:<6} {server.address:<22} {state}")
