"""What documents show: their blocks, and how their command lines and programs are run."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from typer.testing import CliRunner

from stream_dp.cli import app
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language, without the indentation they share."""
    found = []
    for kind, body in BLOCK.findall(text):
        if kind == language:
            indent = len(body) - len(body.lstrip(" "))
            found.append("\n".join(line[indent:] for line in body.splitlines()))
    return found


def run_line(line: str, *more: str) -> str:
    """What a line like `stream-dp check` prints, with `more` words at its end; it must succeed."""
    result = CliRunner().invoke(app, [*shlex.split(line)[1:], *more])
    assert result.exit_code == 0, f"{line}\n{result.output}"
    return result.stdout


@contextmanager
def running(program: list[str], folder: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A Python program in a process of its own, until the context ends."""
    with subprocess.Popen([sys.executable, *program], cwd=folder, text=True, **options) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(GIVE_UP_SECONDS)


@contextmanager
def running_line(line: str, folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The same for a line like `stream-dp worker`."""
    with running(["-m", "stream_dp.cli", *shlex.split(line)[1:], *more], folder) as process:
        yield process


def await_topic(kafka: str, topic: str, worker: subprocess.Popen[str]) -> None:
    """Return when the worker has made its topics, which a reader sees in its log."""
    with closing(KafkaConsumer(bootstrap_servers=kafka)) as consumer:

        def is_there() -> bool:
            assert worker.poll() is None, "the worker has ended"
            return topic in consumer.topics()

        wait_until(is_there, lambda: f"{topic} is not made")
