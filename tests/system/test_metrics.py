"""A real worker's ports: nothing private on the open one, probes that follow outages, and JSON logs."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge
from redis import Redis
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.config.reading import OPERATOR_TOKEN
from stream_dp.config.settings import Settings
from stream_dp.dev import redis_server
from stream_dp.store.ledger import Ledger
from stream_dp.workers.histogram import Worker
from tests.apache_kafka.server import free_ports
from tests.operations.test_metrics import OPEN_NAMES, TOKEN, names
from tests.system.conftest import EmbeddedKafka
from tests.system.example_events import event, some_events
from tests.system.streams import Stream, as_values, small_stream
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

Plant = Callable[[Worker], None]


def get(address: str | None, path: str, token: str | None = None) -> tuple[int, str]:
    """Status and text of an answer; status 0 if there is none."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=GIVE_UP_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return once the condition holds; the worker goes on meanwhile."""
    async with asyncio.timeout(GIVE_UP_SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def working(stream: Stream) -> AsyncIterator[Worker]:
    """A worker in this process, with both ports."""
    worker = Worker(Settings(**as_values(stream.settings)))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await running


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPERATOR_TOKEN, TOKEN)


def with_ports(kafka: str, redis: str, name: str, folder: Path) -> Iterator[Stream]:
    both = [f"127.0.0.1:{port}" for port in free_ports()]
    ports = dict(zip(("metrics_address", "operator_address"), both, strict=True))
    with small_stream(kafka, redis, name, folder, checkpoint_every="100ms", **ports) as stream:
        with Redis.from_url(redis) as client:
            Ledger(client, stream.settings.data_source).set_budget(100.0, 1e-3, "event")
        yield stream


@pytest.fixture
def stream(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    yield from with_ports(kafka, redis_url, topic_prefix, tmp_path)


@pytest.fixture
def neighbour(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stream]:
    yield from with_ports(kafka, redis_url, f"{topic_prefix}-2", tmp_path)


async def scrape(stream: Stream, events: list[bytes | None], plant: Plant | None = None) -> tuple[str, str]:
    """All that both ports answer once every event is counted and checkpointed; the stream's name is left out."""
    settings = stream.settings
    stream.feed(events)
    async with working(stream) as worker:
        if plant is not None:
            plant(worker)
        watch = worker.watch

        async def settled() -> bool:
            """Asked in the loop that the worker writes its numbers in, so none of them is half of an older state."""
            saved = watch.operator.unsaved._value.get() == 0
            return watch.facts.round == len(events) and saved and watch.facts.budget is not None

        await until(settled)
        public = await asyncio.to_thread(get, settings.metrics_address, "/metrics")
        private = await asyncio.to_thread(get, settings.operator_address, "/metrics", TOKEN)
        assert names(worker.watch.open_registry) - {"planted"} == OPEN_NAMES
    return public[1].replace(settings.stream, "STREAM"), private[1].replace(settings.stream, "STREAM")


def labels_seen(operators: str) -> float:
    """The number of labels, which is private."""
    [found] = re.findall(r"^stream_dp_operator_labels_seen\S* (\S+)$", operators, re.MULTILINE)
    return float(found)


EVENTS = some_events(60, seed=1)
NEIGHBOUR = [*EVENTS[:30], event("a", "b", "c"), *EVENTS[31:]]


async def test_the_open_port_answers_the_same_for_neighbouring_streams(
    stream: Stream, neighbour: Stream
) -> None:
    one, private = await scrape(stream, EVENTS)
    other, other_private = await scrape(neighbour, NEIGHBOUR)
    assert labels_seen(private) != labels_seen(other_private), "else the two are no test"
    assert one == other
    assert 'stream_dp_releases_sent_total{stream="STREAM"} 60.0\n' in one
    assert 'stream_dp_budget_epsilon{stream="STREAM"} 100.0\n' in one
    assert 'stream_dp_budget_charged_rho{by="stream STREAM",stream="STREAM"}' in one


async def test_a_private_number_on_the_open_port_would_be_noticed(stream: Stream, neighbour: Stream) -> None:
    def plant(worker: Worker) -> None:
        leak(worker.watch.open_registry, lambda: worker.watch.operator.labels._value.get())

    one, _ = await scrape(stream, EVENTS, plant)
    other, _ = await scrape(neighbour, NEIGHBOUR, plant)
    assert one != other


def leak(registry: CollectorRegistry, value: Callable[[], float]) -> None:
    Gauge("planted", "Labels, where everybody can see them.", registry=registry).set_function(value)


async def test_nothing_of_one_port_is_on_the_other_and_strangers_stay_out(stream: Stream) -> None:
    public, private = await scrape(stream, EVENTS)
    for text in (public, private):
        assert not re.search(r"^(python|process)_", text, re.MULTILINE)
        assert "rare" not in text, "labels are private"
    assert "operator" not in public
    async with working(stream) as worker:
        await until(lambda: ready_is(worker, True))
        for given in (None, "wrong" * 5):
            status, text = await asyncio.to_thread(get, stream.settings.operator_address, "/metrics", given)
            assert (status, text) == (401, "a token, please")
    address = stream.settings.metrics_address
    wait_until(lambda: get(address, "/metrics") == (0, ""), lambda: "the ports do not end with the worker")


async def ready_is(worker: Worker, wanted: bool) -> bool:
    """Whether `/readyz` says so, while `/livez` says that it is alive."""
    address = worker.settings.metrics_address
    alive, _ = await asyncio.to_thread(get, address, "/livez")
    ready, text = await asyncio.to_thread(get, address, "/readyz")
    assert (alive, ready) in ((200, 200), (200, 503)), text
    return (ready == 200) is wanted


async def test_a_worker_is_ready_only_while_redis_and_kafka_are_there(
    topic_prefix: str, tmp_path: Path
) -> None:
    """Nothing is fed: a stream without events must find out as well."""
    kafka, (port, _) = EmbeddedKafka(tmp_path / "kafka"), free_ports()
    kafka.start()
    redis = redis_server.start(tmp_path / "redis", port)
    try:
        for found in with_ports(kafka.address, redis.url, topic_prefix, tmp_path):
            async with working(found) as worker:
                await until(partial(ready_is, worker, True))
                redis.stop()
                await until(partial(ready_is, worker, False))
                redis = redis_server.start(tmp_path / "redis", port)
                await until(partial(ready_is, worker, True))
                kafka.stop()
                await until(partial(ready_is, worker, False))
                kafka.start()
                await until(partial(ready_is, worker, True))
                operators = await asyncio.to_thread(get, worker.settings.operator_address, "/metrics", TOKEN)
                [outages] = re.findall(r'outages_total\{server="redis",\S+ (\S+)\n', operators[1])
                assert float(outages) >= 1
    finally:
        redis.stop()
        kafka.stop()


def test_the_command_logs_json(stream: Stream) -> None:
    stream.feed(some_events(30, seed=3))
    worker = stream.start_command("worker", "--json", operator_token=TOKEN)
    stream.wait_until_round(30, worker)
    wait_until(lambda: get(stream.settings.metrics_address, "/readyz")[0] == 200, stream.logged)
    stream.stop(worker)
    lines = [json.loads(line) for line in stream.logged().splitlines()]
    assert {"time", "level", "event", "logger", "stream"} <= set.intersection(*(set(line) for line in lines))
    [begun] = [line for line in lines if "epoch 1, round 0 of" in line["event"]]
    assert (begun["stream"], begun["epoch"], begun["level"]) == (stream.settings.stream, 1, "info")
    assert not any(label in stream.logged() for label in ("rare", "päron", "milk"))
    assert TOKEN not in stream.logged()


def test_the_command_refuses_an_operators_port_without_a_token() -> None:
    environment = {OPERATOR_TOKEN: None, "STREAM_DP_OPERATOR_ADDRESS": f"127.0.0.1:{free_ports()[0]}"}
    refused = CliRunner().invoke(app, ["worker", "--stream", "x"], env=environment)
    assert refused.exit_code == 2
    assert OPERATOR_TOKEN in refused.output
    assert "Traceback" not in refused.output
