"""`stream-dp connect`: from the name of a topic to the settings of a stream, without an editor."""

import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import output
from stream_dp.cli.reach import require_kafka
from stream_dp.config.events_section import EventsSection, Format
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.planning.proposal import DAYS, Cost, as_toml, costs, rounds_for, section_of
from stream_dp.planning.public_records import distinct_items, public_shape
from stream_dp.planning.record_fields import fields_of, items_among, users_among
from stream_dp.planning.record_shapes import Shape
from stream_dp.planning.registered_schema import registered_schema
from stream_dp.planning.topic_survey import TopicSurvey, survey_topic

_FILE = Path("stream.toml")
_ITEMS = 4
_SERVERS = ("kafka", "redis", "noise_key")


@dataclass(frozen=True)
class Wishes:
    """What the user has said of the stream; None for what is to be proposed."""

    items: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Where the items of a record are, such as lines[*].sku."),
    ] = None
    user: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where the user of a record is, or $key.")
    ] = None
    where: Annotated[str | None, typer.Option(metavar="PATH", help="Which records count.")] = None
    unit: Annotated[str | None, typer.Option(help="Who is protected: event, or user.")] = None
    epsilon: Annotated[float, typer.Option(help="Epsilon of the guarantee.")] = 1.0
    delta: Annotated[float, typer.Option(help="Delta of the guarantee.")] = 1e-6
    items_per_unit: Annotated[
        int | None, typer.Option(min=1, help="How many items of an event, or of a user, are counted.")
    ] = None
    tick_seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds from the end of one round to the next.")
    ] = None


@dataclass(frozen=True)
class Registry:
    """Where schemas are registered."""

    schema_registry: Annotated[
        str | None, typer.Option(metavar="URL", help="Where schemas are registered.")
    ] = None
    registry_username: Annotated[str | None, typer.Option(help="User name for the registry.")] = None
    registry_password: Annotated[
        str | None, typer.Option(metavar="env:NAME|file:PATH", help="Where the password is.")
    ] = None


@dataclass(frozen=True)
class _Found:
    """What is known of the topic, and what may be proposed from that."""

    survey: TopicSurvey
    format: Format
    items: list[str]
    users: list[str]


@options.grouped
def connect(
    topic: Annotated[str, typer.Option(help="The topic to read.")],
    wishes: Wishes,
    registry: Registry,
    servers: options.Servers,
    public: Annotated[
        bool, typer.Option("--public", help="The records are public: look at the newest ones.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing settings file.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing and accept what is proposed.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Propose a stream that reads an existing topic, show what it costs, and write its settings file.

    Looks at the topic's configuration, its offsets and its registered schema, and at no record unless --public.
    Nothing is made in Kafka or Redis. Without a terminal it asks nothing.

    [bold]Examples[/]

      stream-dp connect --topic orders --items "lines[*].sku"

      stream-dp connect --topic orders --schema-registry http://localhost:8081 --yes

      stream-dp connect --topic orders --unit user --user customer.id --items "lines[*].sku" --yes --json
    """
    file = servers.settings or _FILE
    if file.exists() and not force:
        raise Mistake(f"{file} exists: name another file with --settings, or overwrite it with --force")
    base = _base(file, servers, topic)
    require_kafka(base.kafka)
    found = _look(base, topic, registry, public)
    asking = not yes and not as_json and is_terminal()
    wanted = _chosen(wishes, found, asking)
    settings = _settings(base, found, wanted, registry, public)
    text = as_toml(settings, _told(settings))
    compared = costs(settings)
    if not as_json:
        _show(found, settings, compared, text)
    if asking and not typer.confirm(f"Write {file}?", default=True):
        raise typer.Exit(1)
    file.write_text(text)
    if as_json:
        typer.echo(json.dumps(_as_dict(found, settings, compared, file)))
    else:
        typer.echo(f"Wrote {file}.  Next:\n\n" + "\n".join(f"  {line}" for line in _next(settings, file)))


def is_terminal() -> bool:
    """Whether there is somebody to be asked."""
    return sys.stdin.isatty()


def _base(file: Path, servers: options.Servers, topic: str) -> Settings:
    """Where the servers are: as the options, the environment, and a file that is written over say."""
    name = servers.stream or topic.removesuffix(".events").lstrip("._-")
    known = file if file.exists() else Path(os.devnull)
    return load_settings(known, stream=name, kafka=servers.kafka, redis=servers.redis)


def _look(base: Settings, topic: str, registry: Registry, public: bool) -> _Found:
    """Ask Kafka, the registry and, where they are public, the records."""
    survey = survey_topic(base.kafka_address, topic)
    shape: Shape = None
    form: Format = "json"
    if registry.schema_registry is not None:
        told = registered_schema(EventsSection(format="json-schema", items="*", **asdict(registry)), topic)
        if told is not None:
            form, shape = told
    if public and shape is None:
        shape = public_shape(base.kafka_address, topic, survey.partitions)
    fields = fields_of(shape)
    return _Found(survey, form, items_among(fields), users_among(fields))


def _chosen(wishes: Wishes, found: _Found, asking: bool) -> Wishes:
    """The wishes with everything that was open: what the user answers, or what is likeliest."""
    items = wishes.items or next(iter(found.items), None)
    user = wishes.user or next(iter(found.users), None)
    unit = wishes.unit or "event"
    epsilon = wishes.epsilon
    if asking:
        if found.items:
            typer.echo(f"Items could be: {', '.join(found.items)}")
        items = wishes.items or typer.prompt("Where are the items of a record?", default=items)
        unit = wishes.unit or typer.prompt("Who is protected, one event or one user?", default=unit)
        if unit == "user":
            user = wishes.user or typer.prompt("Where is the user of a record?", default=user or "$key")
        epsilon = typer.prompt("Which epsilon?", default=epsilon, type=float)
    if items is None:
        raise Mistake(
            "it is not known where the items of a record are: name them with --items, such as lines[*].sku, or give "
            "--schema-registry, or, if the records are public, look at the newest ones with --public"
        )
    if unit == "user" and user is None:
        raise Mistake(
            "it is not known where the user of a record is: give --user, such as customer.id or $key"
        )
    return replace(
        wishes, items=items, user=user if unit == "user" else wishes.user, unit=unit, epsilon=epsilon
    )


def _settings(base: Settings, found: _Found, wanted: Wishes, registry: Registry, public: bool) -> Settings:
    """The proposed settings, checked as a worker would.  Raises `SettingsError` or `EpochRefused`."""
    registered = asdict(registry) if found.format != "json" else {}
    section = EventsSection(
        topic=found.survey.topic,
        format=found.format,
        items=wanted.items,
        user=wanted.user,
        where=wanted.where,
        **registered,
    )
    most = wanted.items_per_unit
    if most is None and public and found.format == "json" and wanted.unit == "event":
        most = distinct_items(base.kafka_address, found.survey.topic, found.survey.partitions, section)
    values = {
        **{name: getattr(base, name) for name in _told_of_servers(base)},
        **rounds_for(found.survey, wanted.tick_seconds),
        "items_per_user" if wanted.unit == "user" else "items_per_event": most or _ITEMS,
        "stream": base.stream,
        "unit": wanted.unit,
        "mechanism": "blt",
        "epsilon": wanted.epsilon,
        "delta": wanted.delta,
        "events": msgspec.to_builtins(section),
    }
    try:
        settings = msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        raise Mistake(f"no stream can have these settings: {error}") from None
    decoder_of(Mapping.of(settings.mapping))
    Epoch.open(settings, 1, 0)
    return settings


def _told_of_servers(settings: Settings) -> list[str]:
    """The settings about servers that the file has to name."""
    default = Settings(stream=settings.stream)
    names = [name for name in settings.__struct_fields__ if name.startswith(_SERVERS)]
    return [
        name
        for name in names
        if name in ("kafka", "redis") or getattr(settings, name) != getattr(default, name)
    ]


def _told(settings: Settings) -> list[str]:
    """The settings that the file names."""
    bound = "items_per_user" if settings.unit == "user" else "items_per_event"
    ticks = ["tick_seconds"] if settings.rounds == "ticks" else []
    return [
        *("stream", *_told_of_servers(settings), "unit", "mechanism", "epsilon", "delta", "horizon", bound),
        *("rounds", *ticks),
    ]


def _next(settings: Settings, file: Path) -> list[str]:
    at = "" if file == _FILE else f" --settings {file}"
    return [
        f"stream-dp budget set --source {settings.data_source} --epsilon {2 * settings.epsilon:g} "
        f"--delta {10 * settings.delta:g}{at}",
        f"stream-dp check{at}",
        f"stream-dp worker{at}",
        f"stream-dp dashboard{at}",
        f"stream-dp table{at}",
    ]


def _as_dict(found: _Found, settings: Settings, compared: list[Cost], file: Path) -> dict[str, Any]:
    told = {name: each for name, each in msgspec.to_builtins(settings).items() if name in _told(settings)}
    return {
        "topic": asdict(found.survey),
        "candidates": {"items": found.items, "user": found.users},
        "settings": told | {"events": section_of(settings)},
        "costs": [asdict(each) for each in compared],
        "written": str(file),
        "next": _next(settings, file),
    }


def _show(found: _Found, settings: Settings, compared: list[Cost], text: str) -> None:
    """The preview: what was found, what is proposed, and what it costs."""
    survey, console = found.survey, output()
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_column()
    facts.add_column(overflow="fold")
    for name, fact in (
        ("topic", f"{survey.topic}: {survey.partitions} partition{'s' * (survey.partitions > 1)}"),
        ("records", f"{survey.records:,} now, about {survey.a_day:,} a day"),
        ("retention", _retention(survey)),
        ("rights", "unknown" if survey.rights is None else ", ".join(survey.rights).lower()),
        ("format", found.format),
        ("items", ", ".join(found.items) or "as you said"),
        ("users", ", ".join(found.users) or "unknown"),
    ):
        facts.add_row(f"[bold]{name}[/]", escape(fact))
    console.print(facts)
    table = Table("mechanism", "sd of a count", "shown from a count of", box=None, padding=(0, 2, 0, 0))
    for each in compared:
        mark = "  (proposed)" if each.mechanism == settings.mechanism else ""
        table.add_row(f"{each.mechanism}{mark}", f"{each.sd:,.0f}", f"{each.seen:,}")
    console.print(f"\nThe same guarantee with each mechanism, over {settings.horizon:,} rounds:\n")
    console.print(table)
    console.print(
        f"\nAn epoch of about {DAYS} days is epsilon {settings.epsilon:g}, delta {settings.delta:g} for every "
        f"{settings.unit}.  Proposed:\n"
    )
    typer.echo(text)


def _retention(survey: TopicSurvey) -> str:
    if survey.retention_days is None:
        return "unknown"
    if survey.retention_days < 0:
        return "forever: lost state can always be rebuilt"
    return f"{survey.retention_days:g} days: lost state can be rebuilt, and releases verified, only for that long"
