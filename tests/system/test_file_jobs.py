"""Jobs on files from the command line: what they release, whose budget they spend, and what they refuse."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.jobs import engine
from stream_dp.jobs.file_rows import read_file
from stream_dp.jobs.result import decode_result
from stream_dp.store.ledger import Ledger
from tests.object_store import object_store
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


@pytest.fixture
def own_file(kafka: str, redis_url: str, topic_prefix: str, events_file: Path, tmp_path: Path) -> Path:
    """The events in a file of this test's alone, which is registered as a source of its own per user."""
    file = tmp_path / "own.jsonl.gz"
    file.write_bytes(events_file.read_bytes() + gzip.compress(topic_prefix.encode()))
    words = ["--file", str(file), "--source", topic_prefix, "--unit", "user"]
    registered = command("source", "register", *words, "--kafka", kafka, "--redis", redis_url)
    assert registered.exit_code == 0, registered.output
    return file


@pytest.fixture
def words(kafka: str, redis_url: str, own_file: Path) -> list[str]:
    """What names the file and the servers."""
    return ["--file", str(own_file), "--redis", redis_url, "--kafka", kafka]


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
    redis_url: str, kafka: str, topic_prefix: str, events_file: Path, words: list[str]
) -> None:
    where = ["--source", topic_prefix, "--redis", redis_url, "--kafka", kafka]
    assert command("budget", "set", *where, "--epsilon", "20", "--delta", "1e-5").exit_code == 0
    result = command("top-k", *words, "-k", "10", "--epsilon", "10", "--json")
    assert result.exit_code == 0, result.output
    labels = decode_result(result.stdout.strip().encode()).labels
    assert len(set(labels) & set(true_tops(events_file, 20))) >= 8
    with Redis.from_url(redis_url) as redis:
        [charge] = Ledger(redis, topic_prefix).charges()
    assert (charge.first_offset, charge.end_offset) == (0, None)


def test_a_set_union_of_a_file_and_its_counts(words: list[str]) -> None:
    words = [*words, "--epsilon", "4", "--unmetered"]
    union = command("set-union", *words, "--items-per-user", "20")
    assert union.exit_code == 0, union.output
    assert "Taking any one user, with all of their events, out of the data" in " ".join(union.stdout.split())
    assert "UNMETERED: the source had no budget when this was charged" in " ".join(union.stdout.split())
    counts = command("histogram", *words, "--items-per-user", "10")
    assert counts.exit_code == 0, counts.output
    assert "█" in counts.stdout


def test_people_are_told_what_no_interval_covers_and_operators_what_was_left_out(words: list[str]) -> None:
    ran = command("histogram", *words, "--unmetered")
    assert ran.exit_code == 0, ran.output
    told = " ".join(ran.stdout.split())
    assert re.search(
        r"counts with at most \d+ items, a choice of them if there are more, as \d+% \(\d+% to \d+%\) of",
        told,
    ), told
    assert re.search(r"about \d+% of what they hold is counted", told), told
    assert "malformed ones (private numbers)" in ran.stderr
    assert "private numbers" not in ran.stdout


def test_a_dry_run_needs_no_server_and_reads_nothing(tmp_path: Path) -> None:
    nowhere = ("--redis", "redis://127.0.0.1:1/0", "--file", str(tmp_path / "none.csv"), "--source", "x")
    result = command("top-k", *nowhere, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["source"], told["cost"]["delta"]) == ("x", 1e-6)
    assert told["cost"]["epsilon"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["top-k"], "the stream has no name"),
        (["top-k", "--file", "no.csv", "--source", "x", "-k", "0"], "k must be a whole number"),
        (["top-k", "--file", "no.csv", "--source", "x", "--from", "7"], "read whole"),
        (
            ["set-union", "--file", "no.csv", "--source", "x", "--mechanism", "greedi"],
            "did you mean 'greedy'",
        ),
        (["histogram", "--file", "no.csv", "--source", "x", "--mechanism", "known"], "needs --bins"),
        (["histogram", "--file", "no.csv", "--source", "x", "--epsilon", "0"], "epsilon"),
    ],
)
def test_mistakes_are_told_in_one_sentence(words: list[str], told: str) -> None:
    result = command(*words)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_a_dry_run_says_whether_the_budget_has_room_and_what_stays(
    words: list[str], topic_prefix: str, redis_url: str, kafka: str
) -> None:
    where = ["--source", topic_prefix, "--redis", redis_url, "--kafka", kafka]
    told = json.loads(command("top-k", *words, "--dry-run", "--json").stdout)
    assert "has no budget" in told["forecast"]["why_not"]
    assert command("budget", "set", *where, "--epsilon", "2", "--delta", "1e-5").exit_code == 0
    told = json.loads(command("top-k", *words, "--dry-run", "--json").stdout)["forecast"]
    assert (told["fits"], told["unit"], told["source"]) == (True, "user", topic_prefix)
    assert command("top-k", *words, "--json").exit_code == 0
    left = json.loads(command("budget", "show", *where, "--json").stdout)["left_everywhere"]
    assert told["left"] == left
    shown = command("top-k", *words, "--epsilon", "9", "--dry-run")
    assert "It would be refused: the charge" in " ".join(shown.stdout.split())
    assert "Nothing was charged." in shown.stdout


def test_a_copy_of_a_file_is_the_file_and_an_edited_one_is_another(
    words: list[str], own_file: Path, topic_prefix: str, redis_url: str, kafka: str, tmp_path: Path
) -> None:
    where = ["--redis", redis_url, "--kafka", kafka]
    assert (
        command(
            "budget", "set", "--source", topic_prefix, *where, "--epsilon", "2", "--delta", "1e-5"
        ).exit_code
        == 0
    )
    copy, edited = tmp_path / "copy.jsonl.gz", tmp_path / "edited.jsonl.gz"
    copy.write_bytes(own_file.read_bytes())
    edited.write_bytes(own_file.read_bytes() + gzip.compress(b"x"))
    done = command("top-k", "--file", str(copy), *where, "--json")
    assert decode_result(done.stdout.encode()).source == topic_prefix
    refused = command("top-k", "--file", str(edited), "--source", topic_prefix, *where)
    assert refused.exit_code == 2
    assert f"stream-dp source register --file {edited}" in " ".join(refused.stderr.split())
    taken = command("source", "register", "--file", str(copy), "--source", f"{topic_prefix}-2", *where)
    assert taken.exit_code == 2
    assert f"belongs to the data source {topic_prefix!r}" in " ".join(taken.stderr.split())


def test_a_file_that_is_written_while_it_is_read_releases_nothing(
    words: list[str], own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write the file could otherwise have a registered one charged and another one read."""

    def swapped(*given: Any) -> None:
        read_file(*given)
        status = own_file.stat()
        own_file.write_bytes(own_file.read_bytes())
        os.utime(own_file, ns=(status.st_atime_ns, status.st_mtime_ns))

    monkeypatch.setattr(engine, "read_file", swapped)
    told = command("top-k", *words, "--unmetered", "--json")
    assert (told.exit_code, told.stdout) == (2, "")
    assert "was written while it was read" in " ".join(told.stderr.split())


def test_an_object_of_a_store_is_the_file_that_it_was_copied_from(
    words: list[str],
    own_file: Path,
    events_file: Path,
    topic_prefix: str,
    redis_url: str,
    kafka: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = ["--redis", redis_url, "--kafka", kafka, "--unmetered"]
    with object_store(monkeypatch) as store:
        name = store.put("exports/events.jsonl.gz", own_file.read_bytes())
        done = command("top-k", "--file", name, *where, "--epsilon", "10", "--json")
        assert done.exit_code == 0, done.output
        result = decode_result(done.stdout.encode())
        assert result.source == topic_prefix
        assert len(set(result.labels) & set(true_tops(events_file, 20))) >= 8

        none = command("top-k", "--file", "s3://lake/none.csv", *where)
        assert none.exit_code == 2
        assert "there is no object 's3://lake/none.csv'" in " ".join(none.stderr.split())

        def replaced(*given: Any) -> None:
            read_file(*given)
            store.put("exports/events.jsonl.gz", own_file.read_bytes() + gzip.compress(b"x"))

        monkeypatch.setattr(engine, "read_file", replaced)
        told = command("top-k", "--file", name, *where, "--json")
        assert (told.exit_code, told.stdout) == (2, "")
        assert "was written while it was read" in " ".join(told.stderr.split())
    with Redis.from_url(redis_url) as redis:
        assert len(Ledger(redis, topic_prefix).charges()) == 2
    away = command("top-k", "--file", name, *where)
    assert away.exit_code == 2
    assert "cannot be reached" in " ".join(away.stderr.split())


def test_votes_of_a_file_label_examples_and_charge_their_source_once(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    votes, examples, table = tmp_path / "votes.csv", tmp_path / "examples.txt", tmp_path / "labels.csv"
    rows = [
        f"{topic_prefix}-{number},{query},{label}"
        for number in range(150)
        for query, label in (("q1", "cat"), ("q2", "dog"))
    ]
    votes.write_text(
        "\n".join(
            ["teacher,query,label", *rows, *(f"{topic_prefix}-{each},q3,own {each}" for each in range(150))]
        )
    )
    examples.write_text("q1\nq2\nq3\n")
    where = ["--kafka", kafka, "--redis", redis_url]
    words = ["label-votes", "--file", str(votes), "--examples", str(examples), *where, "--unmetered"]
    named = ["--file", str(votes), "--source", topic_prefix, *where]
    assert command("source", "register", *named, "--unit", "user").exit_code == 0
    ran = command(*words, "--epsilon", "8", "--output", str(table), "--id", f"{topic_prefix}-votes")
    assert ran.exit_code == 0, ran.output
    told = " ".join(ran.stdout.split())
    assert "q1 cat q2 dog Examples that are not listed had no clear votes." in told
    assert (
        "Taking any one record of the training data, from which one of the teachers has learned, out of"
        in told
    )
    assert table.read_text().splitlines() == ['"query","label"', '"q1","cat"', '"q2","dog"']
    again = command(*words, "--epsilon", "8", "--id", f"{topic_prefix}-votes", "--json")
    assert decode_result(again.stdout.encode()).labels == ["q1\tcat", "q2\tdog"]
    with Redis.from_url(redis_url) as redis:
        [charge] = Ledger(redis, topic_prefix).charges()
    assert charge.what.startswith("label-votes by stable")
    labels = tmp_path / "animals.txt"
    labels.write_text("cat\ndog\n")
    argmax = [
        *words,
        "--mechanism",
        "argmax",
        "--labels",
        str(labels),
        "--protect",
        "teacher",
        "--epsilon",
        "8",
    ]
    found = decode_result(command(*argmax, "--json").stdout.encode())
    assert found.labels[:2] == ["q1\tcat", "q2\tdog"]
    assert len(found.labels) == 3
    refused = command(*words, "--mechanism", "argmax")
    assert refused.exit_code == 2
    assert "needs --labels" in " ".join(refused.stderr.split())


def test_votes_of_a_source_that_counts_events_are_refused(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    votes, examples = tmp_path / "votes.csv", tmp_path / "examples.txt"
    votes.write_text(f"teacher,query,label\nt1,{topic_prefix},cat\n")
    examples.write_text(topic_prefix)
    where = ["--kafka", kafka, "--redis", redis_url]
    named = ["--file", str(votes), "--source", topic_prefix, *where]
    assert command("source", "register", *named, "--unit", "event").exit_code == 0
    words = ["--file", str(votes), "--examples", str(examples), *where, "--unmetered"]
    refused = command("label-votes", *words)
    assert refused.exit_code == 2
    assert "nothing would bound the votes of one teacher" in " ".join(refused.stderr.split())
    with Redis.from_url(redis_url) as redis:
        assert Ledger(redis, topic_prefix).charges() == []


def test_a_file_of_events_is_never_asked_about_people(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(f"customer,sku\na,{topic_prefix}\n")
    servers = ["--kafka", kafka, "--redis", redis_url]
    words = ["source", "register", "--file", str(file), "--source", topic_prefix, *servers]
    unsaid = command(*words)
    assert unsaid.exit_code == 2
    assert "give --unit user, which protects all rows of a person together" in " ".join(unsaid.stderr.split())
    assert command(*words, "--unit", "event").exit_code == 0
    asked = ["top-k", "--file", str(file), "--item", "sku", "--unmetered", *servers]
    refused = command(*asked, "--user", "customer")
    assert refused.exit_code == 2
    assert "counts per event, so each row is protected by itself" in " ".join(refused.stderr.split())
    with Redis.from_url(redis_url) as redis:
        assert Ledger(redis, topic_prefix).charges() == []
    assert command(*asked).exit_code == 0
