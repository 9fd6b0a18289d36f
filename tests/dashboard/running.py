"""`stream-dp dashboard` as a process, and the releases that tests write for it to show."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from stream_dp.cli.dashboard import PASSWORD
from stream_dp.dev.child_process import free_port
from stream_dp.records import Record, Release

SECONDS = 60.0


class Running:
    """A dashboard of `stream` on a port of its own; it may be stopped and started again there.

    `login`: the name and the password that it asks for.
    """

    def __init__(self, kafka: str, stream: str, log: Path, login: tuple[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self._words = ["dashboard", "--stream", stream, "--kafka", kafka, "--port", str(self.port)]
        self._secret = {}
        if login is not None:
            self._words += ["--user", login[0]]
            self._secret = {PASSWORD: login[1]}
        self.process = self._spawn()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAM_DP_")}
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "stream_dp.cli", *self._words],
                stdout=output,
                stderr=output,
                env=environment | self._secret,
            )

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        self.process.terminate()
        return self.process.wait(SECONDS)

    def start(self) -> None:
        """Start it again."""
        self.process = self._spawn()
        self.wait_until_answering()

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        with urllib.request.urlopen(self.url + path, timeout=SECONDS) as answer:
            return json.load(answer)

    def status(self, path: str) -> int:
        """The HTTP status of a path; 0 while nobody answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=SECONDS) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return 0

    def wait_until(self, path: str, status: int) -> None:
        """Return when a path answers with this status."""
        deadline = time.monotonic() + SECONDS
        while (found := self.status(path)) != status:
            assert time.monotonic() < deadline, f"{path} answers {found}:\n{self.log.read_text()}"
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def wait_until_answering(self) -> None:
        """Return when it serves."""
        self.wait_until("/livez", 200)

    def wait_until_round(self, round_number: int) -> None:
        """Return when it has read this round's release."""
        deadline = time.monotonic() + SECONDS
        while (
            self.status("/api/v1/release/latest") != 200
            or self.get("/api/v1/release/latest")["round"] != round_number
        ):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def wait_for_history(self, label: str, rounds: list[int]) -> Any:
        """The history of a label, once it has exactly these rounds."""
        deadline = time.monotonic() + SECONDS
        while (found := self.get(f"/api/v1/history?label={label}"))["rounds"] != rounds:
            assert time.monotonic() < deadline, f"{found['rounds']} instead of {rounds}"
            time.sleep(0.05)
        return found


@contextmanager
def running(kafka: str, stream: str, folder: Path, login: tuple[str, str] | None = None) -> Iterator[Running]:
    """A dashboard that serves, ended with the block."""
    dashboard = Running(kafka, stream, folder / "dashboard.log", login)
    try:
        dashboard.wait_until_answering()
        yield dashboard
    finally:
        dashboard.process.kill()
        dashboard.process.wait()


def records(releases: Iterable[Release]) -> list[Record]:
    """Releases as records written now."""
    now = time.time_ns() // 1_000_000
    return [Record(0, now, b"key", msgspec.json.encode(each)) for each in releases]
