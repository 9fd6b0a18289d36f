"""Processes that tests of Spark have started, and what these have started: each is found by its id alone."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from tests.system.waiting import GIVE_UP_SECONDS

PATIENCE = 10 * GIVE_UP_SECONDS
"""Spark takes seconds to start, and minutes where many processes do at once."""


def wait_patiently(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Return once `condition()`; the test fails with what `otherwise` says if that takes far too long."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.2)


def children(pid: int) -> list[int]:
    """The processes that one has started and that have not ended."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(each) for each in found.split()]


def below(pid: int) -> list[int]:
    """Its children, and theirs."""
    mine = children(pid)
    return [*mine, *(each for child in mine for each in below(child))]


def kill(*pids: int) -> None:
    """End them at once; some may be gone already."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def command(pid: int) -> str:
    """Its words; none if it is gone."""
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode(errors="replace")
    return ""
