"""Jobs on files from the command line, which meet Redis and no broker."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import Result
from redis import Redis
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.jobs.result import decode_result
from stream_dp.store.ledger import Ledger
from tests.real_events import real_records
from tests.system.job_place import UNIT


def command(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def real_file(folder: Path) -> Path:
    """Real events as a file; where they have no users, every flight's number is one."""
    file = folder / "events.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as out:
        for number, value in enumerate(real_records(6_000)):
            event = json.loads(value)
            if UNIT == "event":
                event["user"] = f"passenger {number}"
            out.write(json.dumps(event).encode() + b"\n")
    return file


@pytest.fixture(scope="module")
def events_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return real_file(tmp_path_factory.mktemp("events"))


def true_tops(file: Path, k: int) -> list[str]:
    holders: dict[str, set[str]] = {}
    with gzip.open(file) as lines:
        for line in lines:
            event = json.loads(line)
            if event.get("user"):
                for item in event["items"]:
                    holders.setdefault(item, set()).add(event["user"])
    return sorted(holders, key=lambda item: -len(holders[item]))[:k]


def test_best_sellers_of_a_file_are_found_and_its_source_is_charged(
    redis_url: str, topic_prefix: str, events_file: Path
) -> None:
    words = ("--file", str(events_file), "--source", topic_prefix, "--redis", redis_url)
    result = command("top-k", *words, "-k", "10", "--epsilon", "10", "--json")
    assert result.exit_code == 0, result.output
    labels = decode_result(result.stdout.strip().encode()).labels
    assert len(set(labels) & set(true_tops(events_file, 20))) >= 8
    with Redis.from_url(redis_url) as redis:
        [charge] = Ledger(redis, topic_prefix).charges()
    assert (charge.first_offset, charge.end_offset) == (0, None)


def test_a_set_union_of_a_file_and_a_picture_of_its_counts(
    redis_url: str, topic_prefix: str, events_file: Path, tmp_path: Path
) -> None:
    words = ("--file", str(events_file), "--source", topic_prefix, "--redis", redis_url, "--epsilon", "4")
    union = command("set-union", *words, "--items-per-user", "20")
    assert union.exit_code == 0, union.output
    assert "Whether the data of any one user" in " ".join(union.stdout.split())
    picture = tmp_path / "counts.png"
    counts = command("histogram", *words, "--items-per-user", "10", "--plot", str(picture))
    assert counts.exit_code == 0, counts.output
    assert "█" in counts.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_dry_run_needs_no_server_and_reads_nothing(tmp_path: Path) -> None:
    nowhere = ("--redis", "redis://127.0.0.1:1/0", "--file", str(tmp_path / "none.csv"), "--source", "x")
    result = command("top-k", *nowhere, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["source"], told["cost"]["delta"]) == ("x", 5e-7)
    assert told["cost"]["epsilon"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["top-k"], "the stream has no name"),
        (["top-k", "--file", "no.csv"], "must name the data source"),
        (["top-k", "--file", "no.csv", "--source", "x", "-k", "0"], "k must be a whole number"),
        (["top-k", "--file", "no.csv", "--source", "x", "--plot", "x.png"], "releases no counts to plot"),
        (["top-k", "--file", "no.csv", "--source", "x", "--from", "7"], "read whole"),
        (
            ["set-union", "--file", "no.csv", "--source", "x", "--mechanism", "greedi"],
            "did you mean 'greedy'",
        ),
        (["histogram", "--file", "no.csv", "--source", "x", "--mechanism", "known"], "needs bins"),
        (["histogram", "--file", "no.csv", "--source", "x", "--epsilon", "0"], "epsilon"),
    ],
)
def test_mistakes_are_told_in_one_sentence(words: list[str], told: str) -> None:
    result = command(*words)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
