"""Subscribers of a real broker: the client library, `stream-dp tail` into the past, and the documents' snippets."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from kafka import KafkaProducer
from typer.testing import CliRunner

import stream_dp
from stream_dp.cli import app
from stream_dp.config.settings import Settings
from stream_dp.jobs.result import JobResult
from stream_dp.kafka import log
from stream_dp.releases.lookup import release_at
from stream_dp.releases.release import Release
from tests.example_releases import release
from tests.releases.topic_in_memory import numbered

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
_BLOCK = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def publish(kafka: str, topic: str, parts: list[Release], first_second: int = 0) -> None:
    """Each part a second after the one before, in as many batches as the producer likes, compressed by default."""
    codec = Settings(stream=topic).compression
    with KafkaProducer(bootstrap_servers=kafka, acks="all", compression_type=codec) as producer:
        for second, part in enumerate(parts, first_second):
            published = int((NOON + timedelta(seconds=second)).timestamp() * 1000)
            own = msgspec.structs.replace(part, stream=topic.rpartition(".")[0])
            producer.send(topic, msgspec.json.encode(own), timestamp_ms=published)


@pytest.fixture
def stream(kafka: str, topic_prefix: str) -> str:
    """Epoch 1 with 40 rounds in two parts each, then rounds 31 to 40 again, then 20 rounds of epoch 2."""
    log.create_topics(kafka, f"{topic_prefix}.releases")
    first = numbered(range(1, 41), parts=2)
    publish(kafka, f"{topic_prefix}.releases", first + first[60:] + numbered(range(1, 21), 2, 2, "22" * 16))
    return topic_prefix


@pytest.mark.apache("roles")
def test_history_and_resuming(kafka: str, stream: str) -> None:
    with stream_dp.subscribe(kafka, stream, "earliest") as everything:
        found = list(islice(everything, 60))
    assert [(each.epoch, each.round) for each in found] == [
        *((1, number) for number in range(1, 41)),
        *((2, number) for number in range(1, 21)),
    ]
    assert all(each.histogram == {"0": 900, "1": 899} for each in found)
    for handled in (0, 32, 39, 58):
        with stream_dp.subscribe(kafka, stream, position=found[handled].position) as rest:
            assert next(rest) == found[handled + 1]
    for start, expected in (("latest", (2, 20)), (7, (2, 7)), (NOON + timedelta(seconds=21), (1, 11))):
        with stream_dp.subscribe(kafka, stream, start) as subscription:
            first = next(subscription)
        assert (first.epoch, first.round) == expected


def test_a_live_chart_gives_the_history_of_its_stream(kafka: str, stream: str) -> None:
    chart = stream_dp.watch(kafka, stream)
    found = chart.history(every=10, labels=["0"])
    chart.close()
    assert found.equals(stream_dp.history(kafka, stream, every=10, labels=["0"]))
    assert found.num_rows > 3


def test_a_history_of_windows_counts_what_came_lately(kafka: str, topic_prefix: str) -> None:
    """Tea comes 30 times a round and milk once, from round 31 on; of milk nobody knows more than that."""
    topic = f"{topic_prefix}.releases"
    log.create_topics(kafka, topic)
    made = []
    for number in range(1, 41):
        counts = {"tea": 600 + 30 * number} | ({"milk": 500 + number} if number > 30 else {})
        made.append(msgspec.structs.replace(release(number, counts), previous=number - 1))
    publish(kafka, topic, made)
    found = stream_dp.history(kafka, topic_prefix, every=10, window=20).to_pylist()
    by_round = {(each["round"], each["label"]): each for each in found}
    assert [each["round"] for each in found if each["label"] == "tea"] == [9, 19, 29, 39, 40]
    for number, came in ((29, 600), (39, 600), (40, 600)):
        row = by_round[number, "tea"]
        assert row["count"] == came
        assert row["low"] < came < row["high"] < came + 100
    assert by_round[9, "tea"]["count"] == 870, "the epoch is younger than the window"
    assert by_round[40, "milk"]["count"] < 540
    assert {each["found"] for each in found} == {None}


def test_results_of_jobs_are_one_table(kafka: str, topic_prefix: str) -> None:
    """Parts of one result follow each other, those that were sent again are there once, and strangers' not at all."""
    topic = f"{topic_prefix}.results"
    with pytest.raises(stream_dp.LogRefused, match="does not exist"):
        stream_dp.results(kafka, topic_prefix)
    log.create_topics(kafka, topic)
    counted = JobResult(
        id="q",
        status="done",
        digest="0" * 32,
        job="histogram",
        mechanism="gaussian",
        ts="2026-01-31T12:00:00.000Z",
        labels=[f"{number:06}" + "x" * 300 for number in range(1_000)],
        counts=[*range(1_000)],
        low=[*range(1_000)],
        high=[*range(1_000)],
        counts_what="Counts some.",
    )
    union = JobResult(id="u", status="done", job="set-union", mechanism="greedy", labels=["tea"])
    parts = counted.encode()
    assert len(parts) > 1
    refused = JobResult(id="r", status="refused", reason="no budget").encode()
    strange = [
        *msgspec.structs.replace(union, ts="yesterday").encode(),
        msgspec.json.encode(msgspec.structs.replace(counted, labels=["tea"])),
    ]
    with KafkaProducer(bootstrap_servers=kafka, acks="all") as producer:
        for value in (b"?", *strange, *refused, *parts[:1], *parts, *union.encode(), None):
            producer.send(topic, value, b"key")
    table = stream_dp.results(kafka, topic_prefix)
    assert table.num_rows == 1_001
    assert table["label"].to_pylist() == [*counted.labels, "tea"]
    assert table["count"].to_pylist() == table["high"].to_pylist() == [*range(1_000), None]
    first, *_, last = table.to_pylist()
    assert (first["time"], first["id"], first["counts_what"]) == (NOON, "q", "Counts some.")
    assert (last["time"], last["job"], last["mechanism"]) == (None, "set-union", "greedy")


def test_a_subscriber_gets_what_comes_later(kafka: str, stream: str) -> None:
    with stream_dp.subscribe(kafka, stream) as subscription:
        assert next(subscription).round == 20
        publish(kafka, f"{stream}.releases", numbered(range(21, 23), 2, 2, "22" * 16), 500)
        assert [next(subscription).round, next(subscription).round] == [21, 22]


@pytest.mark.apache("times")
def test_the_release_of_a_moment_is_the_newest_then(kafka: str, stream: str) -> None:
    topic = f"{stream}.releases"
    for second, expected in (
        (-1, None),
        (0, None),  # of two parts, one is out
        (1, (1, 1)),
        (2.5, (1, 1)),
        (79, (1, 40)),
        (81, (1, 40)),  # when round 31 came again
        (101, (2, 1)),
        (10**6, (2, 20)),
    ):
        found = release_at(kafka, topic, NOON + timedelta(seconds=second))
        assert (None if found is None else (found.epoch, found.round)) == expected, second


def tail(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["tail", *words])
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


def test_tail_reaches_into_the_past(kafka: str, stream: str) -> None:
    place = ("--stream", stream, "--kafka", kafka)
    for words, expected in (
        (("--at", "7"), (2, 7)),
        (("--at", "37", "--epoch", "1"), (1, 37)),
        (("--at", "21"), (2, 20)),
        (("--at", "41", "--epoch", "1"), (1, 40)),
        (("--at", "2026-01-31T12:00:21Z"), (1, 11)),
        (("--at", "2026-01-31T13:00:21+01:00"), (1, 11)),
        (("--at", "2026-01-31T12:00:21"), (1, 11)),
        (("--at", "2026-06-30", "--epoch", "1"), (1, 40)),
        (("--from", "2026-01-31T12:00:21Z", "--rounds", "1"), (1, 11)),
        (("--from", "latest", "--epoch", "1", "--rounds", "1"), (1, 40)),
        (("--from", "3", "--epoch", "1", "--rounds", "1"), (1, 3)),
    ):
        status, out, told = tail(*place, *words, "--json")
        assert status == 0, told
        found = json.loads(out)
        assert (found["epoch"], found["round"], found["counts"]) == (*expected, [900, 899]), words
    status, out, _ = tail(*place, "--at", "7")
    assert status == 0
    assert out.startswith("round 7 of 65,535")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--at", "41", "--epoch", "3"), "does not hold a release of round 41 or before of epoch 3"),
        (("--at", "2025-01-01"), "ask for a later one; its history begins with round 1 of epoch 1"),
        (("--at", "2025-01-01"), "does not hold a release of 2025-01-01T00:00:00+00:00 or before"),
        (("--at", "noon"), "--at takes a round such as 1000 or a time such as"),
        (("--from", "0"), "--from takes earliest, latest, a round"),
        (("--at", "3", "--from", "earliest"), "leave --from, --rounds and --window out"),
    ],
)
def test_tail_says_what_it_cannot_show(kafka: str, stream: str, words: tuple[str, ...], says: str) -> None:
    status, out, told = tail("--stream", stream, "--kafka", kafka, *words)
    assert (status, out) == (2, "")
    assert says in told


def snippets(page: str) -> list[str]:
    return [
        block
        for block in _BLOCK.findall((ROOT / page).read_text())
        if "shop.releases" in block or "subscribe(" in block
    ]


def run(snippet: str, kafka: str, stream: str, folder: Path) -> str:
    """The first line that a snippet prints, on this broker and stream."""
    program = snippet.replace("localhost:9092", kafka).replace("shop.releases", f"{stream}.releases")
    assert kafka in program
    command = [sys.executable, "-u", "-c", program.replace('"shop"', repr(stream))]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            return process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("page", "number"),
    [*(("docs/clients.md", number) for number in (0, 1, 4, 5)), ("README.md", 0)],
)
def test_the_snippets_of_the_documents_run(
    kafka: str, stream: str, tmp_path: Path, page: str, number: int
) -> None:
    """Each is run as it stands, on this stream, until it has shown a whole release."""
    shown = snippets(page)
    assert len(shown) == (6 if page == "docs/clients.md" else 1)
    largest_first = r"(1|20) (\{'0': 900, '1': 899\}|\[\('0', 900\), \('1', 899\)\])$"
    assert re.match(largest_first, run(shown[number], kafka, stream, tmp_path))


def test_the_snippet_that_shows_windows_runs(kafka: str, stream: str, tmp_path: Path) -> None:
    [snippet] = [each for each in snippets("docs/clients.md") if "windows(" in each]
    assert re.match(r"20 \{'0': \d+, ", run(snippet, kafka, stream, tmp_path))


def test_the_snippet_that_smooths_runs_where_labels_are_kept(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    [snippet] = [each for each in snippets("docs/clients.md") if "smoothed()" in each]
    log.create_topics(kafka, f"{topic_prefix}.releases")
    kept = [msgspec.structs.replace(each, shown="kept") for each in numbered(range(1, 4))]
    publish(kafka, f"{topic_prefix}.releases", kept)
    assert re.match(r"1 0 900 \d+$", run(snippet, kafka, topic_prefix, tmp_path))


def test_the_javascript_reads_fields_that_the_dashboard_sends() -> None:
    [script] = re.findall(
        r"^```javascript\n(.*?)^```$", (ROOT / "docs/clients.md").read_text(), re.MULTILINE | re.DOTALL
    )
    described = json.loads((ROOT / "stream_dp/dashboard/static/openapi.json").read_text())
    frame = set(described["components"]["schemas"]["Frame"]["properties"])
    used = set(re.findall(r"frame\.(\w+)", script))
    assert {"release", "ids", "counts", "labels"} <= used <= frame
    assert set(re.findall(r"frame\.release\.(\w+)", script)) <= set(Release.__struct_encode_fields__)
    [path] = re.findall(r"8080(/[\w/]+)", script)
    assert path in described["paths"]
