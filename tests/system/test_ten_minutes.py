"""The tutorial's way from a topic to a live page and a table in PostgreSQL, step by step, with the time of each.

Apache Kafka, Apicurio's schema registry, Kafka Connect and PostgreSQL are real; `--capture no` shows the times.
"""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.reading import load_settings
from stream_dp.kafka import log
from tests.apache_kafka.server import free_ports
from tests.docs.shown import ROOT, blocks, run_line, running_line
from tests.kafka_connect.worker import kafka_connect
from tests.postgresql import Database, postgresql
from tests.schema_registry.server import Registry
from tests.system.test_database import connector
from tests.system.waiting import wait_until

pytestmark = pytest.mark.apache("beside", alone=True)

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
WAY = PAGE[PAGE.index("## You have a topic") : PAGE.index("## Without a topic of your own")]
LINES = [line for block in blocks(WAY, "sh") for line in block.splitlines() if line.startswith("stream-dp ")]
SKUS = {"tea", "milk", "coffee", "bread", "salt"}


class Times:
    """How long each step took, in seconds."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.taken[name] = time.monotonic() - began

    def __str__(self) -> str:
        rows = [*self.taken.items(), ("together", sum(self.taken.values()))]
        return "\n".join(f"| {name} | {seconds:.1f} s |" for name, seconds in rows)


def rows_of(database: Database) -> dict[str, dict[str, Any]]:
    return {row["label"]: row for row in database.rows("shop")}


def test_from_a_topic_to_a_live_page_and_a_table(
    kafka: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [line.split()[1] for line in LINES] == [
        "connect",
        "budget",
        "check",
        "worker",
        "dashboard",
        "table",
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_PASSWORD", "none is asked for")
    registry, times, port = Registry(tmp_path), Times(), free_ports()[0]
    with ExitStack() as servers:
        registry.start()
        servers.callback(registry.stop)
        database = servers.enter_context(postgresql("shop"))
        [orders] = blocks(WAY, "python")
        assert {"http://localhost:8081", "localhost:9092"} <= set(orders.replace("/subjects", '"').split('"'))
        exec(orders.replace("http://localhost:8081", registry.address).replace("localhost:9092", kafka), {})
        held = log.offsets_of_all(kafka, "orders")
        assert (len(held), sum(each.end for each in held)) == (12, 20_000)
        assert min(each.end for each in held) > 0

        def run(line: str, *more: str) -> None:
            run_line(line.replace("http://localhost:8081", registry.address), *more)

        with times.step("`connect` has proposed and written the settings"):
            run(LINES[0], "--kafka", kafka, "--redis", redis_url)
        settings = load_settings(Path("stream.toml"), {})
        assert settings.mapping is not None
        assert (settings.mapping.format, settings.mapping.items) == ("avro", "lines[*].sku")
        assert settings.rounds == "ticks"
        with times.step("the budget is set, and `check` has passed"):
            run(LINES[1])
            run(LINES[2])

        def start(line: str, *more: str) -> None:
            servers.enter_context(running_line(line, tmp_path, *more))

        page = f"http://127.0.0.1:{port}"
        with times.step("worker and dashboard have started, and the page shows labels"):
            start(LINES[3])
            start(LINES[4], "--port", str(port))
            wait_until(lambda: bool(shown(page)), lambda: "the page shows nothing")
        with urllib.request.urlopen(page, timeout=60) as answer:
            assert b"<html" in answer.read()
        assert {"tea", "milk", "coffee"} <= set(shown(page)) <= SKUS
        with times.step("`table` and Kafka Connect have started, and PostgreSQL has the rows"):
            start(LINES[5])
            wait_until(lambda: settings.table in log.topics(kafka), lambda: "the table has no topic")
            servers.enter_context(kafka_connect(tmp_path / "connect", kafka, connector("shop", database)))
            wait_until(lambda: bool(rows_of(database)), lambda: "PostgreSQL has no rows")
        first = rows_of(database)
        assert {"tea", "milk", "coffee"} <= set(first) <= SKUS
        assert 14_000 < first["tea"]["count"] < 16_000, "three orders in four hold tea"
        wait_until(
            lambda: rows_of(database)["tea"]["round"] > first["tea"]["round"], lambda: "the rows stand still"
        )
    print(f"\n{times}")


def shown(page: str) -> list[str]:
    """The labels of the release that the page shows; none before there is one."""
    try:
        with urllib.request.urlopen(f"{page}/api/v1/release/latest", timeout=60) as answer:
            labels: list[str] = json.load(answer)["labels"]
            return labels
    except OSError:
        return []
