"""`stream-dp demo` as a newcomer meets it: real flights, real servers, a clean end."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from stream_dp.calibration import calibrate
from stream_dp.dev.flights import flight_events

DEMO = [sys.executable, "-m", "stream_dp.cli", "demo"]
SECONDS = 120


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


def summary(folder: Path, rounds: int, **environment: str) -> dict[str, Any]:
    command = [*DEMO, "--rounds", str(rounds), "--json", "--folder", str(folder)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=os.environ | environment, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert processes_of(folder) == {}
    return json.loads(ran.stdout)


def test_it_runs_headless_says_what_was_released_and_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    told = summary(tmp_path / "demo", 2048, STREAM_DP_EPSILON="50", STREAM_DP_STREAM="other")
    mechanism, _ = calibrate(2, 1e-6, 65_535, 3)
    taus = [mechanism.tau(number) for number in range(1, 2049)]
    assert told | {"kafka": "", "events_per_second": 0, "labels": []} == {
        "stream": "flights",
        "kafka": "",
        "rounds": 2048,
        "releases": 2048,
        "horizon": 65_535,
        "items_per_event": 3,
        "epsilon": 2.0,
        "delta": 1e-6,
        "sigma_squared": mechanism.sigma_squared,
        "sd": mechanism.sd(2048),
        "tau": {"min": min(taus), "max": max(taus)},
        "events_per_second": 0,
        "labels": [],
    }
    assert re.fullmatch(r"127\.0\.0\.1:\d+", told["kafka"])
    assert told["events_per_second"] > 0
    again = summary(tmp_path / "demo", 512)
    assert (again["rounds"], again["releases"]) == (2560, 512)
    for after in (told, again):
        true = Counter(
            item for event in islice(flight_events(), after["rounds"]) for item in json.loads(event)["items"]
        )
        sd = mechanism.sd(after["rounds"])
        assert after["labels"], (
            "carriers have hundreds of flights by now, and these rounds are unions of one and of two nodes"
        )
        for released in after["labels"]:
            assert released["sd"] == sd
            assert released["count"] >= mechanism.tau(after["rounds"])
            assert abs(released["count"] - true[released["label"]]) < 6 * sd


def started(folder: Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DEMO, "--folder", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        **options,
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


def test_its_snippet_subscribes_and_ctrl_c_stops_everything(tmp_path: Path) -> None:
    with started(tmp_path / "demo") as demo:
        try:
            text = read_until(demo, "round ")
            snippet = text[text.index("import json") : text.index("round 1 of")]
            with subprocess.Popen(
                [sys.executable, "-u", "-c", snippet], stdout=subprocess.PIPE, text=True
            ) as subscriber:
                assert subscriber.stdout is not None
                first = subscriber.stdout.readline()
                subscriber.kill()
            assert re.match(r"\d+ \[", first)
            demo.send_signal(signal.SIGINT)
            rest, errors = demo.communicate(timeout=SECONDS)
        finally:
            demo.kill()
    assert (demo.returncode, errors) == (0, "")
    assert rest.rstrip().endswith("The worker, Kafka and Redis are stopped.")
    assert processes_of(tmp_path / "demo") == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_child_outlives_it(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path / "demo") as demo:
        try:
            read_until(demo, "Subscribe")
            assert len(processes_of(tmp_path / "demo")) >= 3
            demo.send_signal(number)
            demo.communicate(timeout=SECONDS)
        finally:
            demo.kill()
    deadline = time.monotonic() + SECONDS
    while processes_of(tmp_path / "demo") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(tmp_path / "demo") == {}


def test_a_worker_that_dies_ends_it_with_one_sentence(tmp_path: Path) -> None:
    with started(tmp_path / "demo") as demo:
        try:
            read_until(demo, "round 1 of")
            for pid, words in processes_of(tmp_path / "demo").items():
                if "stream_dp.cli worker" in words:
                    os.kill(pid, signal.SIGKILL)
            _, errors = demo.communicate(timeout=SECONDS)
        finally:
            demo.kill()
    assert demo.returncode == 2
    assert "the worker has ended" in errors
    assert "Traceback" not in errors
    assert processes_of(tmp_path / "demo") == {}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(["--json"], "say with --rounds"), (["--rounds", "65536"], "65,535 rounds in all")],
)
def test_a_mistake_starts_nothing(options: list[str], sentence: str) -> None:
    ran = subprocess.run([*DEMO, *options], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 2
    assert sentence in ran.stderr
    assert "Traceback" not in ran.stderr


def test_flights_are_real_timed_and_in_order() -> None:
    events = [json.loads(event) for event in islice(flight_events(), 20_000)]
    assert events[0] == {"items": ["dest:IAH", "carrier:UA", "route:EWR-IAH"], "ts": "2013-01-01T10:15:00Z"}
    times = [event["ts"] for event in events]
    assert times == sorted(times)
    assert all(len(set(event["items"])) == 3 for event in events)
    assert next(flight_events(19_999)) == next(islice(flight_events(), 19_999, None))
    assert sum(1 for _ in flight_events()) == 336_776
