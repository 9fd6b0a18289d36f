"""`stream-dp check`: would a worker start here, and would what it keeps survive?"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.checklist.finding import Finding, tell
from stream_dp.cli.checklist.guarantee import guarantee, noise
from stream_dp.cli.checklist.rights import commands, granted, needed_rights, permitted
from stream_dp.cli.checklist.sample import sampled
from stream_dp.cli.checklist.state import redis_and_state
from stream_dp.cli.checklist.topics import topics
from stream_dp.config.settings import Settings, SettingsError


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
            help="Decode the newest N records and count the kinds; their content is not shown.",
        ),
    ] = None,
    rights: Annotated[
        bool,
        typer.Option(
            "--rights", help="List the rights in Kafka that each process of the stream needs, as commands."
        ),
    ] = False,
    grant: Annotated[
        bool,
        typer.Option(
            "--grant", help="Give these rights in Kafka, as a user who may alter ACLs, and check nothing."
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Check settings, Kafka, Redis and noise before a worker starts.  It changes nothing, unless --grant is given.

    What --sample counts is private, like the events: it is for operators.

    The exit status is 0 if a worker could start, with warnings or without, and 1 if something must be changed.

    [bold]Examples[/]

      stream-dp check --stream shop

      stream-dp check --settings stream.toml --json

      stream-dp check --stream shop --sample 1000

      stream-dp check --stream shop --rights

      stream-dp check --stream shop --grant
    """
    more: dict[str, object] = {}
    listed: list[str] = []
    try:
        settings = servers.load()
        if rights:
            more["rights"], listed = needed_rights(settings), list(commands(settings))
        findings = [granted(settings)] if grant else list(_findings(settings))
        if sample is not None:
            taken, finding = sampled(settings, sample)
            findings.append(finding)
            more |= {} if taken is None else {"sample": asdict(taken)}
    except SettingsError as error:
        findings = [Finding("settings", "failed", str(error))]
    tell(findings, as_json, listed, **more)


def _findings(settings: Settings) -> Iterator[Finding]:
    """The checklist, from what needs no server to what needs both."""
    items = f"{settings.items_per_unit:,} items per {settings.unit}"
    rounds = {"per-event": "a round at every event", "ticks": f"a round every {settings.tick_seconds:g} s"}
    every = rounds.get(settings.rounds) or f"a round {settings.rounds.replace('-', ' ')} events"
    yield Finding(
        "settings", "ok", f"stream {settings.stream!r}, privacy unit {settings.unit}, {items}, {every}"
    )
    yield noise(settings)
    yield guarantee(settings)
    yield from topics(settings)
    yield from permitted(settings)
    yield from redis_and_state(settings)
