"""`stream-dp spark`: count a stream's events on Apache Spark, until it is stopped."""

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.hosting import run_worker
from stream_dp.cli.log_options import Log
from stream_dp.cli.mistakes import Mistake
from stream_dp.spark.closed import require_private, submit_line
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
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Print the command that counts on this cluster, and end."),
    ] = None,
    log: Log,
) -> None:
    """Read and count a stream's events on Apache Spark, for a worker that releases what is shown, until stopped.

    That worker has engine = "spark" in its settings too.  Without spark-submit, Spark runs on all cores here.

    [bold]Examples[/]

      stream-dp spark --settings stream.toml --state /shared/spark

      stream-dp spark --settings stream.toml --state /shared/spark --master spark://host:7077
    """
    if not state.is_dir():
        raise Mistake(f"there is no folder {state}: make one that all machines of Spark share")
    require_private(state)
    if master is not None:
        named = [(f"--{name}", str(value)) for name, value in asdict(servers).items() if value is not None]
        words = "spark", *chain.from_iterable(named), "--state", str(state.resolve())
        typer.echo(submit_line(master, [str(Path(__file__).with_name("submitted.py")), *words]))
        return
    worker = SparkWorker(servers.load(), state.resolve())
    run_worker(worker, "spark", log, worker.watch.facts)
