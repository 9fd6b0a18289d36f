"""What a running command says on a terminal: lines for people."""

from typing import Any

_HOSTS = ("faust", "mode", "topologies.host")


def terminal_logging(level: str) -> dict[str, Any]:
    """A configuration for `logging.config.dictConfig`: lines for people on standard error.

    What Faust tells of the parts that it hosts is left out, unless `level` is debug.
    """
    told = level.upper() if level == "debug" else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"terminal": {"format": "%(asctime)s %(message)s", "datefmt": "%H:%M:%S"}},
        "handlers": {"terminal": {"class": "logging.StreamHandler", "formatter": "terminal"}},
        "loggers": {name: {"level": told} for name in _HOSTS},
        "root": {"level": level.upper(), "handlers": ["terminal"]},
    }
