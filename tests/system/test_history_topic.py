"""The topic of how counts grew, on real servers: rows of one release in a while, whatever became of its writer."""

import json
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from kafka import KafkaAdminClient
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.release import Release
from stream_dp.releases.table_row import Row, decode_value
from stream_dp.workers.history import HistoryWriter
from tests.docs.schemas import schema
from tests.example_releases import release
from tests.system.streams import Stream, ended
from tests.system.waiting import wait_until

NOON = 1_769_860_800_000
ROUNDS, APART = 12, 20_000
"""A release every twenty seconds: three a minute."""


def shown(name: str, number: int) -> Release:
    """Milk comes in round 5; in round 1 there is no label yet."""
    counts = {"tea": 2_000 + number, "milk": 500 + number, "päron": 150}
    known = {
        label: count for label, count in counts.items() if number > 1 and (label != "milk" or number >= 5)
    }
    made = release(number, known, name)
    return msgspec.structs.replace(made, ts=iso_timestamp(NOON + number * APART), previous=number - 1)


def made(kafka: str, name: str, folder: Path) -> Stream:
    """A stream without a worker, whose releases are there.  It has no Redis."""
    stream = Stream(Settings(stream=name, kafka=kafka, redis="redis://127.0.0.1:1/0"), folder)
    log.create_topics(kafka, stream.settings.releases)
    for number in range(1, ROUNDS + 1):
        value = msgspec.json.encode(shown(name, number))
        stream.write(stream.settings.releases, [Record(0, NOON + number * APART, b"s", value)])
    return stream


def records(stream: Stream) -> list[Record]:
    topic = stream.settings.history_topic
    return stream.records(topic) if topic in log.topics(stream.settings.kafka) else []


def rows(stream: Stream) -> list[Row]:
    found = [decode_value(each.value or b"") for each in records(stream)]
    assert all(row is not None for row in found)
    return [row for row in found if row is not None]


def write_all(stream: Stream, table_format: str = "json", start: str = "earliest") -> None:
    with HistoryWriter(stream.settings, table_format, start) as writer:
        wait_until(
            lambda: writer.write(0.2) >= 0 and [row.round for row in rows(stream)][-1:] == [ROUNDS],
            lambda: str(rows(stream)[-3:]),
        )
        assert writer.write(0.2) == 0


def test_it_has_the_rows_of_the_first_release_of_each_minute(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    stream = made(kafka, topic_prefix, tmp_path)
    write_all(stream)
    minutes = {1: (), 3: ("tea", "päron"), 6: ("tea", "milk", "päron"), 9: ("tea", "milk", "päron")}
    expected = [
        (number, label) for number, labels in (minutes | {12: minutes[9]}).items() for label in labels
    ]
    assert [(row.round, row.label) for row in rows(stream)] == expected
    tea = [row for row in rows(stream) if row.label == "tea"]
    assert [(row.count, row.ts) for row in tea] == [
        (2_000 + number, iso_timestamp(NOON + number * APART)) for number in (3, 6, 9, 12)
    ]
    for record, row in zip(records(stream), rows(stream), strict=True):
        assert schema("row").is_valid(json.loads(record.value or b""))
        assert record.key == f"1.{row.round}.{'00' * 16}".encode()
        assert record.timestamp == NOON + row.round * APART


@pytest.mark.parametrize("table_format", ["json", "connect"])
@pytest.mark.parametrize("written", [1, 2, 3, 4, 5, 10])
def test_a_writer_that_follows_a_dead_one_writes_what_is_missing_and_nothing_else(
    kafka: str, topic_prefix: str, tmp_path: Path, written: int, table_format: str
) -> None:
    whole = made(kafka, f"{topic_prefix}-whole", tmp_path)
    write_all(whole, table_format)
    expected = [(each.key, each.value, each.timestamp) for each in records(whole)]
    torn = made(kafka, topic_prefix, tmp_path)
    log.create_topics(kafka, torn.settings.history_topic)
    torn.write(torn.settings.history_topic, records(whole)[:written])
    write_all(torn, table_format, start="latest")
    assert [(each.key, each.value, each.timestamp) for each in records(torn)] == expected


def test_who_writes_in_another_format_goes_on_behind_a_label_that_it_would_leave_out(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    stream = Stream(Settings(stream=topic_prefix, kafka=kafka, redis="redis://127.0.0.1:1/0"), tmp_path)
    log.create_topics(kafka, stream.settings.releases)
    value = msgspec.json.encode(release(1, {"tea": 300, "\x00": 200, "milk": 150}, topic_prefix))
    stream.write(stream.settings.releases, [Record(0, NOON, b"s", value)])
    with HistoryWriter(stream.settings) as writer:
        wait_until(lambda: writer.write(0.2) >= 0 and len(rows(stream)) == 3, lambda: str(rows(stream)))
    written = records(stream)[:2]  # the second one is what the other format leaves out
    with closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        admin.delete_topics([stream.settings.history_topic])
    wait_until(lambda: not records(stream), lambda: "the topic is still there")
    log.create_topics(kafka, stream.settings.history_topic)
    stream.write(stream.settings.history_topic, written)
    with HistoryWriter(stream.settings, "connect") as writer:
        wait_until(lambda: writer.write(0.2) >= 0 and len(rows(stream)) >= 3, lambda: str(rows(stream)))
    assert [row.label for row in rows(stream)] == ["tea", "\x00", "milk"]


def test_the_program_is_killed_and_goes_on(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    whole = made(kafka, f"{topic_prefix}-whole", tmp_path)
    with HistoryWriter(whole.settings, every=1) as writer:
        wait_until(lambda: writer.write(0.2) >= 0 and len(rows(whole)) == 30, lambda: str(rows(whole)))
    stream = made(kafka, topic_prefix, tmp_path)
    for least in (1, 30):
        process = stream.start_command("history", "--every", "1")
        wait_until(
            lambda least=least: len(records(stream)) >= least,  # type: ignore[misc]
            lambda: stream.log_file.read_text(),
        )
        process.kill()
        ended(process)
    assert [(each.key, each.value) for each in records(stream)] == [
        (each.key, each.value) for each in records(whole)
    ]


@pytest.mark.parametrize(
    ("key", "value"), [(b"customer 7", b"something else"), (b"1.2.zz", b"{}"), (b"1.2.00", None)]
)
def test_a_topic_of_something_else_is_refused_in_a_sentence(
    kafka: str, topic_prefix: str, tmp_path: Path, key: bytes, value: bytes | None
) -> None:
    stream = made(kafka, topic_prefix, tmp_path)
    log.create_topics(kafka, stream.settings.history_topic)
    stream.write(stream.settings.history_topic, [Record(0, NOON, key, value)])
    found = CliRunner().invoke(app, ["history", "--stream", topic_prefix, "--kafka", kafka])
    assert found.exit_code == 2
    assert "holds a record that is not of a history: only `stream-dp history` may write there" in (
        " ".join(found.output.split())
    )
    assert len(records(stream)) == 1
