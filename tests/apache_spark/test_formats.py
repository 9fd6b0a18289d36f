"""Records of a schema registry on Spark, in every format: the releases of one worker.

Its broker is a real Apache Kafka, whatever `--kafka` says.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream_dp.config.events_section import EventsSection, Format
from stream_dp.dev.servers import Servers
from stream_dp.releases.release import decode_release
from tests.apache_spark.test_stream import APART, PARTITIONS, SPARK, check_letters, wait_for_round
from tests.schema_registry.front import front, scripted
from tests.schema_registry.orders import FIRST, JSON_SCHEMA, LATER, PROTOBUF, avro, framed
from tests.system.streams import Stream, ended, small_stream
from tests.system.ticking import open_epoch

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'stream_dp[spark]'")

from stream_dp.jobs.spark import Spark
from stream_dp.spark.worker import SparkWorker

OLD, NEW = 7, 8
VALUES = {
    "avro": (avro(OLD, FIRST, sku=["tea"]), avro(NEW, LATER, shop="south", items=["milk", "tea"])),
    "protobuf": (
        framed(OLD, b"\0\x0a\x03tea"),
        framed(NEW, b"\0\x0a\x04milk\x0a\x03tea\x12\x05south"),
    ),
    "json-schema": (
        framed(OLD, b'{"sku": ["tea"]}'),
        framed(NEW, b'{"shop": "south", "items": ["milk", "tea"]}'),
    ),
}
SCHEMAS = {
    "avro": [{"schema": json.dumps(each)} for each in (FIRST, LATER)],
    "protobuf": [{"schema": each, "schemaType": "PROTOBUF"} for each in PROTOBUF],
    "json-schema": [{"schema": each, "schemaType": "JSON"} for each in JSON_SCHEMA],
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Spark]:
    found = Spark()
    yield found
    found.session.stop()


@contextmanager
def counting(stream: Stream, folder: Path, spark: Spark) -> Iterator[None]:
    """What `stream-dp spark` runs, in a thread of this process."""
    folder.mkdir(mode=0o700)
    worker, loop = SparkWorker(stream.settings, folder, spark), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(worker.run(),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(worker.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("kind", VALUES)
def test_records_are_read_by_the_schemas_that_they_name(
    kind: Format, servers: Servers, spark: Spark, tmp_path: Path
) -> None:
    old, new = VALUES[kind]
    answers = dict(zip((f"/schemas/ids/{number}" for number in (OLD, NEW)), SCHEMAS[kind], strict=True))
    types = {"/schemas/types": ["AVRO", "PROTOBUF", "JSON"]}
    with front(scripted({**types, **answers})) as registry:
        section = EventsSection(
            format=kind,
            families={"sku": "items || sku", "shop": "not_null(shop, 'north')"},
            schema_registry=registry.address,
        )
        place = servers.kafka, servers.redis_url, f"orders-{kind}", tmp_path
        with small_stream(*place, partitions=PARTITIONS, mapping=section, **SPARK) as stream:
            open_epoch(stream)
            worker = stream.start()
            with counting(stream, tmp_path / "state", spark):
                for number in range(1, 2 * APART + 1):
                    later = number > APART
                    values = [old] * 9 + [new] * 9 * later + [old[:3], b"{}"] * later
                    stream.spread(values, PARTITIONS)
                    stream.close_rounds(1_000 * number)
                wait_for_round(stream, 2 * APART, worker)
            worker.terminate()
            assert ended(worker) == 0
            stream.check_releases()
            check_letters(stream)
            shown = decode_release(stream.releases()[-1].value or b"").labels
            assert {"sku:tea", "shop:north", "sku:milk", "shop:south"} <= {*shown}
