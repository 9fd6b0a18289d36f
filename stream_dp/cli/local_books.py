"""Whether a command means the ledgers of this machine, and where they are."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from stream_dp.config.reading import ENVIRONMENT_PREFIX
from stream_dp.store.ledger_file import LedgerFile, ledger_path

_SERVERS = ("stream", "kafka", "redis")


def no_server_is_named(given: Any) -> bool:
    """Whether neither options, nor the environment, nor a stream.toml say where servers are.

    `given`: options among which there may be settings, stream, kafka and redis.
    """
    named = [getattr(given, name, None) for name in ("settings", *_SERVERS)]
    named += [os.environ.get(f"{ENVIRONMENT_PREFIX}{name.upper()}") for name in _SERVERS]
    return not any(named) and not Path("stream.toml").exists()


@contextmanager
def ledger_file(only_look: bool = False) -> Iterator[LedgerFile]:
    """The file of this user's ledgers.  If there is none, it is made, or looks as if it had been made.

    Raises `LedgerRefused`.
    """
    path = ledger_path()
    with closing(LedgerFile(None if only_look and not path.exists() else path)) as file:
        yield file
