"""The process that writes barriers, as a child of the worker: it is started again if it ends, and ends with it.

The key goes to it through its standard input, where others cannot see it, and the pipe's end tells it that the worker
is gone.  What it logs comes back through its standard output.
"""

import logging
import os
import subprocess
import sys
import time
from threading import Thread

import msgspec

from stream_dp.config.settings import Settings
from stream_dp.kafka.log import LogRefused

logger = logging.getLogger(__name__)

REFUSED = 2
_AGAIN_SECONDS, _STOP_SECONDS = 1.0, 10.0


class Task(msgspec.Struct, frozen=True):
    """What the process is told: `key` is that of `barriers.key.barrier_key`, in hexadecimal."""

    settings: Settings
    key: str


class BarrierProcess:
    """At most one child at a time; it is stopped at the end of the `with` block."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Thread | None = None
        self._started, self._has_task = 0.0, False
        self._told = ""

    def __enter__(self) -> "BarrierProcess":
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def prepare(self) -> None:
        """Start the process, if there is none; it loads the program, and waits for its task."""
        if self._process is None:
            self._start()

    def run(self, key: bytes) -> None:
        """See to it that the process runs.  Raises `LogRefused` where it said that it cannot go on."""
        if not self._runs():
            self._start()
        if not self._has_task:
            self._give_task(key)

    def _runs(self) -> bool:
        """Whether the process runs, or is left alone for a while because it ended right after its start."""
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return True
            if self._log is not None:
                self._log.join()
            if status == REFUSED:
                raise LogRefused(self._told)
            if time.monotonic() - self._started < _AGAIN_SECONDS:
                return True
            logger.warning("the process that writes barriers has ended (%d): starting it again", status)
            assert self._process.stdin is not None
            self._process.stdin.close()
        return False

    def _start(self) -> None:
        kind, _, name = self._settings.noise_key.partition(":")
        environment = {each: value for each, value in os.environ.items() if kind != "env" or each != name}
        words = [
            sys.executable,
            "-m",
            "stream_dp.barriers",
            self._settings.stream,
        ]  # the name is for whoever looks
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        self._process, self._started, self._has_task = process, time.monotonic(), False
        self._log = Thread(target=self._pass_on, args=(process,), daemon=True)
        self._log.start()

    def _give_task(self, key: bytes) -> None:
        process, self._has_task = self._process, True
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(Task(self._settings, key.hex())) + b"\n")
            process.stdin.flush()
        except BrokenPipeError:  # it has ended already: the next look tells
            logger.warning("the process that writes barriers did not start")

    def _pass_on(self, process: "subprocess.Popen[bytes]") -> None:
        """Log what the process logs."""
        assert process.stdout is not None
        for line in process.stdout:
            level, _, text = line.decode(errors="replace").rstrip("\n").partition(" ")
            self._told = text
            logger.log(logging.getLevelNamesMapping().get(level, logging.INFO), "barriers: %s", text)
        process.stdout.close()
