"""Spark counts the events of a stream: killed and started again, it gives the releases of one worker that reads them.

Its broker is a real Apache Kafka, whatever `--kafka` says: Spark reads it with the jars that pom.xml names.
"""

import sys
from pathlib import Path

import pytest

from tests.apache_kafka.server import JAR_CACHE, fetch
from tests.system.counted_elsewhere import BOUND, TEMPLATES, Engine, check_engine, counted_stream, own_servers

pyspark = pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'stream_dp[spark]'")

POM = Path(__file__).parent / "pom.xml"
ON_THIS_MACHINE = "--master local[1] --conf spark.sql.shuffle.partitions=1 --conf spark.ui.enabled=false"


def forget_last_batch(checkpoint: Path) -> None:
    """What Spark finds where it was killed after a batch was written, and before that was on record."""
    batches = [file for file in (checkpoint / "commits").iterdir() if file.name.isdigit()]
    last = max(batches, key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_spark_releases_what_one_worker_releases_wherever_it_is_killed(tmp_path: Path) -> None:
    folder, checkpoint = JAR_CACHE / f"spark-{pyspark.__version__}", tmp_path / "checkpoint"
    fetch(POM, folder, f"-Dspark.version={pyspark.__version__}")
    jars = ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
    environment = {
        "PYSPARK_SUBMIT_ARGS": f"{ON_THIS_MACHINE} --jars {jars} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (
        own_servers(tmp_path / "servers") as servers,
        counted_stream(servers.kafka, servers.redis_url, "shop", tmp_path) as stream,
    ):
        template = (
            sys.executable,
            TEMPLATES / "spark_counts.py",
            servers.kafka,
            "shop",
            str(BOUND),
            checkpoint,
        )
        check_engine(
            stream, lambda: Engine(stream, template, **environment), lambda: forget_last_batch(checkpoint)
        )
