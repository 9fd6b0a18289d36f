"""Spark counts the events of a stream: killed and started again, it gives the releases of one worker that reads them.

Its broker is a real Apache Kafka, whatever `--kafka` says: Spark reads it with the jars that pom.xml names.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apache_kafka.server import JAR_CACHE, fetch
from tests.system.counted_elsewhere import BOUND, TEMPLATES, Engine, check_engine, counted_stream, own_servers
from tests.system.read_elsewhere import COUNTED_ANYWAY, TEA, behind, check_reading
from tests.system.sharded import ShardedStream

pyspark = pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'stream_dp[spark]'")

POM = Path(__file__).parent / "pom.xml"
ON_THIS_MACHINE = "--master local[1] --conf spark.sql.shuffle.partitions=1 --conf spark.ui.enabled=false"

OTHERWISE = COUNTED_ANYWAY | {
    TEA + b" x": {"tea"},
    TEA + TEA: {"tea"},
    rb'{"items": ["\ud800"]}': {"?"},
    behind(b"NaN"): {"tea"},
    behind(b"-Infinity"): {"tea"},
    behind(b"9" * 1_000): {"tea"},
    behind(b"9" * 1_001): set[str](),
    b'{"items": ["tea"], "%b": 1}' % (b"x" * 50_001): set[str](),
    b'{"items": ["tea", 5, true]}': {"tea", "5", "true"},
}
"""The values of which docs/operations/counts.md says what each template reads."""


def forget_last_batch(checkpoint: Path) -> None:
    """What Spark finds where it was killed after a batch was written, and before that was on record."""
    batches = [file for file in (checkpoint / "commits").iterdir() if file.name.isdigit()]
    last = max(batches, key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@contextmanager
def counted_by_spark(folder: Path) -> Iterator[tuple[ShardedStream, Callable[[], Engine]]]:
    """A stream, and what starts Spark for it."""
    jars_of_source = JAR_CACHE / f"spark-{pyspark.__version__}"
    fetch(POM, jars_of_source, f"-Dspark.version={pyspark.__version__}")
    jars = ",".join(str(jar) for jar in sorted(jars_of_source.glob("*.jar")))
    environment = {
        "PYSPARK_SUBMIT_ARGS": f"{ON_THIS_MACHINE} --jars {jars} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (
        own_servers(folder / "servers") as servers,
        counted_stream(servers.kafka, servers.redis_url, "shop", folder) as stream,
    ):
        words = TEMPLATES / "spark_counts.py", servers.kafka, "shop", str(BOUND), folder / "checkpoint"
        yield stream, lambda: Engine(stream, (sys.executable, *words), **environment)


def test_spark_releases_what_one_worker_releases_wherever_it_is_killed(tmp_path: Path) -> None:
    with counted_by_spark(tmp_path) as (stream, engine):
        check_engine(stream, engine, lambda: forget_last_batch(tmp_path / "checkpoint"))


def test_spark_reads_values_as_the_documents_say(tmp_path: Path) -> None:
    with counted_by_spark(tmp_path) as (stream, engine):
        check_reading(stream, engine, OTHERWISE)
