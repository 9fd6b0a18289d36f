"""`stream-dp dashboard` as a process, and the releases that tests write for it to show.

The process is forked from a server that has imported everything, and starts in milliseconds.
"""

import json
import multiprocessing
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec

from stream_dp.cli import main
from stream_dp.cli.dashboard import PASSWORD
from stream_dp.dashboard import archive, reader
from stream_dp.events.record import Record
from stream_dp.releases.release import Release
from tests.apache_kafka.server import free_ports
from tests.system.waiting import GIVE_UP_SECONDS
from tests.system.worker_process import PROCESSES

PATIENCE = {
    (archive, "_ANSWER_SECONDS"): GIVE_UP_SECONDS,
    (reader, "_ANSWER_SECONDS"): GIVE_UP_SECONDS,
    (reader, "_ANSWER_MILLISECONDS"): int(1000 * GIVE_UP_SECONDS),
    (reader, "_SEEDING_SECONDS"): GIVE_UP_SECONDS,
    (reader, "_RESULTS_SECONDS"): 0.2,
}
"""A patient dashboard waits for what another one goes on without; it looks for the topic of results more often."""


def run_dashboard(words: list[str], log: str, secret: dict[str, str], as_program: bool) -> None:
    """Run `stream-dp` with these words in this process, patiently, or `as_program`."""
    with open(log, "ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    for name in [name for name in os.environ if name.startswith("STREAM_DP_")]:
        del os.environ[name]
    os.environ.update(secret)
    if as_program:
        os.execv(sys.executable, [sys.executable, "-m", "stream_dp.cli", *words])
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()  # type: ignore[union-attr]
    for (module, constant), value in PATIENCE.items():
        setattr(module, constant, value)
    sys.argv = ["stream-dp", *words]
    main()


class Running:
    """A dashboard of `stream` on a port of its own; it may be stopped and started again there.

    `login`: the name and the password that it asks for.  `as_program`: it is the very program, in a process that holds
    nothing else, and is not patient (`PATIENCE`).  `more`: further words of the command.
    """

    def __init__(
        self,
        kafka: str,
        stream: str,
        log: Path,
        login: tuple[str, str] | None = None,
        as_program: bool = False,
        more: Sequence[str] = (),
    ) -> None:
        self.port, _ = free_ports()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self._as_program = as_program
        self._words = ["dashboard", "--stream", stream, "--kafka", kafka, "--port", str(self.port), *more]
        self._secret = {}
        if login is not None:
            self._words += ["--user", login[0]]
            self._secret = {PASSWORD: login[1]}
        self.process = self._spawn()

    def _spawn(self) -> BaseProcess:
        self.log.touch()
        arguments = (self._words, str(self.log), self._secret, self._as_program)
        process = PROCESSES.Process(target=run_dashboard, args=arguments)
        process.start()
        return process

    def stop(self) -> int | None:
        """Ask it to end; its exit status, None if it does not end."""
        self.process.terminate()
        self.process.join(GIVE_UP_SECONDS)
        return self.process.exitcode

    def start(self) -> None:
        """Start it again."""
        self.process = self._spawn()
        self.wait_until_answering()

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        with urllib.request.urlopen(self.url + path, timeout=GIVE_UP_SECONDS) as answer:
            return json.load(answer)

    def status(self, path: str) -> int:
        """The HTTP status of a path; 0 while nobody answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=GIVE_UP_SECONDS) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return 0

    def wait_until(self, path: str, status: int) -> None:
        """Return when a path answers with this status."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while (found := self.status(path)) != status:
            assert time.monotonic() < deadline, f"{path} answers {found}:\n{self.log.read_text()}"
            assert self.process.exitcode is None, self.log.read_text()
            time.sleep(0.05)

    def wait_until_answering(self) -> None:
        """Return when it serves."""
        self.wait_until("/livez", 200)

    def wait_until_round(self, round_number: int) -> None:
        """Return when it has read this round's release."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while (
            self.status("/api/v1/release/latest") != 200
            or self.get("/api/v1/release/latest")["round"] != round_number
        ):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def wait_for_history(self, label: str, rounds: list[int]) -> Any:
        """The history of a label, once it has exactly these rounds."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while (found := self.get(f"/api/v1/history?label={label}"))["rounds"] != rounds:
            assert time.monotonic() < deadline, f"{found['rounds']} instead of {rounds}"
            time.sleep(0.05)
        return found


@contextmanager
def running(
    kafka: str,
    stream: str,
    folder: Path,
    login: tuple[str, str] | None = None,
    as_program: bool = False,
    more: Sequence[str] = (),
) -> Iterator[Running]:
    """A dashboard that serves, ended with the block."""
    dashboard = Running(kafka, stream, folder / "dashboard.log", login, as_program, more)
    try:
        dashboard.wait_until_answering()
        yield dashboard
    finally:
        dashboard.process.kill()
        dashboard.process.join()


def records(releases: Iterable[Release]) -> list[Record]:
    """Releases as records written now."""
    now = time.time_ns() // 1_000_000
    return [Record(0, now, b"key", msgspec.json.encode(each)) for each in releases]
