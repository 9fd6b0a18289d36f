"""Jobs from the command line, against a real broker and a real Redis: what they print, release and charge."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app, one_shot_run
from stream_dp.jobs import rows, runner
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.declared import one_shot
from stream_dp.jobs.defaults import GAUSSIAN_COUNT_ITEMS
from stream_dp.jobs.histogram import calibrate_gaussian_histogram
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.jobs.result import JobResult, decode_result
from stream_dp.jobs.steps import compute
from tests.real_events import real_records
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


@pytest.mark.apache("times")
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


def words_for(place: Place) -> list[str]:
    settings = place.settings
    where = ["--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis]
    return ["histogram", *where, "--unit", UNIT, "--epsilon", "4", "--items-per-user", "3", "--unmetered"]


def shown(ran: Result) -> JobResult:
    assert ran.exit_code == 0, ran.output
    return decode_result(ran.stdout.strip().encode())


def test_a_job_that_died_after_its_charge_goes_on_by_its_id(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies when the result is computed, and is then asked for again, when there are more records."""
    words = [*words_for(place), "--id", place.own_id("may"), "--json"]
    computed = []

    def dies(*given: object) -> JobResult:
        computed.append(compute(*given))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(runner, "compute", dies)
        assert command(*words).exit_code != 0
    assert len(place.charges()) == 1
    place.feed(list(real_records(500)))
    again = shown(command(*words))
    assert (again.labels, again.counts, again.end_offset) == (
        computed[0].labels,
        computed[0].counts,
        computed[0].end_offset,
    )
    once_more = command(*words)
    assert shown(once_more) == again
    assert "nothing is charged" in once_more.stderr
    [charge] = place.charges()
    assert charge.end_offset == EVENTS
    other = command(*words, "--epsilon", "5")
    assert other.exit_code == 2
    assert "used before with other parameters" in other.stderr


DYING = """
import os, signal, sys
from stream_dp.cli import app
from stream_dp.jobs import rows, runner
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.defaults import GAUSSIAN_COUNT_ITEMS
from stream_dp.jobs.histogram import calibrate_gaussian_histogram
from stream_dp.jobs.mechanisms import MECHANISMS
paid = runner.pay
def dies(*given):
    paid(*given)
    os.kill(os.getpid(), signal.SIGKILL)
runner.pay = dies
app(sys.argv[1:])
"""


def test_a_command_that_is_killed_says_before_how_it_goes_on(place: Place) -> None:
    words = words_for(place)
    killed = subprocess.run(
        [sys.executable, "-c", DYING, *words], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(place.charges()) == 1
    name = killed.stderr.partition("--id ")[2].split()[0]
    assert shown(command(*words, "--id", name, "--json")).id == name
    assert len(place.charges()) == 1


def test_an_id_is_that_of_one_topic(place: Place) -> None:
    shown(command(*words_for(place), "--id", place.own_id("one"), "--json"))
    with_other = [*words_for(place), "--topic", f"{place.settings.stream}.other", "--id", place.own_id("one")]
    refused = command(*with_other)
    assert refused.exit_code == 2
    assert "used before with other parameters" in refused.stderr


def test_a_result_is_written_to_a_file(place: Place, tmp_path: Path) -> None:
    words = [*words_for(place), "--id", place.own_id("files"), "--json"]
    files = {kind: tmp_path / f"best.{kind}" for kind in ("json", "csv", "parquet")}
    for file in files.values():
        result = shown(command(*words, "--output", str(file)))
    assert len(place.charges()) == 1
    assert decode_result(files["json"].read_bytes()) == result
    assert result.counts
    for table in (pacsv.read_csv(files["csv"]), pq.read_table(files["parquet"])):
        assert table.column("label").to_pylist() == result.labels
        for name, column in (("count", result.counts), ("low", result.low), ("high", result.high)):
            assert table.column(name).to_pylist() == column
        assert set(table.column("counts_what").to_pylist()) == {result.counts_what}
    assert result.counts_what
    about = decode_result(pq.read_schema(files["parquet"]).metadata[b"stream_dp.result"])
    assert about == msgspec.structs.replace(result, labels=[], counts=None, low=None, high=None)
    assert sorted(each.name for each in tmp_path.glob("*best*")) == ["best.csv", "best.json", "best.parquet"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("best.txt", "end in .parquet, .csv or .json"),
        ("no/best.csv", "there is no folder"),
        ("there.csv", "cannot be"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_charge(
    place: Place, tmp_path: Path, name: str, told: str
) -> None:
    (tmp_path / "there.csv").mkdir()
    ran = command(*words_for(place), "--output", str(tmp_path / name))
    assert ran.exit_code == 2
    assert told in " ".join(ran.stderr.split())
    assert place.charges() == []


def dies_after_the_charge(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command that is interrupted as soon as it has paid."""

    def dies(*given: object) -> JobResult:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(runner, "compute", dies)
        died = command(*words)
        assert died.exit_code not in (0, 2), died.output


def test_a_job_goes_on_with_the_defaults_that_it_was_admitted_with(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version has another default; what was charged pays for the old one."""
    words = [word for word in words_for(place) if word not in ("--items-per-user", "3")]
    words += ["--mechanism", "gaussian"]
    dies_after_the_charge([*words, "--id", place.own_id("old")], monkeypatch)
    [charge] = place.charges()

    monkeypatch.setitem(MECHANISMS, "histogram", {**MECHANISMS["histogram"]})

    @one_shot("histogram", "gaussian", "counts")
    def newer(epsilon: float, delta: float, items_per_user: int = 2) -> Calibrated:
        return calibrate_gaussian_histogram(epsilon, delta, items_per_user)

    went_on = shown(command(*words, "--id", place.own_id("old"), "--json"))
    assert went_on.parameters["items_per_user"] == GAUSSIAN_COUNT_ITEMS
    assert place.charges() == [charge]
    assert went_on.cost is not None
    assert went_on.cost.rho == charge.rho
    fresh = shown(command(*words, "--id", place.own_id("new"), "--json"))
    assert fresh.parameters["items_per_user"] == 2


def test_a_job_goes_on_with_the_mechanism_that_it_was_admitted_with(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version chooses another mechanism, which does not even take the same parameters."""
    settings = place.settings
    where = ["--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis]
    words = [
        "set-union",
        *where,
        "--unit",
        UNIT,
        "--epsilon",
        "4",
        "--alpha",
        "5",
        "--unmetered",
        "--id",
        place.own_id("mechanism-old"),
    ]
    dies_after_the_charge(words, monkeypatch)
    [charge] = place.charges()
    monkeypatch.setattr(one_shot_run, "default_mechanism", lambda job, given, beside_a_stream: "sips")
    named = command(*words, "--mechanism", "greedy")
    assert named.exit_code == 2
    assert "used before with other parameters" in named.stderr
    went_on = shown(command(*words, "--json"))
    assert (went_on.mechanism, went_on.parameters["alpha"]) == ("two-rounds", 5)
    assert shown(command(*words, "--json")) == went_on
    assert place.charges() == [charge]
    other = command(*words, "--alpha", "6")
    assert other.exit_code == 2
    fresh = [word for word in words if word not in ("--alpha", "5")]
    assert shown(command(*fresh, "--id", place.own_id("mechanism-new"), "--json")).mechanism == "sips"


class FullDisk(io.BytesIO):
    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_after_the_charge_costs_nothing_but_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*words_for(place), "--id", place.own_id("full"), "--json"]
    with monkeypatch.context() as patched:
        patched.setattr(rows, "_ROWS_AT_ONCE", 100)
        patched.setattr(rows, "_ROWS_IN_MEMORY", 200)
        patched.setattr("tempfile.TemporaryFile", FullDisk)
        full = command(*words)
    assert (full.exit_code, full.stdout) == (2, "")
    assert "run the job again with the same --id" in " ".join(full.stderr.split())
    [charge] = place.charges()
    place.feed(list(real_records(50)))
    assert shown(command(*words)).end_offset == EVENTS
    assert place.charges() == [charge]
