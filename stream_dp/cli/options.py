"""Options that several commands share, so that they read and behave the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings", "-s", metavar="FILE", help="Settings file; without it stream.toml, where it exists."
    ),
]
Stream = Annotated[str | None, typer.Option("--stream", help="Name of the stream; its topics begin with it.")]
Kafka = Annotated[str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Kafka's bootstrap address.")]
Redis = Annotated[str | None, typer.Option("--redis", metavar="URL", help="Address of Redis or Valkey.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
