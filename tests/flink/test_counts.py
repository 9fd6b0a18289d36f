"""Flink SQL counts the events of a stream: killed and started again, it gives the releases of one worker.

It has an environment of its own, because it holds numpy, pandas and protobuf at older versions than the rest takes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream_dp.dev.servers import Servers
from tests.apache_kafka.server import JAR_CACHE, fetch
from tests.system.counted_elsewhere import BOUND, TEMPLATES, Engine, check_engine, counted_stream, own_servers
from tests.system.read_elsewhere import COUNTED_ANYWAY, TEA, behind, check_reading
from tests.system.sharded import ShardedStream

PYTHON = Path(__file__).parents[2] / ".venv" / "flink" / "bin" / "python"
POM = Path(__file__).parent / "pom.xml"
CONNECTOR = "5.0.0-2.2"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="Flink is not installed: make flink")

OTHERWISE = COUNTED_ANYWAY | {
    TEA + b" x": {"tea"},
    TEA + b"]": {"tea"},
    TEA + TEA: {"tea"},
    TEA + b"\0": {"tea"},
    rb'{"items": ["\ud800"]}': {"?"},
    behind(b"NaN"): set[str](),
    behind(b"-Infinity"): set[str](),
    behind(b"9" * 1_000): {"tea"},
    behind(b"9" * 1_001): set[str](),
    b'{"items": ["tea"], "%b": 1}' % (b"x" * 50_001): set[str](),
    b'{"items": ["tea", 5, true]}': set[str](),
}
"""The values of which docs/operations/counts.md says what each template reads."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Those of all tests here."""
    with own_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


@contextmanager
def counted_by_flink(
    servers: Servers, name: str, folder: Path
) -> Iterator[tuple[ShardedStream, Callable[[], Engine]]]:
    """A stream, and what starts Flink for it."""
    jars = JAR_CACHE / f"flink-{CONNECTOR}"
    fetch(POM, jars, f"-Dconnector.version={CONNECTOR}")
    (connector,) = jars.glob("*.jar")
    with counted_stream(servers.kafka, servers.redis_url, name, folder) as stream:
        template = PYTHON, TEMPLATES / "flink_counts.py", servers.kafka, name, str(BOUND), connector
        yield stream, lambda: Engine(stream, template)


def test_flink_releases_what_one_worker_releases_wherever_it_is_killed(
    servers: Servers, tmp_path: Path
) -> None:
    with counted_by_flink(servers, "shop", tmp_path) as (stream, engine):
        check_engine(stream, engine)


def test_flink_reads_values_as_the_documents_say(servers: Servers, tmp_path: Path) -> None:
    with counted_by_flink(servers, "values", tmp_path) as (stream, engine):
        check_reading(stream, engine, OTHERWISE)
