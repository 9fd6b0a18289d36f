"""`stream-dp source`: which data source a topic or a file belongs to, and so whose budget it spends."""

import json
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import output, progress_bar
from stream_dp.cli.reach import require_kafka, require_redis
from stream_dp.config.connections import redis_client
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.epochs.file_names import file_key, file_name
from stream_dp.epochs.journaled_ledger import look
from stream_dp.epochs.registry import Kind, Registry, not_registered
from stream_dp.events.stored_files import stored_file
from stream_dp.privacy.keyed_noise import key_check

Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="A topic of events.")]
File = Annotated[
    str | None,
    typer.Option("--file", metavar="FILE", help="A file, or s3://bucket/key; it is known by its content."),
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Register which data source a topic or a file belongs to, and so whose budget it spends.

    [bold]Examples[/]

      stream-dp source register --topic shop.events

      stream-dp source register --file orders.parquet --source shop.events

      stream-dp source list
    """,
)


@dataclass(frozen=True)
class Where:
    """Where Kafka is: a stream need not be named."""

    settings: options.SettingsFile = None
    kafka: options.Kafka = None
    redis: options.Redis = None

    def load(self) -> "Settings":
        """The settings, with Kafka known to answer."""
        named = self.settings is not None or Path("stream.toml").exists()
        found = load_settings(
            self.settings, stream=None if named else "unnamed", kafka=self.kafka, redis=self.redis
        )
        require_kafka(found.kafka)
        return found


@app.command()
@options.grouped
def register(
    *,
    topic: Topic = None,
    file: File = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Whose budget it spends: the events topic that its data come from, or a name of its own.",
            show_default="the topic itself",
        ),
    ] = None,
    unit: Annotated[
        Literal["event", "user", "user-day"] | None,
        typer.Option(
            help="What the source counts per.", show_default="that of its ledger; else event for a topic"
        ),
    ] = None,
    by: options.By = None,
    ledger: options.Ledger = None,
    new_key: Annotated[
        bool,
        typer.Option(
            "--new-key", help="The key that names files is lost: every file has to be registered again."
        ),
    ] = False,
    where: Where,
    as_json: options.Json = False,
) -> None:
    """Say whose budget a topic or a file spends; it can be said once, and nothing moves to another source.

    A file is known by a keyed digest of its content, which tells nothing to anyone without the key, which is in Redis.
    A copy of another name is the same file, a changed one is not.
    Events that come from another source belong to that source: a budget of their own would be spent a second time.

    [bold]Examples[/]

      stream-dp source register --topic shop.events

      stream-dp source register --topic shop-eu.events --source shop.events

      stream-dp source register --file orders.parquet --source shop.events

      stream-dp source register --file online-retail.csv --source online-retail --unit user
    """
    _check_one(topic, file)
    chosen = source or topic
    if chosen is None:
        raise Mistake(
            "a file does not tell whose budget it spends: name its data source with --source, the events topic that it "
            "was exported from, or a name of its own"
        )
    settings = where.load()
    require_redis(settings.redis)
    registry = Registry(settings.kafka_address)
    with redis_client(settings.redis_address) as redis:
        counts = registry.unit_of(chosen) or look(settings.kafka_address, redis, chosen).state().unit
        key = None if file is None else file_key(registry, redis, may_create=True, anew=new_key)
    if unit is not None and counts not in (None, unit):
        raise Mistake(
            f"the data source {chosen!r} counts per {counts}, and the two units cannot be added: leave --unit out"
        )
    kind, name = _named(topic, file, key)
    if file is not None and unit is None and counts is None and registry.owner(kind, name) is None:
        raise Mistake(
            f"nobody has said whom the data source {chosen!r} protects: give --unit user, which protects all rows of a "
            "person together, or --unit event, which protects each row by itself"
        )
    called = PurePath(file).name if file is not None else None
    check = None if key is None else key_check(key)
    found = registry.register(
        kind,
        name,
        chosen,
        unit or counts or "event",
        by,
        called,
        settings.create_topics,
        key=check,
        ledger=ledger,
    )
    if as_json:
        typer.echo(json.dumps(_told(found)))
    else:
        typer.echo(
            f"The {kind} {called or name} spends the budget of {found.source}, which counts per {found.unit}."
        )


@app.command("list")
@options.grouped
def list_(where: Where, as_json: options.Json = False) -> None:
    """List the topics and files that are registered, and the data source of each.

    [bold]Examples[/]

      stream-dp source list

      stream-dp source list --kafka broker:9092 --json
    """
    registry = Registry(where.load().kafka_address)
    if as_json:
        typer.echo(json.dumps([_told(each) for each in registry.all()]))
        return
    table = Table("what", "data source", "unit", "by", "at", box=None, pad_edge=False)
    for each in registry.all():
        named = each.name if each.kind == "topic" else f"{each.called or 'a file'} ({each.name[:12]})"
        table.add_row(*map(escape, (f"{each.kind} {named}", each.source, each.unit, each.by, each.at)))
    output().print(table)


@app.command()
@options.grouped
def show(topic: Topic = None, file: File = None, *, where: Where, as_json: options.Json = False) -> None:
    """Show the data source of one topic or file.

    [bold]Examples[/]

      stream-dp source show --topic shop.events

      stream-dp source show --file orders.parquet --json
    """
    _check_one(topic, file)
    settings = where.load()
    registry, key = Registry(settings.kafka_address), None
    if file is not None:
        require_redis(settings.redis)
        with redis_client(settings.redis_address) as redis:
            key = file_key(registry, redis)
    kind, name = _named(topic, file, key)
    found = registry.owner(kind, name)
    if found is None:
        raise Mistake(not_registered(kind, topic or str(file)))
    if as_json:
        typer.echo(json.dumps(_told(found)))
    else:
        typer.echo(
            f"It spends the budget of {found.source}, which counts per {found.unit}: registered by {found.by} at "
            f"{found.at}."
        )


def _check_one(topic: str | None, file: str | None) -> None:
    if (topic is None) == (file is None):
        raise Mistake("name one of the two: --topic TOPIC or --file FILE")


def _named(topic: str | None, file: str | None, key: bytes | None) -> "tuple[Kind, str]":
    """The kind and the name in the registry of what the options name; without a key, no file has a name."""
    if file is None:
        return "topic", str(topic)
    if key is None:
        return "file", ""
    try:
        with progress_bar("Reading") as progress:
            name = file_name(stored_file(file), key, progress)
    except OSError as error:
        raise Mistake(f"cannot read {file}: {error.strerror}") from None
    return "file", name


def _told(found: Any) -> dict[str, Any]:
    return dict(msgspec.to_builtins(found))
