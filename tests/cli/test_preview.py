"""`stream-dp preview`: only public logs, every candidate, and mistakes in one sentence."""

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.counters import COMPARED
from stream_dp.counters.calibration import calibrate
from stream_dp.dev.flights import flight_events
from stream_dp.planning.comparison import compared_name

EVENTS = 1_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("log") / "flights.jsonl"
    file.write_bytes(b"\n".join(islice(flight_events(), EVENTS)))
    return file


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["preview", *options], env={"COLUMNS": "200"})


def told(file: Path, *options: str) -> dict[str, Any]:
    result = run("--events", str(file), "--public", "--runs", "1", *options, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_mechanism_is_run_under_every_setting(log: Path) -> None:
    report = told(log, "--epsilon", "2,16", "--horizon", "1023,4095", "--items-per-event", "3")
    assert (report["events"], report["counted"], report["refused"]) == (EVENTS, {"3": 1.0}, [])
    candidates = report["candidates"]
    assert len(candidates) == 4 * len(COMPARED)
    by_setting = {
        (compared_name(each["mechanism"], each["discover"]), each["epsilon"], each["horizon"]): each
        for each in candidates
    }
    assert {name for name, *_ in by_setting} == set(COMPARED)
    for name in COMPARED:
        strict, loose = by_setting[name, 2, 4095], by_setting[name, 16, 1023]
        assert strict["ever"] < loose["ever"] <= report["labels"]
        assert strict["recall"]["50"] <= loose["recall"]["50"]
        assert loose["relative_error"] < 0.5


def test_known_labels_are_shown_from_the_first_round_on(log: Path, tmp_path: Path) -> None:
    names = tmp_path / "airports.txt"
    names.write_text("dest:LAX\ndest:ORD\ndest:nowhere\n")
    settings = "--mechanism", "binary", "--epsilon", "0.1"
    [alone], [known] = (
        told(log, *settings, *more)["candidates"] for more in ((), ("--known-labels", str(names)))
    )
    assert (alone["labels"], alone["first_label"]) == (0, None)
    assert (known["labels"], known["ever"], known["first_label"]) == (3, 3, 1)
    result = run("--events", str(log), "--public", "--known-labels", str(tmp_path / "none.txt"))
    assert result.exit_code != 0
    assert "cannot read the known labels" in result.output
    assert "Traceback" not in result.output


def test_people_read_a_row_for_every_candidate(log: Path) -> None:
    result = run("--events", str(log), "--public", "--runs", "2", "--epsilon", "8", "--mechanism", "binary")
    assert result.exit_code == 0
    assert "1,000 events with" in result.stdout
    assert "epsilon 8, horizon 1,023, items 4, delta 1e-06, unit event" in result.stdout
    [row] = [line.split() for line in result.stdout.splitlines() if line.startswith("binary")]
    assert len(row) == 7
    assert row[3].count("/") == 2
    assert "From 2 runs." in result.stdout


@pytest.mark.parametrize("kind", [".jsonl.gz", ".csv", ".parquet"])
def test_logs_are_read_as_a_replay_reads_them(kind: str, log: Path, tmp_path: Path) -> None:
    file = tmp_path / f"log{kind}"
    items = [json.loads(line)["items"] for line in log.read_text().splitlines()]
    if kind == ".jsonl.gz":
        file.write_bytes(gzip.compress(log.read_bytes()))
    elif kind == ".csv":
        quoted = (json.dumps(each).replace('"', '""') for each in items)
        file.write_text("items\n" + "\n".join(f'"{each}"' for each in quoted))
    else:
        pq.write_table(pa.table({"items": items}), file)
    report = told(file, "--mechanism", "binary")
    assert (report["events"], report["labels"]) == (EVENTS, told(log, "--mechanism", "binary")["labels"])


def test_a_log_that_is_not_said_to_be_public_is_not_even_opened(tmp_path: Path) -> None:
    result = run("--events", str(tmp_path / "missing.jsonl"))
    assert result.exit_code == 2
    [line] = result.stderr.replace("\n", " ").strip().split("error: ")[1:]
    assert line.startswith("on private data the output of preview has no guarantee at all")
    assert "--public" in line


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--mechanism", "unary"], "mechanism must be one of binary"),
        (["--discover", "every-2048"], "--discover must be default or every-round here, not 'every-2048'"),
        (["--mechanism", "binary,unary"], "not 'unary'"),
        (["--epsilon", "one"], "--epsilon takes numbers such as 1,2,4, not 'one'"),
        (["--items-per-event", "1.5"], "--items-per-event takes numbers"),
        (["--horizon", "1e6"], "--horizon takes numbers"),
        (["--horizon", "4095,999"], "a horizon of 999 ends before: raise --horizon"),
        (["--epsilon", "0"], "epsilon must be above 0"),
        (["--events", "log.txt"], "should end in .jsonl, .csv, .tsv (each"),
        (["--events", "missing.jsonl"], "cannot be read"),
    ],
)
def test_a_mistake_ends_with_one_sentence_and_status_2(options: list[str], sentence: str, log: Path) -> None:
    result = run("--events", str(log), "--public", *options)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_a_log_without_anything_to_count_is_a_mistake(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_text("{}\n")
    for options, needed in (
        (["--events", str(file)], "with items"),
        (["--events", str(log), "--unit", "user"], "users"),
    ):
        result = run(*options, "--public")
        assert result.exit_code == 2
        assert "holds no events that count" in result.stderr
        assert needed in result.stderr


def test_users_are_protected_where_that_is_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "users.jsonl"
    rows = [{"user": f"user {number % 6}", "items": [f"label {number % 3}"]} for number in range(600)]
    file.write_text("\n".join(map(json.dumps, rows)))
    for unit, labels in (("event", 3), ("user", 0)):  # 200 events hold a label, and 2 users
        report = told(
            file, "--unit", unit, "--mechanism", "binary", "--items-per-event", "3", "--epsilon", "8"
        )
        assert (report["unit"], report["counted"]) == (unit, {"3": 1.0})
        assert report["candidates"][0]["labels"] == labels


def test_windows_are_compared_with_what_the_last_rounds_held(log: Path) -> None:
    report = told(log, "--window", "400", "--epsilon", "2,16", "--items-per-event", "2")
    strict, loose = report["candidates"]
    assert (strict["mechanism"], strict["window"], report["shown"]) == ("window", 400, "window")
    mechanism, _ = calibrate(16.0, 1e-6, 400, 2, "window")
    assert (loose["sd"], loose["rho"]) == (
        pytest.approx(max(mechanism.sd(number) for number in range(1, 801))),
        mechanism.rho,
    )
    assert strict["sd"] > 3 * loose["sd"]
    assert loose["recall"]["10"] >= strict["recall"]["10"]
    assert loose["relative_error"] < 0.5, "of the last 400 events, not of all 1,000"
    printed = run("--events", str(log), "--public", "--runs", "1", "--window", "400").output
    assert "window 400" in printed
    assert "charged its rho once" in printed


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        (("--mechanism", "window"), "say how many, such as --window 60"),
        (("--mechanism", "blt", "--window", "60"), "leave --window or --mechanism blt out"),
        (("--window", "60", "--horizon", "1023"), "windows have no use for --horizon"),
        (("--window", "60", "--unit", "user"), "would be in every window"),
        (("--unit", "user-day"), "give it the log of one day, with --unit user"),
    ],
)
def test_what_windows_and_days_cannot_be_tried_with(
    log: Path, options: tuple[str, ...], mistake: str
) -> None:
    result = run("--events", str(log), "--public", *options)
    assert result.exit_code == 2
    assert mistake in " ".join(result.output.split())
