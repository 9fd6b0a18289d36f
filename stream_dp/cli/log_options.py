"""What commands that run until they are stopped log, and how."""

import logging
import logging.config
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from stream_dp.cli.mistakes import JSON_LINES
from stream_dp.operations.logs import json_logging
from stream_dp.operations.open_metrics import PublicFacts


class LogLevel(StrEnum):
    """How much to log."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def _note(context: typer.Context, as_json: bool) -> bool:
    if as_json:
        context.meta[JSON_LINES] = True
    return as_json


@dataclass(frozen=True)
class Log:
    """What is logged, and how."""

    log_level: Annotated[LogLevel, typer.Option(help="The least serious messages to show.")] = LogLevel.info
    for_machines: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, for machines.", callback=_note)
    ] = False


def start_logging(log: Log, stream: str) -> None:
    """Log as asked, in a process that Faust does not host."""
    if log.for_machines:
        logging.config.dictConfig(json_logging(log.log_level.value, PublicFacts(stream)))
    else:
        logging.basicConfig(level=log.log_level.value.upper(), format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
