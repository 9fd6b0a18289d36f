"""Options that several commands share, so that they read and behave the same everywhere."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import typer

from stream_dp.cli.mistakes import Mistake
from stream_dp.config.file_kinds import KINDS
from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.privacy.charge import Unit

Number = TypeVar("Number", int, float)

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings", "-s", metavar="FILE", help="Settings file.  [default: stream.toml, if it exists]"
    ),
]
Stream = Annotated[str | None, typer.Option("--stream", help="Name of the stream; its topics begin with it.")]
Kafka = Annotated[str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Kafka's bootstrap address.")]
Redis = Annotated[str | None, typer.Option("--redis", metavar="URL", help="Address of Redis or Valkey.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Ledger = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="TOPIC",
        help="Kafka topic of the source's ledger; the first command about the source decides, and it never moves.",
        show_default="SOURCE.ledger",
    ),
]
Unmetered = Annotated[
    bool,
    typer.Option(
        "--unmetered",
        help="Run even if the data source has no budget, so that nothing limits what is released.",
    ),
]
DEFAULTS: dict[str, Any] = {field.name: field.default for field in msgspec.structs.fields(Settings)}
"""Of settings, by name."""

By = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who decides this.", show_default="this user on this machine"),
]
Window = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="ROUNDS",
        help="Instead of a horizon: count this many of the latest rounds (mechanism window).",
    ),
]
Protected = Annotated[
    Unit, typer.Option(help="What the guarantee protects: one event, or one user with all of their events.")
]
ShownRule = Annotated[
    Literal["kept", "each-round"],
    typer.Option(help="Which labels a round shows: those kept from earlier rounds, or its own."),
]
Discover = Annotated[
    str | None,
    typer.Option(
        metavar="default|every-round",
        help="When blt looks for new labels: at the default tests, or in every round.",
        show_default="default",
    ),
]
PublicFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help=f"A PUBLIC or made-up log, here or s3://bucket/key: {KINDS}."),
]
Public = Annotated[
    bool, typer.Option("--public", help="Everybody may see this log and whatever is computed from it.")
]
Runs = Annotated[int, typer.Option(min=1, help="Runs to average, each with a noise key of its own.")]
Every = Annotated[
    float, typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="Write at most once in so many seconds.")
]
RowFormat = Annotated[
    Literal["json", "connect"],
    typer.Option("--format", help="How rows are written; docs/clients.md says for whom."),
]
Beginning = Annotated[
    Literal["earliest", "latest"],
    typer.Option("--from", help="Where to begin if the topic holds nothing yet."),
]
TrustLog = Annotated[
    bool,
    typer.Option(
        "--trust-log",
        help="Where nothing is left to prove it: trust that the events topic is the log that was counted.",
    ),
]


@dataclass(frozen=True)
class Servers:
    """Which stream is meant, and where its servers are."""

    settings: SettingsFile = None
    stream: Stream = None
    kafka: Kafka = None
    redis: Redis = None

    def load(self) -> Settings:
        """The settings with what the options say above what the file says.  Raises `SettingsError`."""
        return load_settings(self.settings, stream=self.stream, kafka=self.kafka, redis=self.redis)


@dataclass(frozen=True)
class Subscriber:
    """Which stream is meant, for what reads its public topics."""

    settings: SettingsFile = None
    stream: Stream = None
    kafka: Kafka = None

    def load(self) -> Settings:
        """See `Servers.load`."""
        return load_settings(self.settings, stream=self.stream, kafka=self.kafka)


def settings_or_name(name: str, file: Path | None, kafka: str | None) -> Settings:
    """The settings there are; a topic that no stream counts needs none, and lends its name.  Raises `SettingsError`."""
    try:
        return load_settings(file, kafka=kafka)
    except SettingsError:
        if file is not None:
            raise
        return load_settings(stream=name, kafka=kafka)


def require_public(public: bool, command: str) -> None:
    """Refuse to compare with the truth of a log that somebody has not called public."""
    if not public:
        raise Mistake(
            f"on private data the output of {command} has no guarantee at all: add --public if everybody may see this "
            "log"
        )


def numbers(text: str, kind: Callable[[str], Number], option: str, form: str = "numbers") -> list[Number]:
    """Those of a list with commas between."""
    try:
        return [kind(word) for word in text.split(",")]
    except ValueError:
        raise Mistake(f"{option} takes {form} such as 1,2,4, not {text!r}") from None


def metered(settings: Settings, unmetered: bool) -> Settings:
    """The settings, with `unmetered` where the option says so."""
    return msgspec.structs.replace(settings, unmetered=settings.unmetered or unmetered)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of each dataclass among its parameters as options in the place of that parameter."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        each.name: each.annotation for each in signature.parameters.values() if is_dataclass(each.annotation)
    }

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    options: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name not in groups:
            options.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
            continue
        for each in fields(groups[parameter.name]):
            options.append(
                inspect.Parameter(
                    each.name, parameter.KEYWORD_ONLY, default=each.default, annotation=each.type
                )
            )
    run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]  # where typer looks
    return run
