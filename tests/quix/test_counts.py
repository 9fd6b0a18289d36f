"""Quix Streams counts the events of a stream: killed and started again, it gives the releases of one worker.

It has an environment of its own, because it holds confluent-kafka at an older version than the other tests take.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stream_dp.dev.servers import Servers
from tests.system.counted_elsewhere import BOUND, TEMPLATES, Engine, check_engine, counted_stream, own_servers
from tests.system.read_elsewhere import COUNTED_ANYWAY, TEA, behind, check_reading
from tests.system.sharded import ShardedStream

PYTHON = Path(__file__).parents[2] / ".venv" / "quix" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="Quix Streams is not installed: make quix")

OTHERWISE = COUNTED_ANYWAY | {
    TEA + b" x": set[str](),
    TEA + TEA: set[str](),
    rb'{"items": ["\ud800"]}': set[str](),
    behind(b"NaN"): {"tea"},
    behind(b"-Infinity"): {"tea"},
    behind(b"9" * 4_300): {"tea"},
    behind(b"9" * 4_301): set[str](),
    b'{"items": ["tea"], "%b": 1}' % (b"x" * 50_001): {"tea"},
    b'{"items": ["tea", 5, true]}': set[str](),
}
"""The values of which docs/operations/counts.md says what each template reads."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Those of all tests here."""
    with own_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


@contextmanager
def counted_by_quix(
    servers: Servers, name: str, folder: Path
) -> Iterator[tuple[ShardedStream, Callable[[], Engine]]]:
    """A stream, and what starts Quix Streams for it."""
    with counted_stream(servers.kafka, servers.redis_url, name, folder) as stream:
        template = PYTHON, TEMPLATES / "quix_counts.py", servers.kafka, name, str(BOUND)
        yield stream, lambda: Engine(stream, template)


def test_quix_releases_what_one_worker_releases_wherever_it_is_killed(
    servers: Servers, tmp_path: Path
) -> None:
    with counted_by_quix(servers, "shop", tmp_path) as (stream, engine):
        check_engine(stream, engine)


def test_quix_reads_values_as_the_documents_say(servers: Servers, tmp_path: Path) -> None:
    with counted_by_quix(servers, "values", tmp_path) as (stream, engine):
        check_reading(stream, engine, OTHERWISE)
