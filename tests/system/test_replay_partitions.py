"""`stream-dp replay` and `stream-dp preview` of topics with several partitions."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.replay.source import TopicSource
from tests.system.example_events import event
from tests.system.streams import Stream, small_stream
from tests.system.waiting import wait_until

NOON = 1_769_860_800_000
PARTITIONS = 3


@pytest.fixture
def shop(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[tuple[Stream, Stream]]:
    """A stream over three partitions, and another one, of as many, that spends the budget of the first."""
    with ExitStack() as both:

        def made(name: str, **changed: Any) -> Stream:
            values = {"partitions": PARTITIONS, "rounds": "ticks", "write_barriers": False, **changed}
            return both.enter_context(small_stream(kafka, redis_url, name, tmp_path, **values))

        first = made(topic_prefix)
        yield first, made(f"{topic_prefix}.again", source=first.settings.events)


def orders(count: int) -> list[Record]:
    """Events in three partitions, of which the last gets a few only; their times go up and down a little."""
    return [
        Record(
            0,
            NOON + 1_000 * (number // 2 * 2) + number % 2,
            b"k%d" % number,
            event(f"{number}"),
            min(number % 7, 2) if number % 7 < 5 else 0,
            (("shop", b"north"),),
        )
        for number in range(count)
    ]


def command(target: Stream, *words: str) -> list[str]:
    own, file = target.settings, target.folder / "again.toml"
    values = {"stream": own.stream, "kafka": own.kafka, "redis": own.redis, "source": own.source}
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value))
    return [*words, "--settings", str(file)]


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def done(target: Stream, *words: str) -> dict[str, Any]:
    result = run(*command(target, "replay", *words, "--json"))
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def refusal(target: Stream, *words: str) -> str:
    result = run(*command(target, *words))
    assert (result.exit_code, "Traceback" in result.output) == (2, False), result.output
    return " ".join(result.stderr.split())


def content(stream: Stream) -> list[list[tuple[bytes | None, bytes | None]]]:
    """Keys and values of each partition of the events topic, in order."""
    return [[(record.key, record.value) for record in stream.events(number)] for number in range(PARTITIONS)]


def test_each_partition_comes_again_in_its_place_and_order(shop: tuple[Stream, Stream]) -> None:
    source, target = shop
    source.write(source.settings.events, orders(40))
    words = ("--topic", source.settings.events, "--as-fast-as-possible")
    early = done(target, *words, "--to", "2026-01-31T12:00:20Z")
    assert early == {"into": target.settings.events, "replayed": 20, "already": 0}
    assert done(target, *words, "--dry-run")["already"] == 20
    assert done(target, *words) == {"into": target.settings.events, "replayed": 20, "already": 20}
    assert done(target, *words)["replayed"] == 0
    assert content(source) == content(target)
    headers = [dict(record.headers) for record in target.events(2)]
    assert {each["shop"] for each in headers} == {b"north"}
    marks = [(each["replay"] or b"").partition(b":")[2] for each in headers]
    assert marks == [b"2/%d" % number for number in range(len(marks))]


def test_rows_come_in_turn_or_by_their_times(shop: tuple[Stream, Stream]) -> None:
    """A partition keeps its order where its times go back; only public times may say which one is next."""
    source, _ = shop
    times = {0: [5, 1, 9], 1: [2, 3], 2: [9]}
    records = [Record(0, NOON + t, None, b"x", number) for number, each in times.items() for t in each]
    source.write(source.settings.events, records)
    for by_times, expected in (
        (True, [(2, 1), (3, 1), (5, 0), (1, 0), (9, 0), (9, 2)]),
        (False, [(5, 0), (2, 1), (9, 2), (1, 0), (3, 1), (9, 0)]),
    ):
        rows = TopicSource(source.settings.kafka, source.settings.events, by_times=by_times).rows()
        assert [(row.timestamp - NOON, row.partition) for row in rows if row.timestamp] == expected


def test_one_that_was_killed_goes_on_in_every_partition(shop: tuple[Stream, Stream]) -> None:
    source, target = shop
    late = [each._replace(timestamp=NOON + 86_400_000) for each in orders(300)]
    source.write(source.settings.events, [*orders(300), *late])
    words = ("--topic", source.settings.events, "--speed", "600", "--public-times")
    program = [sys.executable, "-m", "stream_dp.cli", *command(target, "replay", *words)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: sum(target.ends()) >= 50, lambda: "nothing is replayed")
        finally:
            process.send_signal(signal.SIGKILL)
    told = done(target, *words[:2], "--as-fast-as-possible")
    assert 50 <= told["already"] <= 300, "it was not stopped in the middle"
    assert told["replayed"] == 600 - told["already"]
    assert content(source) == content(target)


@pytest.mark.apache("offsets")
def test_a_source_that_was_made_anew_is_noticed_in_any_partition(shop: tuple[Stream, Stream]) -> None:
    source, target = shop
    source.write(source.settings.events, orders(30))
    words = ("--topic", source.settings.events, "--as-fast-as-possible")
    done(target, *words)
    source.rewrite(
        source.settings.events,
        [each._replace(value=b"new") if each.partition == 2 else each for each in orders(60)],
    )
    said = refusal(target, "replay", *words)
    assert (
        f"its record at offset {len(target.events(2)) - 1} of partition 2 is missing or has changed" in said
    )


def test_what_has_no_one_order_is_refused(shop: tuple[Stream, Stream], kafka: str, topic_prefix: str) -> None:
    source, target = shop
    source.write(source.settings.events, orders(5))
    words = ("replay", "--topic", source.settings.events, "--as-fast-as-possible")
    assert "has 3 partitions, and an offset says nothing about the others" in refusal(
        target, *words, "--from", "3"
    )
    for name, partitions in (("one", 1), ("four", 4)):
        log.create_topics(kafka, f"{topic_prefix}.{name}", partitions=partitions)
        said = refusal(target, *words, "--into", f"{topic_prefix}.{name}")
        assert f"and '{topic_prefix}.{name}' has {log.partitions_text(partitions)}" in said
    assert "replay into a topic with 3 partitions" in said
    made = f"{topic_prefix}.made"
    assert done(target, *words[1:], "--into", made)["replayed"] == 5
    assert log.partitions_of(kafka, made) == 3


def test_a_file_goes_to_all_partitions_in_turn(shop: tuple[Stream, Stream], tmp_path: Path) -> None:
    source, _ = shop
    lines = [event(str(number)) for number in range(10)]
    (tmp_path / "some.jsonl").write_bytes(b"\n".join(lines))
    words = (str(tmp_path / "some.jsonl"), "--source", source.settings.events, "--as-fast-as-possible")
    assert done(source, *words)["replayed"] == 10
    assert [[value for _, value in part] for part in content(source)] == [
        lines[start::3] for start in range(3)
    ]
    assert done(source, *words)["already"] == 10


def mapped(stream: Stream, kafka: str) -> tuple[str, ...]:
    """Settings of a stream that reads the events topic of `stream` as another team's."""
    file = stream.folder / "mapped.toml"
    file.write_text(
        f'stream = "{stream.settings.stream}.m"\nkafka = "{kafka}"\nredis = "{stream.settings.redis}"\n[events]\n'
        f'topic = "{stream.settings.events}"\nitems = "lines[*].sku"\nuser = "customer"\n'
    )
    return "--settings", str(file)


def test_a_topic_of_another_team_is_written_to_only_where_it_is_named(
    shop: tuple[Stream, Stream], kafka: str, tmp_path: Path
) -> None:
    source, _ = shop
    lines = [b'{"lines": [{"sku": "tea"}]}', b'{"items": ["tea"]}']
    (tmp_path / "some.jsonl").write_bytes(b"\n".join(lines))
    topic, settings = source.settings.events, mapped(source, kafka)
    words = ("replay", str(tmp_path / "some.jsonl"), "--source", topic, "--as-fast-as-possible", *settings)
    refused = run(*words)
    assert refused.exit_code == 2
    assert f"give --into {topic}" in " ".join(refused.stderr.split())
    planned = run(*words, "--into", topic, "--dry-run", "--json")
    assert (json.loads(planned.stdout)["events"], json.loads(planned.stdout)["bad"]) == (1, 1)
    assert run(*words, "--into", topic).exit_code == 0
    assert sum(source.ends()) == 2
    source.feed([b"foreign"])
    assert "records that are not of this replay" in " ".join(run(*words, "--into", topic).stderr.split())


def test_a_preview_reads_all_partitions_as_the_settings_map_them(
    shop: tuple[Stream, Stream], kafka: str
) -> None:
    source, _ = shop
    values = [
        json.dumps({"customer": f"u{number % 90}", "lines": [{"sku": f"s{number % 3}"}]}).encode()
        for number in range(600)
    ]
    source.spread([*values, b"no order"], PARTITIONS)
    words = ("preview", "--topic", source.settings.events, "--public", "--runs", "1", "--mechanism", "binary")
    result = run(*words, *mapped(source, kafka), "--epsilon", "16", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["events"], told["labels"], told["candidates"][0]["labels"]) == (601, 3, 3)
    as_ours = run(*words, "--kafka", kafka)
    assert as_ours.exit_code == 2
    assert "holds no events that count" in " ".join(as_ours.stderr.split())
    assert "either a file" in " ".join(run("preview", "--public").stderr.split())
    assert "has no topic 'nowhere'" in " ".join(
        run("preview", "--topic", "nowhere", "--public", "--kafka", kafka).stderr.split()
    )
