"""`stream-dp history`: how counts grew, in a topic for databases."""

from stream_dp.cli import options
from stream_dp.cli.log_options import Log, start_logging
from stream_dp.cli.reach import require_kafka
from stream_dp.cli.stopping import until_stopped
from stream_dp.workers.history import keep_history


@options.grouped
def history(
    *,
    source: options.Subscriber,
    table_format: options.RowFormat = "json",
    every: options.Every = 60.0,
    start: options.Beginning = "earliest",
    log: Log,
) -> None:
    """Write how counts grew into `<stream>.history`, a flat row for each label and minute, until stopped.

    It reads released values only, needs neither key nor Redis, and goes on where it stopped. Nothing is ever changed
    there, so a database that reads it can answer by time. Kafka Connect needs `--format connect`.

    [bold]Examples[/]

      stream-dp history --stream shop

      stream-dp history --stream shop --every 3600 --format connect

      stream-dp history --settings stream.toml --from latest --json
    """
    found = source.load()
    start_logging(log, found.stream)
    require_kafka(found.kafka)
    keep_history(found, until_stopped(), table_format, start, every)
