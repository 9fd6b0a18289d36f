"""`stream-dp table`: what a stream shows now, kept in a compacted topic for other tools to read."""

from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.log_options import Log, start_logging
from stream_dp.cli.reach import require_kafka, require_topic
from stream_dp.cli.stopping import until_stopped
from stream_dp.workers.table import TableWriter, keep_table


@options.grouped
def table(
    *,
    source: options.Subscriber,
    table_format: options.RowFormat = "json",
    every: options.Every = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Write what the newest release shows, and end.")
    ] = False,
    log: Log,
) -> None:
    """Keep `<stream>.table` equal to the newest release, a record per label, until stopped with Ctrl-C or SIGTERM.

    It reads released values only and needs neither key nor Redis. It may be started again at any time, and two of them
    do no harm. Kafka Connect needs `--format connect`.

    [bold]Examples[/]

      stream-dp table --stream shop

      stream-dp table --stream shop --kafka broker:9092 --once

      stream-dp table --format connect

      stream-dp table --settings stream.toml --json
    """
    found = source.load()
    start_logging(log, found.stream)
    require_kafka(found.kafka)
    if once:
        require_topic(found.kafka_address, found.releases)
        with TableWriter(found, table_format) as writer:
            writer.write()
    else:
        keep_table(found, until_stopped(), every, table_format)
