"""`stream-dp check`: would a worker start here, and would what it keeps survive?  It makes and changes nothing."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stream_dp.cli import options
from stream_dp.cli.checklist.finding import Finding
from stream_dp.cli.checklist.guarantee import noise, promise
from stream_dp.cli.checklist.sample import Sample, sampled
from stream_dp.cli.checklist.state import redis_and_state
from stream_dp.cli.checklist.topics import topics
from stream_dp.config.settings import Settings, SettingsError

_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failed": "[bold red]failed[/]"}


@options.grouped
def check(
    servers: options.Servers,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            metavar="N",
            min=1,
            max=100_000,
            help="Decode the newest N records, and count what they are; their content is not shown.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check settings, Kafka, Redis and noise before a worker starts; nothing is made or changed.

    What --sample counts is private, like the events: it is for operators.

    The exit status is 0 if a worker could start, with warnings or without, and 2 if something must be changed.

    [bold]Examples[/]

      stream-dp check --stream shop

      stream-dp check --settings stream.toml --json

      stream-dp check --stream shop --sample 1000
    """
    taken: Sample | None = None
    try:
        settings = servers.load()
        findings = list(_findings(settings))
        if sample is not None:
            taken, finding = sampled(settings, sample)
            findings.append(finding)
    except SettingsError as error:
        findings = [Finding("settings", "failed", str(error))]
    failed = any(finding.state == "failed" for finding in findings)
    if as_json:
        told: dict[str, object] = {"ok": not failed, "checks": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(told if taken is None else told | {"sample": asdict(taken)}))
    else:
        _print(findings)
    if failed:
        raise typer.Exit(2)


def _print(findings: list[Finding]) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for finding in findings:
        table.add_row(_MARKS[finding.state], f"[bold]{finding.name}[/]", escape(finding.detail))
    Console(highlight=False).print(table)


def _findings(settings: Settings) -> Iterator[Finding]:
    """The checklist, from what needs no server to what needs both."""
    items = f"{settings.items_per_unit:,} items per {settings.unit}"
    rounds = {"per-event": "a round at every event", "ticks": f"a round every {settings.tick_seconds:g} s"}
    every = rounds.get(settings.rounds) or f"a round {settings.rounds.replace('-', ' ')} events"
    yield Finding(
        "settings", "ok", f"stream {settings.stream!r}, privacy unit {settings.unit}, {items}, {every}"
    )
    yield noise(settings)
    yield promise(settings)
    yield from topics(settings)
    yield from redis_and_state(settings)
