"""`stream-dp worker`: the main job, until it is stopped."""

import sys
from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.checklist.budget import next_charge
from stream_dp.cli.checklist.finding import tell
from stream_dp.cli.hosting import run_worker
from stream_dp.cli.log_options import Log
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import require_kafka, require_redis
from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.epochs.gap import gap_of, lost_epoch
from stream_dp.workers.histogram import Worker
from stream_dp.workers.resume import NewEpoch


@options.grouped
def worker(
    *,
    servers: options.Servers,
    new_epoch: Annotated[
        bool,
        typer.Option(
            "--new-epoch",
            help="Close the running epoch and open another, which is charged to the budget.",
        ),
    ] = False,
    recount: Annotated[
        bool,
        typer.Option("--recount", help="With --new-epoch: count the events topic again from its beginning."),
    ] = False,
    from_last_release: Annotated[
        bool | None,
        typer.Option(
            "--from-last-release/--from-log-end",
            help="With --new-epoch, where the old epoch's state is lost: begin where its last release ends, or at the "
            "log's end.",
            show_default="asked on a terminal, else the log's end",
        ),
    ] = None,
    without_labels: Annotated[
        bool,
        typer.Option(
            "--without-labels",
            help="With --new-epoch: begin with no label, instead of those that the old epoch showed.",
        ),
    ] = False,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="Stand by, and take over as soon as no other worker of the stream is alive."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what would be charged, and whether the budget has room."),
    ] = False,
    unmetered: options.Unmetered = False,
    log: Log,
) -> None:
    """Read a stream's events and release its histogram after each, until stopped with Ctrl-C or SIGTERM.

    It also stops at the horizon, unless the setting at_horizon is roll or double: then the next epoch begins.

    [bold]Examples[/]

      stream-dp worker --stream shop

      stream-dp worker --settings stream.toml --kafka broker:9092 --redis redis://cache:6379/0

      stream-dp worker --stream shop --new-epoch

      stream-dp worker --stream shop --new-epoch --from-last-release

      stream-dp worker --stream shop --new-epoch --dry-run

      stream-dp worker --stream shop --standby

      stream-dp worker --stream shop --json
    """
    if without_labels and not new_epoch:
        raise Mistake("--without-labels says how a new epoch begins: give --new-epoch with it")
    if not new_epoch and (recount or from_last_release is not None):
        option = "--recount" if recount else "--from-last-release" if from_last_release else "--from-log-end"
        raise Mistake(f"{option} says where a new epoch begins: give --new-epoch with it")
    if new_epoch and standby:
        raise Mistake("--standby waits for its turn and --new-epoch does not: give one of them")
    if recount and from_last_release is not None:
        raise Mistake(
            "--recount begins with the first record: leave --from-last-release and --from-log-end out"
        )
    settings, wish = options.metered(servers.load(), unmetered), None
    if dry_run:
        _require_servers(settings)
        with redis_client(settings.redis_address) as redis:
            tell(list(next_charge(settings, redis, new_epoch, recount)), log.for_machines)
        return
    if new_epoch:
        if from_last_release is None and not recount and not log.for_machines and sys.stdin.isatty():
            from_last_release = _wants_the_gap_counted(settings)
        wish = NewEpoch(recount, bool(from_last_release), without_labels)
    worker = Worker(settings, wish, standby)
    run_worker(worker, "running_histogram", log, worker.watch.facts)


def _require_servers(settings: Settings) -> None:
    require_kafka(settings.kafka)
    require_redis(settings.redis)


def _wants_the_gap_counted(settings: "Settings") -> bool:
    """Ask, where the old epoch is lost, whether the records after its last release are to be counted."""
    _require_servers(settings)
    with redis_client(settings.redis_address) as redis:
        epoch = lost_epoch(settings, redis)
    gap = None if epoch is None else gap_of(settings, epoch)
    if gap is None or not gap.records:
        return False
    typer.echo(f"The state of epoch {gap.epoch} is lost. As far as can be told, {gap}.", err=True)
    return typer.confirm("Begin the new epoch with them? They are then charged to both epochs.", err=True)
