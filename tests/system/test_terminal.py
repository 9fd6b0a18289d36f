"""What commands say on a terminal, and where a program reads what they say."""

import fcntl
import os
import pty
import re
import select
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.example_releases import release
from tests.system.browser.published import write
from tests.system.own_redis import PASSWORD, OwnRedis, own_redis_server
from tests.system.streams import Stream, small_stream
from tests.system.ticking import TICKS
from tests.system.waiting import wait_until

GOOD = b'{"items": ["tea"]}'
IMPATIENT = "from stream_dp.kafka import clients; clients.BOOTSTRAP_MILLISECONDS = 1_000; "
"""It soon tries again to reach a Kafka that is away."""
PATIENT = (
    "from stream_dp.kafka import clients; clients.BOOTSTRAP_MILLISECONDS = 120_000; "
    "from stream_dp.workers import histogram; histogram._REDIS_SECONDS = 120.0; "
)
"""It takes no server that is slow for one that is away."""
_PROGRAM = "from stream_dp.cli import main; main()"


class Terminal:
    """A terminal of so many columns, and what a command of a stream has shown there."""

    def __init__(self, columns: int = 100) -> None:
        self._ours, self.theirs = pty.openpty()
        self.resize(columns)
        self._shown = b""
        self._command: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.theirs)
        os.close(self._ours)

    def start(self, stream: Stream, *words: str, program: str = "", **changed: Any) -> None:
        """Run `stream-dp` with these words in it, behind the statements of `program`."""
        self._command = stream.start_faust("-c", program + _PROGRAM, *words, terminal=self.theirs, **changed)

    def resize(self, columns: int) -> None:
        """Make it so wide."""
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def shown(self) -> str:
        """All of it until now.  A terminal has room for little, so whoever waits has to look."""
        while select.select([self._ours], [], [], 0)[0]:
            self._shown += os.read(self._ours, 65_536)
        return self._shown.decode(errors="replace").replace("\r\n", "\n")

    def wait_until(self, condition: Callable[[str], bool]) -> None:
        """Return when what is shown is so."""
        wait_until(lambda: condition(self.shown()), self.shown)

    def stop(self) -> None:
        """Ask the command to end."""
        assert self._command is not None
        self._command.terminate()

    def status(self) -> int:
        """How the command ended, once it has."""
        command = self._command
        assert command is not None
        self.wait_until(lambda _: command.poll() is not None)
        return command.wait()


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    """It wants a password."""
    with own_redis_server(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture(autouse=True)
def _as_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stream(kafka: str, own_redis: OwnRedis, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    with small_stream(kafka, own_redis.url, topic_prefix, tmp_path) as stream:
        yield stream


@pytest.fixture
def terminal(stream: Stream) -> Iterator[Terminal]:
    with Terminal() as terminal:
        yield terminal
        stream.stop_all()


@pytest.mark.parametrize("rounds", ["events", "ticks"])
def test_a_worker_starts_with_at_most_five_quiet_lines(
    stream: Stream, terminal: Terminal, rounds: str
) -> None:
    """The key is new, there is no budget, and the epoch begins; what is released is told elsewhere."""
    stream.feed([GOOD] * 200)
    terminal.start(stream, "worker", program=PATIENT, **(TICKS if rounds == "ticks" else {}))
    terminal.wait_until(lambda _: bool(stream.releases()))
    terminal.stop()
    assert terminal.status() == 0, terminal.shown()
    before, begins, _ = terminal.shown().partition(
        f" stream {stream.settings.stream}: epoch 1, round 0 of 1023\n"
    )
    assert begins, terminal.shown()
    assert before.count("\n") < 5, terminal.shown()
    assert "\n\n" not in before
    assert "Traceback" not in terminal.shown()


def test_a_kafka_that_is_away_is_one_line(stream: Stream, terminal: Terminal) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*nobody.getsockname())
        terminal.start(stream, "worker", program=IMPATIENT, kafka=address)
        terminal.wait_until(lambda shown: "waiting for" in shown)
        terminal.stop()
    assert terminal.status() == 0, terminal.shown()
    assert terminal.shown().count(f"waiting for Kafka at {address}") == 1
    assert "Traceback" not in terminal.shown()


def test_a_wrong_password_of_redis_is_a_refusal_and_no_outage(
    stream: Stream, own_redis: OwnRedis, terminal: Terminal
) -> None:
    wrong = own_redis.url.replace(PASSWORD, "open-barley")
    terminal.start(stream, "worker", program=PATIENT, redis=wrong)
    assert terminal.status() == 2
    assert "refuses the user or the password" in terminal.shown()
    assert "set redis_password" in terminal.shown()
    for other in ("waiting for", "Traceback", "open-barley", PASSWORD):
        assert other not in terminal.shown()


def test_a_terminal_that_is_resized_keeps_no_line_of_the_frame_before(
    stream: Stream, terminal: Terminal
) -> None:
    """What was written for the other width is taken away, and what follows is as wide as the terminal."""
    write(stream, release(1, {"tea": 44_664, "milk": 2_837}))
    terminal.start(stream, "tail", "--from", "earliest")
    terminal.wait_until(lambda shown: "44,664" in shown)
    terminal.resize(60)
    write(stream, release(2, {"tea": 55_775, "milk": 2_838}))
    terminal.wait_until(lambda shown: "55,775" in shown and "2,838" in shown)
    _, emptied, after = terminal.shown().rpartition("\x1b[2J\x1b[H")
    assert emptied
    assert "44,664" not in after
    assert "55,775" in after
    assert max(map(len, plain(after).splitlines())) <= 60


def plain(shown: str) -> str:
    """Without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n")


def test_what_is_piped_from_a_narrow_terminal_is_not_wrapped() -> None:
    """The terminal is where the command hears and complains; its answer goes to a program."""
    with Terminal(columns=40) as terminal:
        words = [sys.executable, "-m", "stream_dp.cli", "calibrate"]
        ran = subprocess.run(
            words, stdin=terminal.theirs, stdout=subprocess.PIPE, stderr=terminal.theirs, check=True
        )
    rows = ran.stdout.decode().splitlines()
    [row] = [row for row in rows if row.startswith("blt  ")]
    assert len(row) > 40
    assert not any("\x1b" in row for row in rows)
