"""What the commands of one-shot jobs share: how an option is declared, and the options that all of them take."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.config.file_kinds import KINDS
from stream_dp.config.settings import Settings
from stream_dp.jobs.request import BadRequest

reading = partial(typer.Option, rich_help_panel="What to read")
guarantee = partial(typer.Option, rich_help_panel="What to guarantee")
showing = partial(typer.Option, rich_help_panel="What to show")
"""Each declares an option and puts it under this heading of the help."""

Epsilon = Annotated[float, guarantee(help="Epsilon of the guarantee.")]
EngineName = Annotated[
    Literal["local", "spark"],
    reading(
        "--engine",
        help="Where rows are read and counted: in this process, or by Apache Spark.  The result is the same.",
    ),
]


@dataclass(frozen=True)
class Job(options.Servers):
    """The options of every job: what to guarantee, what to read, and whether to run at all."""

    called: ClassVar[Mapping[str, str]] = {
        "k": "-k",
        "source.user": "--user",
        "source.item": "--item",
        "source.name": "--source",
    }
    """What the command calls fields of a request; other options have their names."""

    epsilon: Epsilon = 1.0
    delta: Annotated[
        float,
        guarantee(help="Delta of the guarantee."),
    ] = 1e-6
    unit: Annotated[
        Literal["user", "event"] | None,
        guarantee(
            help="What is protected: all of one user, or one event.", show_default="that of the data source"
        ),
    ] = None
    topic: Annotated[
        str | None,
        reading(metavar="TOPIC", help="Topic to read; without it the stream's."),
    ] = None
    start: Annotated[
        str,
        reading(
            "--from",
            metavar="PLACE",
            help="First record: an offset, a time such as 2026-01-31T12:00:00Z, or earliest.",
        ),
    ] = "earliest"
    to: Annotated[
        str,
        reading(metavar="PLACE", help="The record to end before, or latest."),
    ] = "latest"
    file: Annotated[
        str | None,
        reading(metavar="FILE", help=f"File instead of a topic, here or s3://bucket/key: {KINDS}."),
    ] = None
    user: Annotated[
        str | None,
        reading(metavar="NAME", help="Column of users in the file.", show_default="user"),
    ] = None
    item: Annotated[
        str | None,
        reading(metavar="NAME", help="Column of items. [default: item or items]"),
    ] = None
    engine: EngineName = "local"
    source: Annotated[
        str | None,
        reading(
            "--source",
            metavar="NAME",
            help="Refuse to run unless this data source's budget pays; see `stream-dp source list`.",
        ),
    ] = None
    id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the job. A job that was interrupted continues, and one that is done is shown again: "
            "either way it is charged once.",
            show_default="a new one",
        ),
    ] = None
    output: Annotated[
        Path | None,
        showing(metavar="FILE", help="Write the result to a file too: .parquet, .csv or .json."),
    ] = None
    publish: Annotated[
        bool,
        showing(
            "--publish",
            help="Write the result into the stream's <stream>.results too: PUBLIC, and shown by the dashboard.",
        ),
    ] = False
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show the cost and the budget that would be left; nothing is charged."
        ),
    ] = False
    unmetered: options.Unmetered = False

    as_json: options.Json = False

    def load(self) -> Settings:
        """The settings, overridden by the options.  Raises `SettingsError`."""
        return options.metered(super().load(), self.unmetered)

    def source_field(self) -> dict[str, Any]:
        """The field `source` of the request; --from and --to have no meaning for a file."""
        for option, given in (
            ("--item", self.item),
            ("--user", self.user),
            ("--id", self.id),
            ("--file", self.file),
        ):
            if given == "":
                raise Mistake(f"{option} is empty: name something, or leave it out")
        found: dict[str, Any] = {
            "topic": self.topic,
            "user": self.user,
            "item": self.item,
            "name": self.source,
        }
        if self.file is None:
            found |= {"from": _place(self.start), "to": _place(self.to)}
        elif (self.start, self.to) == ("earliest", "latest"):
            found["file"] = self.file
        else:
            raise Mistake(
                "--from and --to choose records of a topic, and a file is read whole: leave them out"
            )
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True)
class VotesJob(Job):
    """The options of a job on votes, whose rows name an example besides."""

    called: ClassVar[Mapping[str, str]] = {
        **Job.called,
        "source.query": "--query",
        "bins": "--labels",
    }

    query: Annotated[
        str | None,
        reading(metavar="NAME", help="Column of the examples in the file.", show_default="query"),
    ] = None

    def source_field(self) -> dict[str, Any]:
        """The field `source` of the request; columns have names of their own for votes."""
        found = super().source_field()
        if self.file is None or self.file.lower().removesuffix(".gz").endswith(".jsonl"):
            return found | ({} if self.query is None else {"query": self.query})
        return {"user": "teacher", "item": "label", "query": self.query or "query"} | found


def in_options(refused: BadRequest, job: Job) -> str:
    """Why the request was refused, with the options of the command instead of its fields."""
    told = str(refused)
    for field in sorted(set(refused.fields) - {""}, key=len, reverse=True):
        option = job.called.get(field, f"--{field.removeprefix('source.').replace('_', '-')}")
        told = re.sub(rf"(?<![\w'.-]){re.escape(field)}(?![\w'-])", option, told, count=1)
    return told


def _place(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text
