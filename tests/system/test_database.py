"""The table in a database: a real Kafka Connect keeps a real PostgreSQL equal to the newest release."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

import stream_dp
from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp, milliseconds
from stream_dp.events.record import Record
from stream_dp.kafka import log
from stream_dp.releases.release import Release, decode_release
from stream_dp.releases.table_row import Row
from stream_dp.workers.history import HistoryWriter
from stream_dp.workers.resume import NewEpoch
from stream_dp.workers.table import TableWriter
from tests.docs.shown import ROOT, blocks
from tests.example_releases import release
from tests.kafka_connect.worker import ConnectWorker, kafka_connect
from tests.postgresql import Database, postgresql
from tests.system.example_events import some_events
from tests.system.streams import Stream, small_stream
from tests.system.waiting import wait_until

pytestmark = pytest.mark.apache("beside", alone=True)

TIME = 1_769_860_800_000
PAGE = (ROOT / "docs" / "clients.md").read_text()
OF_TABLE, OF_HISTORY = blocks(PAGE, "properties")
PANELS = [
    panel["targets"][0]["rawSql"]
    for panel in json.loads((ROOT / "docs" / "operations" / "grafana-history.json").read_text())["panels"]
]


def test_the_documents_show_what_the_panel_asks() -> None:
    assert PANELS[0] in PAGE


def connector(stream: str, database: Database) -> str:
    """The connector as the documents show it; only the names and the database's address are others."""
    return renamed(OF_TABLE, stream, database)


def renamed(connector: str, stream: str, database: Database) -> str:
    shown = dict(line.split("=", 1) for line in connector.splitlines())
    address = shown["connection.url"].replace("localhost:5432", f"127.0.0.1:{database.port}")
    of_stream = "name", "topics", "collection.name.format"
    assert all(shown[each].startswith("shop") for each in of_stream)
    names = {each: stream + shown[each].removeprefix("shop") for each in of_stream}
    return "".join(f"{key}={value}\n" for key, value in (shown | names | {"connection.url": address}).items())


@dataclass
class Sink:
    """A connector for each of two streams, which keeps a table of the stream's name in the database.

    And one for a third stream, which adds to a history of it.
    """

    connect: ConnectWorker
    database: Database
    streams: tuple[str, str, str]

    def await_equal(self, stream: Stream, shown: Callable[[], Release]) -> None:
        """Return when the rows are what the release that is newest then shows, in every column."""
        name = stream.settings.stream

        def equal() -> bool:
            states = [task["state"] for task in self.connect.tasks(name)]
            assert states in ([], ["RUNNING"]), self.connect.log.read_text()[-5_000:]
            rows = self._rows(name)
            told = [(row.label, row.count, row.sd, row.round, row.ts, row.epoch) for row in rows]
            return sorted(told) == expected(shown())

        wait_until(equal, lambda: f"{self.database.rows(name)} instead of {expected(shown())}")
        with stream_dp.read_table(stream.settings.kafka, name) as table:
            rows = {row.label: row for row in self._rows(name)}
            assert rows == table.rows(), "the intervals are those that the table says"

    def _rows(self, name: str) -> list[Row]:
        """The rows in the database; their time, which is a `timestamptz`, is written as releases write it."""
        found = self.database.rows(name)
        return [msgspec.convert({**row, "ts": iso_timestamp(_milliseconds(row["ts"]))}, Row) for row in found]


def _milliseconds(ts: str) -> int:
    """The moment of a `timestamptz`, which PostgreSQL gives with its zone."""
    moment = datetime.fromisoformat(ts)
    assert moment.tzinfo is not None, "the column has no zone"
    return milliseconds(moment)


def expected(shown: Release) -> list[tuple[str, int, float, int, str, int]]:
    """What the release says of each label, in order."""
    same = shown.round, shown.ts, shown.epoch
    return sorted(
        (label, count, shown.sd, *same) for label, count in zip(shown.labels, shown.counts, strict=True)
    )


@pytest.fixture(scope="module")
def sink(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    streams = f"shop-{uuid4().hex[:8]}", f"shop-{uuid4().hex[:8]}", f"shop_{uuid4().hex[:8]}"
    log.create_topics(kafka, f"{streams[2]}.history")
    for name in streams[:2]:
        log.create_topics(kafka, f"{name}.table", configs={"cleanup.policy": "compact"})
    with postgresql("shop") as database, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_PASSWORD", "none is asked for")
        connectors = [connector(name, database) for name in streams[:2]]
        connectors.append(renamed(OF_HISTORY, streams[2], database))
        with kafka_connect(tmp_path_factory.mktemp("connect") / "worker", kafka, *connectors) as connect:
            yield Sink(connect, database, streams)


def test_rows_equal_the_newest_release_when_labels_come_change_and_leave(
    sink: Sink, kafka: str, redis_url: str, tmp_path: Path
) -> None:
    with small_stream(kafka, redis_url, sink.streams[0], tmp_path, delta=0.1) as stream:

        def newest() -> Release:
            return decode_release(stream.releases()[-1].value or b"")

        words = ("table", "--format", "connect", "--every", "0.1")
        stream.start_command(*words)
        worker = stream.start()
        for seed, until in ((1, 40), (2, 60)):
            stream.feed(some_events(until if seed == 1 else 20, seed))
            stream.wait_until_round(until, worker)
            assert newest().labels
            sink.await_equal(stream, newest)
        stream.stop(worker)
        before = set(newest().labels)
        worker = stream.start(new_epoch=NewEpoch(without_labels=True))
        stream.wait_until_logged("epoch 2")
        stream.feed(some_events(8, seed=3))
        stream.wait_until(lambda: newest().epoch == 2 and newest().round == 8, worker)
        assert before - set(newest().labels), "a label has to leave"
        sink.await_equal(stream, newest)


def test_no_label_stops_the_sink_and_a_writer_that_died_leaves_no_row_behind(
    sink: Sink, kafka: str, tmp_path: Path
) -> None:
    settings = Settings(stream=sink.streams[1], kafka=kafka, redis="redis://127.0.0.1:1/0")
    stream = Stream(settings, tmp_path)
    log.create_topics(kafka, settings.releases)

    def write(number: int, histogram: dict[str, int]) -> Release:
        shown = release(number, histogram, settings.stream)
        stream.write(settings.releases, [Record(0, TIME, b"s", msgspec.json.encode(shown))])
        with TableWriter(settings, "connect") as writer:
            writer.write()
        return shown

    draw = random.Random(1)
    incompressible = "".join(chr(draw.randrange(0x4E00, 0x9FFF)) for _ in range(1_024))
    hostile = {
        "\x01\x1f\x7f": 9,
        "quote \" and \\ ' backslash; --": 8,
        "🍵" * 650: 7,
        incompressible[: 2_600 // 3]: 6,
        "\u2028": 5,
        "NaN": 2**62,
        "tea": -3,
    }
    shown = write(1, hostile)
    sink.await_equal(stream, lambda: shown)
    write(2, hostile | {"\x00": 9, incompressible: 8, "🍵" * 651: 7, "tea": 4})
    shown = release(2, hostile | {"tea": 4}, settings.stream)
    sink.await_equal(stream, lambda: shown)


def test_a_history_answers_by_time_and_holds_each_row_once(sink: Sink, kafka: str, tmp_path: Path) -> None:
    name = sink.streams[2]
    settings = Settings(stream=name, kafka=kafka, redis="redis://127.0.0.1:1/0")
    stream = Stream(settings, tmp_path)
    log.create_topics(kafka, settings.releases)
    for number in range(1, 6):
        counts = {"tea": 2_000 + number} | ({"päron": 150} if number > 2 else {})
        shown = msgspec.structs.replace(
            release(number, counts, name), ts=iso_timestamp(TIME + 60_000 * number)
        )
        stream.write(settings.releases, [Record(0, TIME, b"s", msgspec.json.encode(shown))])
    with HistoryWriter(settings, "connect") as writer:
        wait_until(
            lambda: writer.write(0.2) >= 0 and log.offsets(kafka, settings.history_topic).end == 8, str
        )
    held = log.offsets(kafka, settings.history_topic)
    again = list(log.read(kafka, settings.history_topic, held.end - 2, held.end))
    stream.write(settings.history_topic, again)  # by a second writer

    def rows() -> list[dict[str, Any]]:
        assert [task["state"] for task in sink.connect.tasks(f"{name}-history")] in ([], ["RUNNING"])
        return sink.database.rows(f"{name}_history")

    wait_until(lambda: len(rows()) == 8, lambda: f"{rows()}: {sink.connect.log.read_text()[-3_000:]}")
    assert {(row["round"], row["label"], row["count"]) for row in rows()} == {
        *((number, "tea", 2_000 + number) for number in range(1, 6)),
        *((number, "päron", 150) for number in range(3, 6)),
    }
    assert all(datetime.fromisoformat(row["ts"]).tzinfo is not None for row in rows())
    since = f"ts >= '{iso_timestamp(TIME + 4 * 60_000)}'"
    growing, newest = (
        [(row[key], row[number]) for row in sink.database.asked(asked)]
        for asked, key, number in zip(
            (
                sql.replace("shop_history", f"{name}_history").replace("$__timeFilter(ts)", since)
                for sql in PANELS
            ),
            ("metric", "label"),
            ("value", "count"),
            strict=True,
        )
    )
    assert sorted(growing) == [("päron", 150)] * 2 + [("tea", 2_004), ("tea", 2_005)]
    assert newest == [("tea", 2_005), ("päron", 150)]
