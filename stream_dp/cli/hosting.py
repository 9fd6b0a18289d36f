"""How commands that run until they are stopped are hosted."""

import logging
import sys
from typing import Any

import faust
import typer

from stream_dp.cli.log_options import Log, LogLevel
from stream_dp.operations.logs import json_logging
from stream_dp.operations.open_metrics import PublicFacts
from stream_dp.operations.terminal_log import terminal_logging
from topologies.host import Host, WorkerService


def run(app: "faust.App", log: Log, facts: "PublicFacts") -> int:
    """Run the app in this process until it is stopped; returns the exit status.  Lines of JSON say the `facts` too."""
    config = _config(log, facts)
    host = Host(app, loglevel=log.log_level.value, logging_config=config, quiet=True, redirect_stdouts=False)
    if log.log_level is not LogLevel.debug:
        for client in (
            "kafka",
            "aiokafka",
        ):  # they tell each attempt of an outage, which kafka/outages.py tells
            logging.getLogger(client).setLevel(logging.CRITICAL)
    try:
        host.execute_from_commandline()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _config(log: Log, facts: "PublicFacts") -> dict[str, Any] | None:
    """How to log: JSON for machines, few lines on a terminal, and where it is piped every line of Faust's own form."""
    if log.for_machines:
        return json_logging(log.log_level.value, facts)
    return terminal_logging(log.log_level.value) if sys.stderr.isatty() else None


def run_worker(app: "faust.App", service: "WorkerService", log: Log) -> None:
    """Run the app of `service` until it is stopped; raises why the service gave up, if it did."""
    status = run(app, log, service.worker.watch.facts)
    if service.refusal is not None and not log.for_machines:  # the log has it
        raise service.refusal
    raise typer.Exit(status)
