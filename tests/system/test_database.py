"""The table in a database: a real Kafka Connect keeps a real PostgreSQL equal to the newest release."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
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
[CONNECTOR] = blocks((ROOT / "docs" / "clients.md").read_text(), "properties")


def connector(stream: str, database: Database) -> str:
    """The connector as the documents show it; only the names and the database's address are others."""
    shown = dict(line.split("=", 1) for line in CONNECTOR.splitlines())
    assert (shown["topics"], shown["collection.name.format"]) == ("shop.table", "shop")
    address = shown["connection.url"].replace("localhost:5432", f"127.0.0.1:{database.port}")
    names = {"name": stream, "topics": f"{stream}.table", "collection.name.format": stream}
    return "".join(f"{key}={value}\n" for key, value in (shown | names | {"connection.url": address}).items())


@dataclass
class Sink:
    """A connector for each of two streams, which keeps a table of the stream's name in the database."""

    connect: ConnectWorker
    database: Database
    streams: tuple[str, str]

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
    streams = f"shop-{uuid4().hex[:8]}", f"shop-{uuid4().hex[:8]}"
    for name in streams:
        log.create_topics(kafka, f"{name}.table", configs={"cleanup.policy": "compact"})
    with postgresql("shop") as database, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_PASSWORD", "none is asked for")
        connectors = [connector(name, database) for name in streams]
        with kafka_connect(tmp_path_factory.mktemp("connect") / "worker", kafka, *connectors) as connect:
            yield Sink(connect, database, streams)


def test_rows_equal_the_newest_release_when_labels_come_change_and_leave(
    sink: Sink, kafka: str, redis_url: str, tmp_path: Path
) -> None:
    with small_stream(kafka, redis_url, sink.streams[0], tmp_path, delta=0.1) as stream:

        def newest() -> Release:
            return decode_release(stream.releases()[-1].value or b"")

        words = ("table", "--format", "connect", "--every", "0.1")
        stream.start_faust("-c", "from stream_dp.cli import main; main()", *words)
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
