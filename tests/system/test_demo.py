"""`stream-dp demo` as a newcomer meets it: real flights, real servers, a clean end."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_schedule import rounds_of_tests
from stream_dp.dev.flights import flight_events
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

DEMO = [sys.executable, "-m", "stream_dp.cli", "demo"]
SHORT = """
from importlib import import_module
from stream_dp.cli import main
import_module("stream_dp.cli.demo").HORIZON = 1_023
main()
"""
"""A demo whose epochs are 64 times shorter."""


@pytest.fixture(autouse=True)
def _one_demo_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests run side by side, and two demos that look for a free port for their pages at once find the same."""
    with (tmp_path_factory.getbasetemp().parent / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def processes_of(folder: Path) -> dict[int, str]:
    """The command lines of processes that name this folder, by process id; the demo itself is left out."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(str(folder) in word for word in words) and "demo" not in words:
                found[int(entry.name)] = " ".join(words)
    return found


def wait_until_all_ended(folder: Path) -> None:
    """Return when no process that names the folder is left; the shells that watch over children end after them."""
    wait_until(lambda: not processes_of(folder), lambda: str(processes_of(folder)))


def summary(folder: Path, rounds: int, **environment: str) -> dict[str, Any]:
    command = [*DEMO, "--rounds", str(rounds), "--json", "--folder", str(folder)]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=3 * GIVE_UP_SECONDS,
        env=os.environ | environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    wait_until_all_ended(folder)
    return json.loads(ran.stdout)


def started(folder: Path, *options: str, command: Sequence[str] = DEMO) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, "--folder", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def read_until(demo: subprocess.Popen[str], piece: str) -> str:
    """What the demo prints up to a line with this piece."""
    assert demo.stdout is not None
    read = ""
    for line in demo.stdout:
        read += line
        if piece in line:
            return read
    raise AssertionError(f"the demo ended without {piece!r}:\n{read}{demo.stderr and demo.stderr.read()}")


def answers(address: str) -> bool:
    """Whether it is served by now."""
    try:
        with urlopen(address, timeout=GIVE_UP_SECONDS):
            return True
    except OSError:
        return False


CHILDREN = "stream_dp.dev.broker", "redis", "stream_dp.cli worker", "stream_dp.cli dashboard"


def require_children(folder: Path) -> None:
    commands = processes_of(folder).values()
    assert [name for name in CHILDREN if not any(name in each for each in commands)] == []


def test_headless_it_says_what_was_released_and_before_people_it_goes_on_until_ctrl_c(tmp_path: Path) -> None:
    """One option turns it into what happened in the last minutes."""
    folder = tmp_path / "demo"
    check_summary(summary(folder, 2048, STREAM_DP_EPSILON="50", STREAM_DP_STREAM="other"))
    with started(folder, "--window", "1h") as demo:
        try:
            text = read_until(demo, "rounds 1 to ")
            introduction, _, shown = text.rpartition("\n\n")
            assert ", since the epoch began: " in shown
            snippet = introduction[introduction.index("import json") :]
            with subprocess.Popen(
                [sys.executable, "-u", "-c", snippet], stdout=subprocess.PIPE, text=True
            ) as subscriber:
                assert subscriber.stdout is not None
                first = subscriber.stdout.readline()
                subscriber.kill()
            assert re.match(r"\d+ \[", first)
            assert int(first.split()[0]) > 2049
            page = re.search(r"Dashboard: (http://127\.0\.0\.1:\d+/)\?window=1h\n", introduction)
            assert page is not None
            wait_until(lambda: answers(page[1] + "livez"), lambda: text)
            with urlopen(page[1] + "?window=1h", timeout=GIVE_UP_SECONDS) as answer:
                assert '<option value="5m">last 5 minutes</option>' in answer.read().decode()
            require_children(folder)
            demo.send_signal(signal.SIGINT)
            rest, errors = demo.communicate(timeout=GIVE_UP_SECONDS)
        finally:
            demo.kill()
    assert (demo.returncode, errors) == (0, "")
    assert rest.rstrip().endswith("The worker, Kafka and Redis are stopped.")
    wait_until_all_ended(folder)


def test_what_is_no_window_is_told_before_anything_starts() -> None:
    for words in (["--window", "soon"], ["--window", "5m", "--rounds", "10", "--json"]):
        found = CliRunner().invoke(app, ["demo", *words])
        assert found.exit_code == 2
        assert "--window" in found.output


def check_summary(told: dict[str, Any]) -> None:
    """It says what 2,048 rounds released, and counts are the true ones and noise."""
    tests = rounds_of_tests(65_535)
    mechanism, _ = calibrate(2, 1e-6, 65_535, 3, "blt", tests=tests)
    assert isinstance(mechanism, DiscoveryMechanism)
    assert told | {"kafka": "", "events_per_second": 0, "labels": []} == {
        "stream": "flights",
        "kafka": "",
        "rounds": 2048,
        "releases": 2048,
        "horizon": 65_535,
        "items_per_event": 3,
        "epsilon": 2.0,
        "delta": 1e-6,
        "sd": round(mechanism.sd(2048), 3),
        "events_per_second": 0,
        "labels": [],
    }
    assert re.fullmatch(r"127\.0\.0\.1:\d+", told["kafka"])
    assert told["events_per_second"] > 0
    true = Counter(item for event in islice(flight_events(), 2048) for item in json.loads(event)["items"])
    assert told["labels"], "carriers have hundreds of flights by now, and this round is one node"
    for released in told["labels"]:
        assert abs(released["count"] - true[released["label"]]) < 7 * released["sd"]


def test_no_child_outlives_it_when_it_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with started(folder) as demo:
        try:
            read_until(demo, "Subscribe")
            require_children(folder)
        finally:
            demo.kill()
    wait_until_all_ended(folder)


def test_past_the_horizon_it_goes_on_until_a_worker_that_dies_ends_it_with_one_sentence(
    tmp_path: Path,
) -> None:
    short = sys.executable, "-c", SHORT, "demo"
    with started(tmp_path / "demo", "--rate", "0", "--no-dashboard", command=short) as demo:
        try:
            read_until(demo, "in total")  # what the second epoch carries on
            for pid, words in processes_of(tmp_path / "demo").items():
                if "stream_dp.cli worker" in words:
                    with suppress(ProcessLookupError):  # the shell that watches over it ends by itself
                        os.kill(pid, signal.SIGKILL)
            _, errors = demo.communicate(timeout=GIVE_UP_SECONDS)
        finally:
            demo.kill()
    assert demo.returncode == 2
    assert "the worker has ended" in errors
    assert "Traceback" not in errors
    wait_until_all_ended(tmp_path / "demo")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(["--json"], "give --rounds"), (["--rounds", "65536"], "65,535 rounds in all")],
)
def test_a_mistake_starts_nothing(options: list[str], sentence: str) -> None:
    ran = CliRunner().invoke(app, ["demo", *options])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert sentence in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_flights_are_real_timed_and_in_order() -> None:
    values = list(flight_events())
    assert len(values) == 336_776
    assert next(flight_events(19_999)) == values[19_999]
    events = [json.loads(value) for value in values[:20_000]]
    assert events[0] == {"items": ["dest:IAH", "carrier:UA", "route:EWR-IAH"], "ts": "2013-01-01T10:15:00Z"}
    times = [event["ts"] for event in events]
    assert times == sorted(times)
    assert all(len(set(event["items"])) == 3 for event in events)
