"""What a running command says on a terminal: few lines, and a dot where the same thing is waited for once more."""

import logging
from typing import Any, TextIO

WAITING_FOR = "waiting_for"
"""The attribute of a log record that says what is waited for; the same one again is a dot."""

_AGAIN = "; trying again"
_HOSTS = ("faust", "mode", "topologies.host")


class TerminalLines(logging.StreamHandler[TextIO]):
    """Writes a line a record, and goes on with dots while one server is away."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._waiting_for: str | None = None
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write it; as for every handler, what goes wrong with that is told and not raised."""
        try:
            before, self._waiting_for = self._waiting_for, getattr(record, WAITING_FOR, None)
            if self._waiting_for is not None and self._waiting_for == before:
                self.stream.write(".")
            else:
                end = "\n" if before is not None else ""
                self.stream.write(end + self._line(record))
            self.flush()
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        line = self.format(record)
        return f"{line.partition(_AGAIN)[0]} ." if self._waiting_for is not None else f"{line}\n"


def terminal_logging(level: str) -> dict[str, Any]:
    """A configuration for `logging.config.dictConfig`: lines for people on standard error.

    What Faust tells of the parts that it hosts is left out, unless `level` is debug.
    """
    told = level.upper() if level == "debug" else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"terminal": {"class": f"{__name__}.{TerminalLines.__name__}"}},
        "loggers": {name: {"level": told} for name in _HOSTS},
        "root": {"level": level.upper(), "handlers": ["terminal"]},
    }
