"""`stream-dp worker`: the main job, until it is stopped."""

from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.hosting import Log, run_worker
from stream_dp.cli.mistakes import Mistake


@options.grouped
def worker(
    *,
    servers: options.Servers,
    new_epoch: Annotated[
        bool, typer.Option("--new-epoch", help="Close the running epoch and open another, which is charged.")
    ] = False,
    recount: Annotated[
        bool,
        typer.Option("--recount", help="With --new-epoch: count the events topic again from its beginning."),
    ] = False,
    log: Log,
) -> None:
    """Read a stream's events and release its histogram after each, until stopped with Ctrl-C or SIGTERM.

    At its horizon it stops too, unless the setting at_horizon is roll or double: then the next epoch begins.
    Where the setting shards is not 0, it hands the rounds on to them: see stream-dp shard and stream-dp merge.

    [bold]Examples[/]

      stream-dp worker --stream shop

      stream-dp worker --settings stream.toml --kafka broker:9092 --redis redis://cache:6379/0

      stream-dp worker --stream shop --new-epoch

      stream-dp worker --stream shop --json
    """
    if recount and not new_epoch:
        raise Mistake("--recount says where a new epoch begins: give --new-epoch with it")
    from stream_dp.resume import NewEpoch
    from stream_dp.worker import Worker
    from topologies.host import WorkerService
    from topologies.running_histogram import create_app

    service = WorkerService(Worker(servers.load(), NewEpoch(recount) if new_epoch else None))
    run_worker(create_app(service), service, log)
