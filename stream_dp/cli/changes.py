"""`stream-dp changes`: what changed from release to release, in a topic of its own."""

import json
from typing import Annotated

import typer
from rich.console import Console

from stream_dp.cli import options
from stream_dp.cli.reach import await_releases, require_kafka
from stream_dp.cli.stopping import until_stopped
from stream_dp.releases.changes import ChangesWriter

_POLL_SECONDS = 0.25


@options.grouped
def changes(
    *,
    source: options.Subscriber,
    rounds: Annotated[int | None, typer.Option(min=1, help="End after this many releases.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="At the end, print a JSON summary, for machines.")
    ] = False,
) -> None:
    """Write what changes from one release to the next into `<stream>.changes`, until stopped with Ctrl-C.

    It reads released values only, needs neither key nor Redis, and goes on where it stopped.

    [bold]Examples[/]

      stream-dp changes --stream shop

      stream-dp changes --stream shop --kafka broker:9092 --rounds 100 --json
    """
    found = source.load()
    console = Console(stderr=True, highlight=False)
    done = 0
    stopping = until_stopped()
    require_kafka(found.kafka)
    if await_releases(found, stopping):
        with ChangesWriter(found.kafka_address, found.stream, found.create_topics) as writer:
            console.print(f"Writing {found.stream}.changes; Ctrl-C ends it.")
            while not stopping.is_set() and (rounds is None or done < rounds):
                done += writer.write(_POLL_SECONDS)
    if as_json:
        typer.echo(json.dumps({"topic": f"{found.stream}.changes", "releases": done}))
    else:
        console.print(f"{done:,} releases done.")
