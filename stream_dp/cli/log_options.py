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


def _note_format(context: typer.Context, asked: bool | LogFormat) -> bool | LogFormat:
    if asked in (True, LogFormat.json):
        context.meta[JSON_LINES] = True
    return asked


@dataclass(frozen=True)
class Log:
    """What is logged, and how."""

    log_level: Annotated[LogLevel, typer.Option(help="The least serious messages to show.")] = LogLevel.info
    log_format: Annotated[
        LogFormat,
        typer.Option(help="Lines for people, or one JSON object a line for machines.", callback=_note_format),
    ] = LogFormat.text
    as_json: Annotated[
        bool, typer.Option("--json", help="The same as --log-format json.", callback=_note_format)
    ] = False

    @property
    def for_machines(self) -> bool:
        """Whether the log is lines of JSON."""
        return self.as_json or self.log_format is LogFormat.json


def start_logging(log: Log, stream: str) -> None:
    """Log as asked, in a process that Faust does not host."""
    if log.for_machines:
        logging.config.dictConfig(json_logging(log.log_level.value, PublicFacts(stream)))
    else:
        logging.basicConfig(level=log.log_level.value.upper(), format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
