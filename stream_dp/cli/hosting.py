"""How commands that run until they are stopped are hosted."""

import logging
import sys
from typing import Any, NoReturn

import faust
import typer

from stream_dp.cli.log_options import Log, LogLevel
from stream_dp.operations.logs import json_logging
from stream_dp.operations.open_metrics import PublicFacts
from stream_dp.operations.terminal_log import terminal_logging
from topologies.host import REFUSED, Host, Runs, WorkerService, hosted


def run_worker(worker: Runs, role: str, log: Log, facts: PublicFacts) -> NoReturn:
    """Run the worker until it is stopped; raises why it gave up, if it did.  Lines of JSON say the `facts` too."""
    service = WorkerService(worker)
    status = _run(hosted(service, role), log, _config(log, facts))
    if service.refusal is None:
        raise typer.Exit(status)
    if log.for_machines:  # the log has it
        raise typer.Exit(REFUSED)
    raise service.refusal


def _run(app: faust.App, log: Log, config: dict[str, Any] | None) -> int:
    """Run the app in this process until it is stopped; returns the exit status."""
    host = Host(app, loglevel=log.log_level.value, logging_config=config, quiet=True, redirect_stdouts=False)
    if log.log_level is not LogLevel.debug:
        for client in ("kafka", "aiokafka"):  # they tell each attempt of an outage, as kafka/outages.py does
            logging.getLogger(client).setLevel(logging.CRITICAL)
    try:
        host.execute_from_commandline()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _config(log: Log, facts: PublicFacts) -> dict[str, Any] | None:
    """How to log: JSON for machines, few lines on a terminal, and where it is piped every line of Faust's own form."""
    if log.for_machines:
        return json_logging(log.log_level.value, facts)
    return terminal_logging(log.log_level.value) if sys.stderr.isatty() else None
