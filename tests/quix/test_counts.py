"""Quix Streams counts the events of a stream: killed and started again, it gives the releases of one worker.

It has an environment of its own, because it holds confluent-kafka at an older version than the other tests take.
"""

from pathlib import Path

import pytest

from tests.system.counted_elsewhere import BOUND, TEMPLATES, Engine, check_engine, counted_stream, own_servers

PYTHON = Path(__file__).parents[2] / ".venv" / "quix" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="Quix Streams is not installed: make quix")


def test_quix_releases_what_one_worker_releases_wherever_it_is_killed(tmp_path: Path) -> None:
    with (
        own_servers(tmp_path / "servers") as servers,
        counted_stream(servers.kafka, servers.redis_url, "shop", tmp_path) as stream,
    ):
        template = PYTHON, TEMPLATES / "quix_counts.py", servers.kafka, "shop", str(BOUND)
        check_engine(stream, lambda: Engine(stream, template))
