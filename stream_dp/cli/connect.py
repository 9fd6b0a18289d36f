"""`stream-dp connect`: from the name of a topic to the settings of a stream, without an editor."""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer
from rich.markup import escape

from stream_dp.cli import options
from stream_dp.cli.asked_delay import asked_delay, delays_table
from stream_dp.cli.connect_options import Access, Records, Registry, Wishes
from stream_dp.cli.found_topic import Found, listed, look
from stream_dp.cli.key import write_key
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import facts, output, spaced
from stream_dp.cli.reach import require_kafka
from stream_dp.config.reading import load_settings, settings_of
from stream_dp.config.settings import Settings
from stream_dp.counters import EVERY_ROUND
from stream_dp.engine.epoch import Epoch
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.planning.comparison import Visibility, name_of, seen_with_each
from stream_dp.planning.delays import Delay, delays
from stream_dp.planning.proposal import DAYS, as_toml, host_of, rounds_for, section_of
from stream_dp.planning.public_records import distinct_items
from stream_dp.planning.record_fields import chosen, missing
from stream_dp.planning.topic_survey import TopicSurvey
from stream_dp.privacy.keyed_noise import new_key

_FILE = Path("stream.toml")
_ITEMS = 4
_SERVERS = ("kafka", "redis", "noise_key")


@options.grouped
def connect(
    topic: Annotated[str, typer.Option(help="The topic to read.")],
    wishes: Wishes,
    records: Records,
    registry: Registry,
    servers: options.Servers,
    access: Access,
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
    It lists the fields that it finds, and asks which one holds the items. Without a terminal it asks nothing.
    Nothing is made in Kafka or Redis.

    [bold]Examples[/]

      stream-dp connect --topic orders --items "lines[*].sku"

      stream-dp connect --topic orders --schema-registry http://localhost:8081

      stream-dp connect --topic orders --format csv --header "id,sku,price" --items sku

      stream-dp connect --topic shop.public.orders --change-data-capture inserts --items sku

      stream-dp connect --topic orders --items sku --kafka broker:9093 --kafka-security SASL_SSL
      --kafka-sasl-mechanism SCRAM-SHA-512 --kafka-username reader --kafka-password env:KAFKA_PASSWORD

      stream-dp connect --topic orders --items "lines[*].sku" --discover every-10m

      stream-dp connect --topic orders --unit user --user customer.id --items "lines[*].sku" --yes --json
    """
    file = servers.settings or _FILE
    if file.exists() and not force:
        raise Mistake(f"{file} exists: name another file with --settings, or overwrite it with --force")
    base = with_key_file(_base(file, servers, access, topic), file)
    require_kafka(base.kafka)
    found = look(base, topic, records, registry, public)
    asking = not yes and not as_json and is_terminal()
    wanted = _chosen(wishes, found, asking)
    settings = _settings(base, found, wanted, public)
    waits = delays(settings)
    if asking and wanted.discover is None and len(waits) > 1:
        answer = asked_delay(settings, waits)
        known = replace(wanted, discover=answer, items_per_unit=settings.items_per_unit)
        settings = _settings(base, found, known, public)
    text = as_toml(settings, _told(settings))
    compared = seen_with_each(settings)
    if not as_json:
        _show(found, settings, compared, [] if asking else waits)
        typer.echo(text)
    if asking and not typer.confirm(f"Write {file}?", default=True):
        raise typer.Exit(1)
    file.write_text(text)
    key = Path(settings.noise_key.removeprefix("file:"))
    if settings.noise_key.startswith("file:") and not key.exists():
        write_key(key, new_key())
    if as_json:
        typer.echo(json.dumps(_as_dict(found, settings, compared, waits, file)))
    else:
        kept = f" and the noise key, {key}: keep a copy of it" if key.exists() else ""
        typer.echo(
            f"Wrote {file}{kept}.  Next:\n\n" + "\n".join(f"  {line}" for line in _next(settings, file))
        )


def with_key_file(settings: Settings, file: Path) -> Settings:
    """The settings with a noise key beside their `file`, unless they say where it is."""
    if settings.noise_key != "redis":
        return settings
    return msgspec.structs.replace(settings, noise_key=f"file:{file.with_name(f'{settings.stream}.key')}")


def is_terminal() -> bool:
    """Whether there is somebody to be asked."""
    return sys.stdin.isatty()


def _base(file: Path, servers: options.Servers, access: Access, topic: str) -> Settings:
    """Where the servers are: as the options, the environment, and a file that is written over say."""
    name = servers.stream or topic.removesuffix(".events").lstrip("._-")
    known = file if file.exists() else Path(os.devnull)
    base = load_settings(known, stream=name, kafka=servers.kafka, redis=servers.redis, **asdict(access))
    if _holds_a_password(base.redis):
        raise Mistake(
            "the address of Redis holds a password, which no file may hold: leave it out there, and say where it is "
            "with --redis-password env:NAME or file:PATH"
        )
    return base


def _holds_a_password(url: str) -> bool:
    try:
        return urlsplit(url).password is not None or "password=" in url
    except ValueError:
        return "@" in url


def _chosen(wishes: Wishes, found: Found, asking: bool) -> Wishes:
    """The wishes with everything that was open: what the user answers, or what alone can be meant."""
    items, user, unit, epsilon = wishes.items, wishes.user, wishes.unit or "event", wishes.epsilon
    if items is None and len(found.fields) == 1:
        items = found.fields[0].path
    if asking:
        if wishes.items is None and found.fields:
            typer.echo("\n".join(f"{number:>4}  {each}" for number, each in enumerate(found.fields, 1)))
        which = "Which of these are the items, by number or path?"
        question = which if found.fields else "Where are the items of a record?"
        items = wishes.items or typer.prompt(question, default=items)
        unit = wishes.unit or typer.prompt("Who is protected, one event or one user?", default=unit)
        if unit == "user":
            user = wishes.user or typer.prompt("Where is the user of a record?", default="$key")
        epsilon = typer.prompt("Which epsilon?", default=epsilon, type=float)
    if items is None:
        raise Mistake(_which_items(found))
    if unit == "user" and user is None:
        raise Mistake(
            "it is not known where the user of a record is: give --user, such as customer.id or $key"
        )
    items = chosen(items, found.fields)
    user = None if user is None else chosen(user, found.fields)
    for option, path in (("--items", items), ("--user", user), ("--where", wishes.where)):
        if path is not None and (gone := missing(path, found.shape)):
            raise Mistake(
                f"{option} {path} leads to {gone}, which the registered schema does not have: its fields are "
                f"{listed(found.fields)}"
            )
    return replace(wishes, items=items, user=user, unit=unit, epsilon=epsilon)


def _which_items(found: Found) -> str:
    """What to say if nobody has said where the items are."""
    if found.fields:
        return f"say which field holds the items, with --items and its number or path: {listed(found.fields)}"
    if "schema_registry" in found.events:
        return "the registered schema names no fields: say where the items are with --items, such as lines[*].sku"
    return (
        "it is not known where the items of a record are: name them with --items, such as lines[*].sku, or give "
        "--schema-registry, or, if the records are public, look at the newest ones with --public"
    )


def _settings(base: Settings, found: Found, wanted: Wishes, public: bool) -> Settings:
    """The proposed settings, checked as a worker would.  Raises `SettingsError` or `EpochRefused`."""
    events = {**found.events, "items": wanted.items, "user": wanted.user, "where": wanted.where}
    values = {
        **{name: getattr(base, name) for name in _told_of_servers(base)},
        **rounds_for(found.survey, wanted.tick_seconds),
        "stream": base.stream,
        "unit": wanted.unit,
        "mechanism": "blt",
        "discover": wanted.discover or "default",
        "epsilon": wanted.epsilon,
        "delta": wanted.delta,
        "events": {name: each for name, each in events.items() if each is not None},
    }
    bound = "items_per_event" if wanted.unit == "event" else "items_per_user"
    settings = settings_of({**values, bound: wanted.items_per_unit or _ITEMS})
    decoder_of(Mapping.of(settings.mapping))
    if wanted.items_per_unit is None and wanted.unit == "event":
        settings = msgspec.structs.replace(settings, items_per_event=_items_of(settings, found, public))
    if not (wanted.unit == "event" and _holds_one_item(settings, found)):  # else nothing is left out
        settings = msgspec.structs.replace(settings, cap_share=True)
    if wanted.discover is None:
        seen = {each.name: each.seen_mostly for each in seen_with_each(settings)}
        if seen.get("blt", 0) > seen.get(EVERY_ROUND, 0):  # of few rounds, tests come too late
            settings = msgspec.structs.replace(settings, discover="every-round")
    Epoch.open(settings, 1, 0)
    return settings


def _holds_one_item(settings: Settings, found: Found) -> bool:
    """Whether a record has one item at most."""
    section = settings.mapping
    assert section is not None
    if section.items in [each.path for each in found.single] or (section.items or "").startswith("$"):
        return True
    return section.format == "csv" and "*" not in (section.items or "") and section.items != "columns"


def _items_of(settings: Settings, found: Found, public: bool) -> int:
    """How many items of an event to count: 1 of what a record has one of, else what public records say."""
    section = settings.mapping
    assert section is not None
    if _holds_one_item(settings, found):
        return 1
    if public and not section.names_schemas:
        place = settings.kafka_address, found.survey.topic, found.survey.partitions
        return distinct_items(*place, section) or _ITEMS
    return _ITEMS


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
        *("stream", *_told_of_servers(settings), "unit", "mechanism", "discover", "epsilon", "delta"),
        *("horizon", bound, *["cap_share"] * settings.cap_share),
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


def _as_dict(
    found: Found, settings: Settings, compared: list[Visibility], waits: list[Delay], file: Path
) -> dict[str, Any]:
    told = {name: each for name, each in msgspec.to_builtins(settings).items() if name in _told(settings)}
    return {
        "topic": asdict(found.survey),
        "fields": [each._asdict() for each in found.fields],
        "settings": told | {"events": section_of(settings)},
        "costs": [
            {
                "mechanism": each.mechanism,
                "discover": each.discover,
                "sd": each.sd.mean,
                "seen": each.seen_mostly,
            }
            for each in compared
        ],
        "delays": [
            {"discover": each.discover, "rounds": each.rounds, "seen": each.seen_mostly} for each in waits
        ],
        "takes": host_of(found.survey, settings),
        "written": str(file),
        "next": _next(settings, file),
    }


def _show(found: Found, settings: Settings, compared: list[Visibility], waits: list[Delay]) -> None:
    """The preview: what was found, what is proposed, and what it costs; `waits` unless they were shown already."""
    survey, console = found.survey, output()
    known = (
        ("topic", f"{survey.topic}: {survey.partitions} partition{'s' * (survey.partitions > 1)}"),
        ("records", f"{survey.records:,} now, about {survey.a_day:,} a day"),
        ("retention", _retention(survey)),
        ("rights", "unknown" if survey.rights is None else ", ".join(survey.rights).lower()),
        ("format", found.events["format"]),
        ("it takes", host_of(survey, settings)),
        ("fields", listed(found.fields) or "unknown"),
    )
    console.print(facts((name, escape(fact)) for name, fact in known))
    table = spaced("mechanism", "sd of a count", "shown from a count of")
    for each in compared:
        mark = "  (proposed)" if each.name == name_of(settings) else ""
        table.add_row(f"{each.name}{mark}", f"{each.sd.mean:,.0f}", f"{each.seen_mostly:,}")
    console.print(f"\nThe same guarantee with each mechanism, over {settings.horizon:,} rounds:\n")
    console.print(table)
    if waits:
        console.print(
            "\nHow long may a new label stay unseen?  Set discover, or --discover, to what suits you:\n"
        )
        console.print(delays_table(settings, waits))
    console.print(
        f"\nAn epoch of about {DAYS} days is epsilon {settings.epsilon:g}, delta {settings.delta:g} for every "
        f"{settings.unit}.  Proposed:\n"
    )


def _retention(survey: TopicSurvey) -> str:
    if survey.retention_days is None:
        return "unknown"
    if survey.retention_days < 0:
        return "forever: lost state can always be rebuilt"
    return f"{survey.retention_days:g} days: lost state can be rebuilt, and releases verified, only for that long"
