"""Results of commands on the stream's own topic: written once, after the charge, and nothing else's place."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError
from typer.testing import CliRunner, Result

from stream_dp.cli import app, one_shot_run
from stream_dp.config.times import iso_timestamp, milliseconds, parse_time
from stream_dp.dashboard.results import read_result
from stream_dp.jobs.publishing import publish
from stream_dp.jobs.result import JobResult, decode_result, whole
from stream_dp.kafka import log
from stream_dp.kafka.clients import admin_client
from tests.dashboard.running import running
from tests.docs.shown import ROOT, blocks
from tests.system.broker_clients import all_records
from tests.system.job_place import TOP, UNIT, Place, job_place, teas
from tests.system.streams import ended
from tests.system.waiting import wait_until
from tests.system.worker_process import PROCESSES

LARGE = ["--mechanism", "sips", "--epsilon", "8", "--unit", "event"]


@pytest.fixture
def place(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Place]:
    with job_place(kafka, redis_url, topic_prefix, tmp_path) as place:
        log.create_topics(kafka, place.settings.releases)
        yield place


def words_for(place: Place, job: str = "histogram") -> list[str]:
    settings = place.settings
    where = ["--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis]
    return [job, *where, "--unmetered", "--json", "--publish"]


COUNTS = ["--unit", UNIT, "--epsilon", "4", "--items-per-user", "3"]


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def released(ran: Result) -> JobResult:
    assert ran.exit_code == 0, ran.output
    return decode_result(ran.stdout.strip().encode())


@pytest.mark.apache("roles")
def test_a_result_is_published_once_however_often_it_is_asked_for(place: Place) -> None:
    words = [*words_for(place), *COUNTS, "--id", place.own_id("may")]
    first = command(*words)
    result = released(first)
    assert f"{place.settings.results} now holds this result" in first.stderr
    again = command(*words)
    assert released(again) == result
    assert f"{place.settings.results} held this result already" in again.stderr
    [record] = all_records(place.settings.kafka, place.settings.results)
    assert (record.key, decode_result(record.value or b"")) == (place.own_id("may").encode(), result)
    assert result.ts == iso_timestamp(record.timestamp)
    assert len(place.charges()) == 1


def test_only_who_asks_for_it_publishes(place: Place) -> None:
    words = [
        word for word in [*words_for(place), *COUNTS, "--id", place.own_id("may")] if word != "--publish"
    ]
    result = released(command(*words))
    assert place.published() == []
    assert released(command(*words, "--publish")) == result  # what is done can be published later, at no cost
    assert [decode_result(each) for each in place.published()] == [result]
    assert len(place.charges()) == 1
    dry = command(*words, "--publish", "--id", place.own_id("june"), "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert len(place.published()) == 1


def test_the_dashboard_shows_it_beside_those_of_the_worker(place: Place, tmp_path: Path) -> None:
    place.answers({"id": "asked", **TOP})
    result = released(command(*words_for(place), *COUNTS, "--id", place.own_id("run")))
    with running(place.settings.kafka, place.settings.stream, tmp_path) as dashboard:
        wait_until(lambda: len(dashboard.get("/api/v1/results")) == 2, dashboard.log.read_text)
        told = {each["id"]: each for each in dashboard.get("/api/v1/results")}
    run = told[place.own_id("run")]
    assert told.keys() == {"asked", place.own_id("run")}
    assert run["labels"] == result.labels[:200]
    assert run["counts"] == (result.counts or [])[:200]
    assert run["source"] == place.settings.data_source


def killed_around_publishing(words: list[str], after: bool) -> None:
    """Run a command that ends itself before it publishes, or right after."""

    def dies(*given: Any) -> None:
        if after:
            publish(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(one_shot_run, "publish", dies)  # noqa: B010
    app(words)


@pytest.mark.parametrize("after", [False, True])
def test_a_command_that_is_killed_around_publishing_publishes_once(place: Place, after: bool) -> None:
    words = [*words_for(place), *COUNTS, "--id", place.own_id("may")]
    killed = PROCESSES.Process(target=killed_around_publishing, args=(words, after))
    killed.start()
    assert ended(killed) == -signal.SIGKILL
    assert len(place.published()) == after
    result = released(command(*words))
    assert [decode_result(each) for each in place.published()] == [result]
    assert len(place.charges()) == 1


@pytest.mark.apache("outages")
def test_a_broker_that_goes_away_before_publishing_costs_nothing_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*words_for(place), *COUNTS, "--id", place.own_id("may")]

    def gone(*_: object) -> bool:
        raise KafkaTimeoutError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(one_shot_run, "publish", gone)
        failed = command(*words)
    assert failed.exit_code != 0
    assert place.published() == []
    result = released(command(*words))
    assert [decode_result(each) for each in place.published()] == [result]
    assert len(place.charges()) == 1


def test_an_id_that_others_have_used_there_is_refused_before_the_charge(place: Place) -> None:
    place.answers({"id": "q", **TOP})
    charges = len(place.charges())
    refused = command(*words_for(place), *COUNTS, "--id", "q")
    assert refused.exit_code == 2
    assert "choose another --id" in refused.stderr
    assert len(place.charges()) == charges
    assert len(place.published()) == 1


HOSTILE: tuple[Any, ...] = (
    b"{",
    b"\xff" * 100,
    b"[" * 50_000,
    b'"text"',
    b'{"id": "z", "status": "done", "labels": [1]}',
    json.dumps({"id": "x", "status": "done", "labels": ["a"], "sd": int("9" * 400)}).encode(),
    json.dumps({"id": "y", "status": "done", "labels": ["a"], "cost": {"rho": int("9" * 400)}}).encode(),
)


def test_records_of_strangers_in_the_topic_stop_neither_the_command_nor_the_page(
    place: Place, tmp_path: Path
) -> None:
    for value in HOSTILE:
        place.write(place.settings.results, value)
    result = released(command(*words_for(place), *COUNTS, "--id", place.own_id("june")))
    with running(place.settings.kafka, place.settings.stream, tmp_path) as dashboard:
        wait_until(
            lambda: place.own_id("june") in [each["id"] for each in dashboard.get("/api/v1/results")],
            dashboard.log.read_text,
        )
        told = dashboard.get("/api/v1/results")
    assert [each["id"] for each in told] == [place.own_id("june"), "y", "x"]
    assert told[0]["labels"] == result.labels[:200]
    assert told[1]["cost"] == {}


def test_a_result_of_another_source_says_whose_budget_paid(place: Place, tmp_path: Path) -> None:
    other = f"{place.settings.stream}.other"
    file = tmp_path / "orders.csv"
    file.write_text(teas(other))
    where = ["--file", str(file), "--source", other, "--epsilon", "4", "--unit", "user"]
    words = [*words_for(place), *where, "--id", place.own_id("file")]
    registered = command(
        "source", "register", "--file", str(file), "--source", other, "--unit", "user",
        "--kafka", place.settings.kafka, "--redis", place.settings.redis,
    )  # fmt: skip
    assert registered.exit_code == 0, registered.output
    result = released(command(*words))
    assert result.source == other
    [value] = place.published()
    shown = read_result(b"file", value)
    assert shown is not None
    assert (shown.source, shown.labels) == (other, ["tea"])


@pytest.mark.apache("batches")
def test_a_topic_that_takes_no_record_of_that_size_is_told_and_gets_it_later(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    results = f"{topic_prefix}.results"
    with admin_client(kafka) as admin:
        few = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "20000"}}
        admin.create_topics({results: few})
        place = Place(kafka, redis_url, topic_prefix, tmp_path, unit="event")
        try:
            event = [json.dumps({"items": [f"{number:04d}" + "x" * 600]}).encode() for number in range(100)]
            place.feed(event * 30)
            words = [*words_for(place, "set-union"), *LARGE, "--id", place.own_id("many")]
            refused = command(*words)
            assert refused.exit_code == 2
            assert "max.message.bytes to 1048588 or more" in refused.stderr
            assert place.published() == []
            admin.delete_topics([results])  # the embedded broker changes no settings of a topic
            wait_until(lambda: results not in admin.list_topics(), lambda: f"{results} is not deleted")
            log.create_topics(kafka, results)
            result = released(command(*words))
            assert len(result.labels) == 100
            assert whole(place.published()) == result
            assert len(place.charges()) == 1
        finally:
            place.close()


def test_without_a_stream_there_is_no_place_to_publish_to(place: Place) -> None:
    settings = place.settings
    where = ["--topic", settings.events, "--kafka", settings.kafka, "--redis", settings.redis]
    refused = command("histogram", *where, "--unmetered", "--publish")
    assert refused.exit_code == 2
    assert "give --stream NAME" in refused.stderr


[DAILY] = [block for block in blocks((ROOT / "docs" / "jobs.md").read_text(), "sh") if "yesterday" in block]


def daily(place: Place, folder: Path, day: str, stream_dp: str) -> str:
    """What the script of docs/jobs.md prints for this day, where `stream-dp` is this line of a shell."""
    (folder / "stream-dp").write_text(f"#!/bin/sh\n{stream_dp}\n")
    (folder / "stream-dp").chmod(0o755)
    (folder / "daily.sh").write_text(DAILY.replace("shop", place.settings.stream))
    environment = os.environ | surroundings(place) | {"PATH": f"{folder}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["sh", "daily.sh", day], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def surroundings(place: Place) -> dict[str, str]:
    return {
        "STREAM_DP_KAFKA": place.settings.kafka,
        "STREAM_DP_REDIS": place.settings.redis,
        "STREAM_DP_UNMETERED": "true",
    }


def daily_here(place: Place, folder: Path, day: str) -> str:
    """The same, without another start of Python: the script's words are given to the command in this process."""
    printed = 'printf "%s\\n" "$@"'
    words = daily(place, folder, day, printed).splitlines()
    ran = CliRunner().invoke(app, words, env=surroundings(place))
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_a_job_of_every_day_is_charged_once_however_often_it_is_tried(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """It reads the records of its own day, and the next day's job begins where it ended."""
    with closing(Place(kafka, redis_url, topic_prefix, tmp_path, unit="event")) as place:
        for item, time in (
            ("salt", "2026-01-30T23:59:59.999"),
            ("tea", "2026-01-31T00:00:00"),
            ("tea", "2026-01-31T23:59:59.999"),
            ("milk", "2026-02-01T00:00:00"),
        ):
            place.feed([json.dumps({"items": [item]}).encode()] * 1000, at=milliseconds(parse_time(time)))
        first = daily(place, tmp_path, "2026-01-31", f'exec {sys.executable} -m stream_dp.cli "$@"')
        assert daily_here(place, tmp_path, "2026-01-31") == first
        [charge] = place.charges()
        [result] = map(decode_result, place.published())
        assert (result.id, result.labels) == (f"{place.settings.stream}-2026-01-31", ["tea"])
        assert (charge.first_offset, charge.end_offset) == (1000, 3000)
        daily_here(place, tmp_path, "2026-02-01")
        assert sorted((each.first_offset, each.end_offset) for each in place.charges()) == [
            (1000, 3000),
            (3000, 4000),
        ]


def test_a_job_of_every_day_is_that_of_yesterday_unless_a_day_is_named() -> None:
    def yesterday() -> str:
        return f"{datetime.now(UTC) - timedelta(days=1):%F}"

    before = yesterday()
    program = f'{DAILY.splitlines()[0]}\necho "$day"'
    told = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert before <= told <= yesterday()
