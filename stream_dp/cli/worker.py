"""`stream-dp worker`: the main job, until it is stopped."""

import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.settings import load_settings

if TYPE_CHECKING:
    import faust

    from topologies.host import WorkerService


class LogFormat(StrEnum):
    """How a line of the log looks."""

    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """How much to log."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


LogLevelOption = Annotated[LogLevel, typer.Option(help="The least serious messages to show.")]
LogFormatOption = Annotated[
    LogFormat, typer.Option(help="Lines for people, or one JSON object a line for machines.")
]


def worker(
    settings: options.SettingsFile = None,
    stream: options.Stream = None,
    kafka: options.Kafka = None,
    redis: options.Redis = None,
    new_epoch: Annotated[
        bool, typer.Option("--new-epoch", help="Close the running epoch and open another, which is charged.")
    ] = False,
    recount: Annotated[
        bool,
        typer.Option("--recount", help="With --new-epoch: count the events topic again from its beginning."),
    ] = False,
    log_level: LogLevelOption = LogLevel.info,
    log_format: LogFormatOption = LogFormat.text,
) -> None:
    """Read a stream's events and release its histogram after each, until stopped with Ctrl-C or SIGTERM.

    At its horizon it stops too, unless the setting at_horizon is roll or double: then the next epoch begins.
    Where the setting shards is not 0, it hands the rounds on to them: see stream-dp shard and stream-dp merge.

    [bold]Examples[/]

      stream-dp worker --stream shop

      stream-dp worker --settings stream.toml --kafka broker:9092 --redis redis://cache:6379/0

      stream-dp worker --stream shop --new-epoch

      stream-dp worker --stream shop --log-format json
    """
    if recount and not new_epoch:
        raise Mistake("--recount says where a new epoch begins: give --new-epoch with it")
    from stream_dp.resume import NewEpoch
    from stream_dp.worker import Worker
    from topologies.host import WorkerService
    from topologies.running_histogram import create_app

    chosen = load_settings(settings, stream=stream, kafka=kafka, redis=redis)
    service = WorkerService(Worker(chosen, NewEpoch(recount) if new_epoch else None))
    run_hosted(service, create_app(service), log_level, log_format)


def run_hosted(
    service: "WorkerService", app: "faust.App", log_level: LogLevel, log_format: LogFormat
) -> None:
    """Run the app in this process until it is stopped; raises why its service gave up, if it did."""
    import faust  # it takes a second to import, which no other command should wait for

    from stream_dp.operations.logs import json_logging

    config = None
    if log_format is LogFormat.json:
        config = json_logging(log_level.value, service.worker.watch.facts)
    host = faust.Worker(
        app, loglevel=log_level.value, logging_config=config, quiet=True, redirect_stdouts=False
    )
    for chatty in ("kafka", "aiokafka"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    try:
        host.execute_from_commandline()
    except SystemExit as ended:
        if service.refusal is not None:
            raise service.refusal from None
        raise typer.Exit(int(ended.code or 0)) from None
