"""Jobs from the command line, against a real broker and a real Redis: what they print, release and charge."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.jobs.result import decode_result
from tests.system.job_place import (
    EVENTS,
    TOP,
    UNIT,
    Place,
    anna,
    job_place,
    marks_of,
)


@pytest.fixture
def place(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Place]:
    with job_place(kafka, redis_url, topic_prefix, tmp_path) as place:
        yield place


@pytest.mark.same_on_any_broker("what Redis holds")
def test_the_command_draws_from_a_budget_and_shows_what_is_left(place: Place) -> None:
    settings = place.settings
    where = ["--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis]
    words = [
        "top-k",
        "--mechanism",
        "pay-what-you-get",
        "--budget",
        "anna",
        "--marks",
        "30",
        "--queries",
        "4",
    ]
    words += ["--epsilon", "4", "-k", "5", "--unit", UNIT, "--unmetered", *where]
    told = CliRunner().invoke(app, [*words, "--dry-run"])
    assert told.exit_code == 0, told.output
    assert "all jobs of the budget anna release" in " ".join(told.output.split())
    assert place.charges() == []
    ran = CliRunner().invoke(app, [*words, "--json"])
    assert ran.exit_code == 0, ran.output
    marks = marks_of(decode_result(ran.stdout.encode()))
    assert anna(place) == (30 - marks, 3)
    shown = CliRunner().invoke(app, ["budget", "show", *where])
    assert f"budget/anna has left: {30 - marks} of 30 marks, 3 of 4 queries" in " ".join(shown.output.split())
    listed = json.loads(CliRunner().invoke(app, ["budget", "show", *where, "--json"]).stdout)
    assert listed["pay_what_you_get"][0]["marks_left"] == 30 - marks
    refused = CliRunner().invoke(app, [*words, "--marks", "31"])
    assert refused.exit_code == 2
    assert "opened with other numbers" in " ".join(refused.stderr.split())


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_a_topic_is_read_by_command_between_two_times(place: Place) -> None:
    settings = place.settings
    words = ("--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis, "--unmetered")
    result = command("top-k", *words, "--unit", UNIT, "--epsilon", "4", "--to", "1200", "--json")
    assert result.exit_code == 0, result.output
    found = decode_result(result.stdout.strip().encode())
    assert (found.first_offset, found.end_offset) == (0, 1200)
    for empty in (["--from", "2100-01-01T00:00:00"], ["--to", "1969-12-31T23:59:59"]):
        told = command("top-k", *words, "--unit", UNIT, *empty)
        assert told.exit_code == 2, told.output
        assert "is empty" in told.stderr
    [charge] = place.charges()
    assert charge.end_offset == 1200
    [answer] = place.answers({"id": "old", **TOP, "source": {"from": "1969-07-20T20:17:40Z"}})
    assert (answer.status, answer.first_offset, answer.end_offset) == ("done", 0, EVENTS)


@pytest.mark.same_on_any_broker("what Redis holds")
def test_jobs_are_listed(place: Place) -> None:
    place.answers({"id": "q", **TOP})
    words = ("--stream", place.settings.stream, "--redis", place.settings.redis, "--json")
    told = json.loads(command("jobs", "list", *words).stdout)
    assert told == {"jobs": [{"id": "q", "status": "done", "progress": "done"}], "schedules": []}
