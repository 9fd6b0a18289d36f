"""`stream-dp mapping compare`: what another mapping would make of records that are there already."""

import json
from collections import Counter
from typing import Annotated

import msgspec
import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import require_kafka, require_topic
from stream_dp.cli.registry import decoding
from stream_dp.epochs.journal import EpochJournal
from stream_dp.events.event import BadRecord
from stream_dp.events.mapping.decoder import Decoder
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.planning.public_records import newest_records

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Compare the mapping of the running epoch with that of the settings.

    [bold]Examples[/]

      stream-dp mapping compare

      stream-dp mapping compare --settings new.toml --sample 10000
    """,
)

_KINDS = {
    "equal": "give equal events, or are no events by either",
    "changed": "give other items, or another user",
    "gained": "are events by the new mapping alone",
    "lost": "are events by the old mapping alone",
}


@app.callback()
def _group() -> None:
    """So that `compare` is a name and not left out, though it is the only one."""


@app.command()
@options.grouped
def compare(
    servers: options.Servers,
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", min=1, max=100_000, help="How many of the newest records.")
    ] = 1_000,
    as_json: options.Json = False,
) -> None:
    """Decode the newest records by the running epoch's mapping and by that of the settings, and count what changes.

    What it counts is private, like the events: it is for operators. It changes nothing.

    [bold]Examples[/]

      stream-dp mapping compare

      stream-dp mapping compare --settings new.toml --sample 10000 --json
    """
    settings = servers.load()
    require_kafka(settings.kafka)
    kafka, topic = settings.kafka_address, settings.events
    require_topic(kafka, topic)
    last = EpochJournal(settings).last if log.existing(kafka, settings.epochs) else None
    if last is None:
        raise Mistake(
            f"stream {settings.stream!r} has no epoch yet: start its worker, whose mapping is new in any case"
        )
    old, new = last.epoch.mapping or Mapping(), Mapping.of(settings.mapping) or Mapping()
    counts = Counter(dict.fromkeys(_KINDS, 0))
    with decoding(settings.mapping, old) as before, decoding(settings.mapping, new) as after:
        for record in newest_records(kafka, topic, log.partitions_of(kafka, topic), sample):
            counts[_kind(_seen(before, record), _seen(after, record))] += 1
    if as_json:
        typer.echo(json.dumps({"settings": new.changes_from(old), "records": counts.total(), **counts}))
        return
    changes = new.changes_from(old) or [f"the mapping is that of epoch {last.epoch.number}"]
    typer.echo("\n".join([*changes, "", f"Of the newest {counts.total():,} records of {topic}:"]))
    typer.echo("\n".join(f"{counts[kind]:>9,}  {meaning}" for kind, meaning in _KINDS.items()))


def _seen(decode: Decoder, record: Record) -> bytes:
    """What a record is, so that it can be compared; nothing for one that holds no items."""
    try:
        event = decode(record)
    except BadRecord:
        return b""
    return msgspec.json.encode([event.items, event.user]) if event.items else b""


def _kind(before: bytes, after: bytes) -> str:
    if before == after:
        return "equal"
    return "changed" if before and after else "gained" if after else "lost"
