"""Stack dumps of every process that a test has started, taken while the test waits and nothing moves.

A wait asks for them by `Stillness`; a test that fails shows what was told.  No dump ever fails a test, and none is
taken of a process that does not listen for the signal (see `stream_dp.operations.stacks`), or whose standard error
some test reads.
"""

import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

STILL_SECONDS = 20.0
_ANSWER_SECONDS = 5.0
_UNREAD = (".stderr", "broker.log")  # no test compares what is in these files
_END = "That is where process {pid} stands.\n"

told: list[str] = []
"""What was told during the running test."""


class Stillness:
    """Watches a wait: where `state` says the same for so long, everybody is asked where they stand."""

    def __init__(self, state: Callable[[], str], seconds: float = STILL_SECONDS) -> None:
        self._state, self._seconds = state, seconds
        self._last, self._since = "", time.monotonic()

    def look(self) -> None:
        """To be called again and again while the wait lasts."""
        if time.monotonic() - self._since < self._seconds:
            return
        with suppress(Exception):
            state = self._state()
            if state == self._last:
                told.append("\n".join(map(_told_by, sorted(_listening()))))
            self._last = state
        self._since = time.monotonic()


def _listening() -> Iterator[int]:
    """This process's descendants that are Python and wait for the signal: it would end the others."""
    parents = dict(_processes())
    for pid in parents:
        ancestor = parents[pid]
        while ancestor not in (os.getpid(), 0):
            ancestor = parents.get(ancestor, 0)
        if ancestor and _listens(pid):
            yield pid


def _processes() -> Iterator[tuple[int, int]]:
    """The id of each process and of its parent."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])


def _listens(pid: int) -> bool:
    with suppress(OSError):
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        caught = int(status["SigCgt"], 16) >> (signal.SIGUSR2 - 1) & 1
        told_to = os.readlink(f"/proc/{pid}/fd/2")
        return bool(caught) and "python" in os.readlink(f"/proc/{pid}/exe") and told_to.endswith(_UNREAD)
    return False


def _told_by(pid: int) -> str:
    """What a process writes to its standard error, which is a file, when it is asked where it stands.

    One that sleeps (SIGSTOP) says nothing, and one that is busy may be cut off.
    """
    try:
        name = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        with open(f"/proc/{pid}/fd/2", encoding="utf-8", errors="replace") as output:
            output.seek(0, os.SEEK_END)
            os.kill(pid, signal.SIGUSR2)
            text, deadline = "", time.monotonic() + _ANSWER_SECONDS
            while _END.format(pid=pid) not in text and time.monotonic() < deadline:
                time.sleep(0.02)
                text += output.read()
    except (OSError, ValueError) as gone:
        return f"process {pid} says nothing: {gone}"
    return f"process {pid}, {name}:\n{text}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What earlier tests were told is of no interest."""
    told.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure where everybody stood while nothing moved."""
    report = yield
    if report.failed:
        report.sections += [(f"nothing moved, {number}", text) for number, text in enumerate(told, 1)]
    return report
