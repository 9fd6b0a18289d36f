"""Flink SQL counts the events of a stream: killed and started again, it gives the releases of one worker.

It has an environment of its own, because it holds numpy, pandas and protobuf at older versions than the rest takes.
"""

from pathlib import Path

import pytest

from tests.apache_kafka.server import JAR_CACHE, fetch
from tests.system.counted_elsewhere import BOUND, TEMPLATES, Engine, check_engine, counted_stream, own_servers

PYTHON = Path(__file__).parents[2] / ".venv" / "flink" / "bin" / "python"
POM = Path(__file__).parent / "pom.xml"
CONNECTOR = "5.0.0-2.2"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="Flink is not installed: make flink")


def connector() -> Path:
    """The jar by which Flink SQL reads Kafka."""
    folder = JAR_CACHE / f"flink-{CONNECTOR}"
    fetch(POM, folder, f"-Dconnector.version={CONNECTOR}")
    (jar,) = folder.glob("*.jar")
    return jar


def test_flink_releases_what_one_worker_releases_wherever_it_is_killed(tmp_path: Path) -> None:
    jar = connector()
    with (
        own_servers(tmp_path / "servers") as servers,
        counted_stream(servers.kafka, servers.redis_url, "shop", tmp_path) as stream,
    ):
        template = PYTHON, TEMPLATES / "flink_counts.py", servers.kafka, "shop", str(BOUND), jar
        check_engine(stream, lambda: Engine(stream, template))
