"""A wait in which nothing moves asks everybody where they stand, and a failed test shows the answers."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import stacks
from tests.stacks import Stillness
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

PROGRAM = """
import asyncio, sys, threading
from stream_dp.operations.stacks import tell_on_signal

async def waits_in_a_task():
    await asyncio.Event().wait()

async def main():
    task = asyncio.create_task(waits_in_a_task())
    await asyncio.to_thread(stands_in_a_thread)

def stands_in_a_thread():
    print("ready", flush=True)
    threading.Event().wait()

tell_on_signal()
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_ANSWER_SECONDS", GIVE_UP_SECONDS)


@pytest.fixture
def program(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    with (tmp_path / "program.stderr").open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    assert process.poll() is None, "it goes on after it was asked"
    process.kill()
    process.communicate()


def told_while(state: str) -> list[str]:
    """What is told in a wait that lasts until something is, or two looks saw no need for it."""
    stacks.told.clear()
    looks: list[str] = []

    def changing() -> str:
        looks.append(state.format(len(looks)))
        return looks[-1]

    stillness = Stillness(changing, seconds=0.0)
    while not stacks.told and len(looks) < 3:
        stillness.look()
    try:
        return list(stacks.told)
    finally:
        stacks.told.clear()


def test_threads_and_tasks_of_a_process_that_stands_still_are_told(program: "subprocess.Popen[str]") -> None:
    [told] = told_while("always the same")
    assert f"process {program.pid}, " in told
    assert "in stands_in_a_thread" in told
    assert "in waits_in_a_task" in told
    assert "in Event.wait" in told, "the innermost call counts"


HOST = """
import asyncio
from stream_dp.config.settings import Settings
from topologies.host import Host, WorkerService, hosted

class Ready:
    settings = Settings(stream="s")

    def __init__(self):
        self._stopping = asyncio.Event()

    async def run(self):
        print("ready", flush=True)
        await self._stopping.wait()

    def stop(self):
        self._stopping.set()

app = hosted(WorkerService(Ready()), "s")
Host(app, loglevel="WARNING", quiet=True, redirect_stdouts=False).execute_from_commandline()
"""


def says(told: Path, text: str, times: int) -> bool:
    return told.read_text().count(text) == times


@pytest.mark.parametrize(
    "words", [["-c", HOST], ["-m", "stream_dp.barriers", "s"]], ids=["worker", "barriers"]
)
def test_what_a_worker_runs_writes_its_stacks_and_goes_on(words: list[str], tmp_path: Path) -> None:
    """Faust would start a debugger, and a process that takes no notice of the signal would end."""
    told = tmp_path / "told.stderr"
    with told.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    try:
        if words[0] == "-c":
            assert process.stdout is not None
            assert process.stdout.readline().endswith(b"ready\n")
        wait_until(lambda: stacks._listens(process.pid), told.read_text)
        for times in (1, 2):
            os.kill(process.pid, signal.SIGUSR2)
            wait_until(partial(says, told, "That is where process", times), told.read_text)
        assert process.poll() is None
        assert "debugger" not in told.read_text()
    finally:
        process.kill()
        process.communicate()


def test_nothing_is_told_while_something_moves(program: "subprocess.Popen[str]") -> None:
    assert told_while("step {}") == []


def test_a_process_that_does_not_listen_lives_on() -> None:
    deaf = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        [told] = told_while("always the same")
        assert f"process {deaf.pid}," not in told
        assert deaf.poll() is None
    finally:
        deaf.kill()
        deaf.wait()


def test_what_tests_read_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "stream.log"
    with log.open("wb") as errors:
        read = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert read.stdout is not None
        assert read.stdout.readline() == "ready\n"
        told_while("always the same")
        assert log.read_bytes() == b""
    finally:
        read.kill()
        read.communicate()


def test_a_state_that_cannot_be_told_fails_nothing() -> None:
    def fails() -> str:
        raise OSError("no log")

    stillness = Stillness(fails, seconds=0.0)
    stillness.look()
    assert stacks.told == []


def test_a_failed_test_shows_what_was_told(tmp_path: Path) -> None:
    """In a run of its own: a wait that fails after something was told."""
    test = tmp_path / "test_that_fails.py"
    test.write_text(
        "from tests import stacks\ndef test_it():\n    stacks.told.append('HERE IT STOOD')\n    assert False\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.stacks", "-c", os.devnull, str(test)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert "nothing moved, 1" in run.stdout, run.stdout + run.stderr
    assert "HERE IT STOOD" in run.stdout
