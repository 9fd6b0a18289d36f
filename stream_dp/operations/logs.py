"""Logs as one JSON object a line: time, level, event, logger, and stream, epoch and round where they are known."""

import logging
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import orjson

from stream_dp.operations.open_metrics import PublicFacts


class JsonLines(logging.Formatter):
    """Formats a record; adds nothing but what subscribers know as well.

    Of an exception it keeps the kind and the places in the program.  Its text might hold a label.
    """

    def __init__(self, facts: PublicFacts) -> None:
        super().__init__()
        self._facts = facts

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            "stream": self._facts.stream,
        }
        if self._facts.epoch is not None:
            line |= {"epoch": self._facts.epoch, "round": self._facts.round}
        if record.exc_info and record.exc_info[0] is not None:
            line |= {"error": record.exc_info[0].__name__, "at": _places(record.exc_info[2])}
        return orjson.dumps(line).decode()


def _places(trace: TracebackType | None) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]


def json_logging(level: str, facts: PublicFacts) -> dict[str, Any]:
    """A configuration for `logging.config.dictConfig`: JSON lines on standard output."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonLines, "facts": facts}},
        "handlers": {
            "json": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout", "formatter": "json"}
        },
        "root": {"level": level.upper(), "handlers": ["json"]},
    }
