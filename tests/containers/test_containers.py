"""docker-compose.yml in a container engine: built, started, killed, restarted and upgraded."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import urlopen

import pytest
from kafka import KafkaProducer

from stream_dp import read_table
from stream_dp.config.connections import KafkaAddress
from stream_dp.dev.child_process import is_free
from tests.containers.engine import Engine, compose_program, copy_project, lacking
from tests.docs.compose import ONCE, OWN, PASSWORD, SECRETS, SERVICES
from tests.system.waiting import wait_until

pytestmark = pytest.mark.timeout(1800)

STAYING = [
    name for name in SERVICES if name not in (ONCE, "grafana")
]  # nothing can be had that Grafana is made of
USERS = {"kafka": "1000", "redis": "valkey", "prometheus": "nobody"} | dict.fromkeys(OWN, "10001")
NETWORKS = {name: set(service["networks"]) for name, service in SERVICES.items()}
PORTS = {"kafka": 19092, "redis": 6379, "worker": 9464, "dashboard": 8080, "prometheus": 9090}
LOCKED = {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}


class Deployment:
    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder, self._program = engine, folder, compose_program()
        self.sent = 0

    def tried(self, *words: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [self._program, *words]
        own = self.engine.environment
        return subprocess.run(command, cwd=self.folder, env=own, capture_output=True, text=True)

    def compose(self, *words: str) -> str:
        done = self.tried(*words)
        assert done.returncode == 0, (words, done.stdout[-3000:] + done.stderr[-3000:])
        return done.stdout

    def up(self) -> None:
        self.compose("up", "--detach", "--no-build", *STAYING, ONCE)
        self.wait_until_healthy()

    def state(self) -> dict[str, Any]:
        lines = self.compose("ps", "--all", "--format", "json").splitlines()
        return {each["Service"]: each for each in map(json.loads, lines)}

    def wait_until_healthy(self) -> None:
        def healthy() -> bool:
            found = self.state()
            return all(found.get(name, {}).get("Health") == "healthy" for name in STAYING)

        wait_until(healthy, lambda: str({name: each["Status"] for name, each in self.state().items()}))

    def inside(self, service: str, *words: str) -> str:
        return self.compose("exec", "--no-TTY", service, *words)

    def pid(self, service: str) -> int:
        container = self.state()[service]["ID"]
        return int(self.engine.docker("inspect", "--format", "{{.State.Pid}}", container))

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Events come all the time."""
        ended = Event()

        def send() -> None:
            while not ended.is_set():
                self.send(5)

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send)
            try:
                yield
            finally:
                ended.set()
            sending.result()

    def send(self, events: int) -> None:
        login = {
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "operator",
            "sasl_plain_password": PASSWORD,
        }
        with KafkaProducer(
            bootstrap_servers="127.0.0.1:9092",
            security_protocol="SASL_PLAINTEXT",
            enable_idempotence=True,
            **login,
        ) as producer:
            for _ in range(events):
                producer.send("shop.events", b'{"items": ["tea"]}')
        self.sent += events

    def check_releases(self) -> None:
        """All that was sent is released, as one worker of this program releases it, byte by byte."""
        told: dict[str, Any] = {}

        def whole() -> bool:
            done = self.tried("exec", "--no-TTY", "worker", "stream-dp", "verify", "--json")
            told.update(json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr})
            return bool(told.get("rounds") == self.sent)

        wait_until(whole, lambda: f"{self.sent} events were sent: {told}")
        assert (told["verdict"], told["sound"], told["missing"]) == ("identical", True, 0)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    if reason := lacking():
        pytest.skip(reason)
    if busy := [port for port in (9092, 8080) if not is_free(port)]:
        pytest.skip(f"somebody listens on port {busy[0]}, which docker-compose.yml publishes")
    folder = tmp_path_factory.mktemp("containers")
    project = folder / "project"
    copy_project(project)
    (project / "stream.toml").write_text((project / "stream.example.toml").read_text())
    (project / ".env").write_text("".join(f"{name}={PASSWORD}\n" for name in SECRETS))
    engine = Engine(folder)
    engine.start()
    try:
        engine.prepare_images()
        seconds = engine.build(project)
        sizes = [
            int(engine.docker("image", "inspect", "--format", "{{.Size}}", name)) / 1e6
            for name in ("stream-dp", "stream-dp-jobs")
        ]
        running = Deployment(engine, project)
        try:
            began = time.monotonic()
            running.compose(
                "run", "--rm", "--no-TTY", "worker", "budget", "set", "--epsilon", "4", "--delta", "1e-5"
            )
            running.up()
            took = time.monotonic() - began
            print(f"\nimage: {sizes[0]:.0f} MB, {sizes[1]:.0f} for jobs, built in {seconds:.0f} s", end="; ")
            print(f"healthy after {took:.0f} s")
            assert sizes[0] < 500
            yield running
        finally:
            running.compose("down", "--volumes", "--timeout", "20")
    finally:
        engine.leave()


def test_events_become_a_page_a_table_and_metrics(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.send(600)
    deployment.check_releases()
    with urlopen("http://127.0.0.1:8080/api/v1/release/latest?stream=shop", timeout=10) as page:
        assert "tea" in page.read().decode()
    monkeypatch.setenv("READER", PASSWORD)
    reader = KafkaAddress(
        "127.0.0.1:9092", "SASL_PLAINTEXT", sasl_mechanism="PLAIN", username="operator", password="env:READER"
    )
    with read_table(reader, "shop") as table:

        def shown() -> bool:
            table.catch_up()
            return "tea" in str(table.rows())

        wait_until(shown, lambda: str(table.rows()))
    query = "http://127.0.0.1:9090/api/v1/query?query=up"

    def scraped() -> bool:
        found = json.loads(deployment.inside("prometheus", "wget", "-qO-", query))["data"]["result"]
        return [each["value"][1] for each in found] == ["1", "1"]

    wait_until(scraped, lambda: deployment.inside("prometheus", "wget", "-qO-", query))


@pytest.mark.parametrize("service", STAYING)
def test_a_container_may_do_nothing_but_its_work(deployment: Deployment, service: str) -> None:
    inside = f"/proc/{deployment.pid(service)}"
    status = dict(line.split(":\t", 1) for line in Path(f"{inside}/status").read_text().splitlines())
    assert {name: status[name] for name in LOCKED} == LOCKED
    user = deployment.inside(service, "id", "--user"), deployment.inside(service, "id", "--user", "--name")
    if service in OWN:
        user = (deployment.inside(service, "id", "--user"), "")
    assert USERS[service] in {each.strip() for each in user}
    for place in ("/", "/etc", "/usr", "/opt", "/app"):
        refused = deployment.tried("exec", "--no-TTY", service, "touch", f"{place}/new")
        assert refused.returncode, place
    mounts = [line.split() for line in Path(f"{inside}/mounts").read_text().splitlines()]
    assert next(each for each in mounts if each[1] == "/")[3].startswith("ro")


@pytest.mark.parametrize("service", [name for name in STAYING if name in OWN])
def test_a_container_reaches_only_its_networks(deployment: Deployment, service: str) -> None:
    connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
    for other, port in PORTS.items():
        tried = deployment.tried("exec", "--no-TTY", service, "python", "-c", connect, other, str(port))
        assert (tried.returncode == 0) == bool(NETWORKS[service] & NETWORKS[other]), (other, tried.stderr)


@pytest.mark.parametrize("service", STAYING)
def test_a_killed_container_comes_back(deployment: Deployment, service: str) -> None:
    deployment.send(20)
    before = deployment.pid(service)
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: deployment.pid(service) not in (0, before), lambda: f"{service} stays away")
    deployment.wait_until_healthy()
    deployment.send(20)
    deployment.check_releases()


def restart_engine(deployment: Deployment) -> None:
    deployment.engine.stop()
    deployment.engine.start()


def upgrade(deployment: Deployment) -> None:
    deployment.engine.build(deployment.folder, "--label", "release=next")
    before = deployment.pid("worker")
    with deployment.busy():
        deployment.up()
    assert deployment.pid("worker") != before


def down_and_up(deployment: Deployment) -> None:
    deployment.compose("down")
    deployment.up()


@pytest.mark.parametrize("happens", [restart_engine, upgrade, down_and_up])
def test_nothing_is_lost_or_counted_twice(
    deployment: Deployment, happens: Callable[[Deployment], None]
) -> None:
    deployment.send(20)
    happens(deployment)
    deployment.wait_until_healthy()
    deployment.send(20)
    deployment.check_releases()
