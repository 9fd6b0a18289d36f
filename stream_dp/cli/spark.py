"""`stream-dp spark`: count a stream's events on Apache Spark, until it is stopped."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.hosting import run_worker
from stream_dp.cli.log_options import Log
from stream_dp.cli.mistakes import Mistake
from stream_dp.spark.worker import SparkWorker


@options.grouped
def spark(
    *,
    servers: options.Servers,
    state: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Where to keep what was counted: a folder that the driver and all executors read and write.",
        ),
    ],
    log: Log,
) -> None:
    """Read and count a stream's events on Apache Spark, for a worker that releases what is shown, until stopped.

    That worker has engine = "spark" in its settings too.  Without spark-submit, Spark runs on all cores here.

    [bold]Examples[/]

      stream-dp spark --settings stream.toml --state /shared/spark

      spark-submit --master spark://host:7077 $(which stream-dp) spark --settings stream.toml --state /shared/spark
    """
    if not state.is_dir():
        raise Mistake(f"there is no folder {state}: make one that all machines of Spark share")
    if state.stat().st_mode & 0o077:
        raise Mistake(f"{state} is to hold true counts, and others may look into it: run chmod 700 {state}")
    worker = SparkWorker(servers.load(), state.resolve())
    run_worker(worker, "spark", log, worker.watch.facts)
