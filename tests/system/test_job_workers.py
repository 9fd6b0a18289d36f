"""Workers of jobs: which requests each of them answers, and how a job and a worker are ended."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_dp.jobs import runner
from stream_dp.jobs.result import JobResult
from tests.system import forked_program
from tests.system.job_place import EVENTS, TOP, UNION, Place, job_place
from tests.system.streams import AnyWorker, ended
from tests.system.waiting import GIVE_UP_SECONDS, wait_until


@pytest.fixture
def place(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Place]:
    with job_place(kafka, redis_url, topic_prefix, tmp_path) as place:
        yield place


def endless_reading(monkeypatch: pytest.MonkeyPatch, reading: threading.Event) -> None:
    """Make reading go on until it is cancelled."""

    def endless(*arguments: Any) -> JobResult:
        reading.set()
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.05)
            arguments[-1](0, 400)
        raise AssertionError("nothing ends the reading")

    monkeypatch.setattr(runner, "compute", endless)


def test_a_job_is_cancelled_while_it_reads_and_its_charge_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = threading.Event()
    endless_reading(monkeypatch, reading)
    with place.worker():
        place.ask(id="q", **TOP)
        assert reading.wait(GIVE_UP_SECONDS)
        place.ask(id="q", cancel=True)
        [result, *_] = place.results(1)
    assert (result.status, result.labels, len(place.charges())) == ("cancelled", [], 1)
    assert result.cost is not None


def test_a_job_cancelled_before_its_turn_costs_nothing_and_one_that_is_done_stays_done(place: Place) -> None:
    place.ask(id="q", **TOP)
    place.ask(id="q", cancel=True)
    with place.worker():
        [result, *_] = place.results(1)
        assert (result.status, result.cost, place.charges()) == ("cancelled", None, [])
        place.ask(id="r", **TOP)
        wait_until(lambda: place.store.result("r") is not None, lambda: "no result")
        before = len(place.results(2))
        place.ask(id="r", cancel=True)
        assert place.results(before + 1)[-1].status == "done"


@pytest.mark.apache("groups")
def test_two_workers_share_the_requests_between_them(place: Place) -> None:
    with place.worker(("top-k", "histogram")), place.worker(("set-union",)):
        place.ask(id="top", **TOP)
        place.ask(id="union", **UNION)
        place.send(b"?")
        results = place.results(3)
    assert sorted((result.id or "", result.status) for result in results) == [
        ("", "refused"),
        ("top", "done"),
        ("union", "done"),
    ]


def start_jobs(settings: Mapping[str, str], log_file: Path) -> AnyWorker:
    return forked_program.start(settings, log_file, "jobs", "worker", "--json")


def start_faust(settings: Mapping[str, str], log_file: Path) -> AnyWorker:
    """One of the apps, as the `faust` command runs it."""
    environment = os.environ | {f"STREAM_DP_{name.upper()}": value for name, value in settings.items()}
    words = [sys.executable, "-m", "faust", "-A", "topologies.roles:set_union", "worker"]
    with log_file.open("ab") as output:
        return subprocess.Popen(words, stdout=output, stderr=output, env=environment)


@pytest.mark.parametrize(("start", "request_fields"), [(start_jobs, TOP), (start_faust, UNION)])
def test_the_faust_apps_answer_what_waited_for_them_and_end_when_asked(
    place: Place,
    start: Callable[[Mapping[str, str], Path], AnyWorker],
    request_fields: dict[str, Any],
    tmp_path: Path,
) -> None:
    own = place.settings
    settings = {"stream": own.stream, "kafka": own.kafka, "redis": own.redis, "unmetered": "true"}
    log_file = tmp_path / "faust.log"
    place.ask(id="q", **request_fields)
    process = start(settings, log_file)
    try:
        [result] = place.results(1)
        assert (result.id, result.status) == ("q", "done")
        process.terminate()
        assert ended(process) == 0, log_file.read_text()
    finally:
        process.kill()
        ended(process)
    if start is start_jobs:
        lines = [json.loads(line) for line in log_file.read_text().splitlines()]
        assert {line["stream"] for line in lines} == {own.stream}
        assert f"job q: read {EVENTS} of {EVENTS}" in [line["event"] for line in lines]


def test_votes_in_a_topic_are_answered_by_a_worker_that_is_asked_to(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """An item of an event is an example, a tab and a label."""
    votes = [json.dumps({"user": f"t{number}", "items": ["q1\tcat"]}).encode() for number in range(150)]
    with closing(Place(kafka, redis_url, topic_prefix, tmp_path, "user")) as place:
        place.feed(votes)
        fields: dict[str, Any] = {
            "job": "label-votes",
            "mechanism": "stable",
            "epsilon": 8,
            "delta": 1e-6,
            "k": 1,
        }
        place.ask(id="votes", **fields, examples=["q1", "q2"])
        with place.worker(("label-votes",)):
            [result] = place.results(1)
    assert (result.status, result.labels, result.bottom) == ("done", ["q1\tcat"], True)
    assert result.parameters["examples"] == 2
    [charge] = place.charges()
    assert charge.unit == "user"
