"""`stream-dp export`: what a stream released over time, as a file for DuckDB, Spark or a notebook."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import pyarrow.parquet
import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import require_kafka
from stream_dp.config.reading import load_settings
from stream_dp.releases.history import history


def export(
    parquet: Annotated[Path, typer.Option(help="The file to write; one that is there is replaced.")],
    settings: options.SettingsFile = None,
    stream: options.Stream = None,
    kafka: options.Kafka = None,
    every: Annotated[
        str,
        typer.Option(
            metavar="SPAN", help="One release of each 1m, 1h or 1d, or of so many rounds, its last one."
        ),
    ] = "1m",
    since: Annotated[
        datetime | None,
        typer.Option(help="From this moment on, in UTC.", show_default="the oldest release"),
    ] = None,
) -> None:
    """Write what a stream has released over time as a Parquet file, for DuckDB, Spark or a notebook.

    It has a row for each label and moment, with its 95% interval.  Released values are all that is read, so it costs no
    privacy.  A label that is missing at a moment was not shown then.

    [bold]Examples[/]

      stream-dp export --stream shop --parquet shop.parquet

      stream-dp export --stream shop --parquet shop.parquet --every 1h --since 2026-01-31
    """
    found = load_settings(settings, stream=stream, kafka=kafka)
    require_kafka(found.kafka)
    try:
        table = history(found.kafka_address, found.stream, every=every, since=since)
        pyarrow.parquet.write_table(table, parquet)
    except (ValueError, OSError) as mistake:
        raise Mistake(str(mistake)) from None
    typer.echo(f"{table.num_rows:,} rows in {parquet}")
