"""The services of docker-compose.yml run on their own commands and environments, against the embedded servers."""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from redis import Redis
from redis.exceptions import AuthenticationError, BusyLoadingError
from redis.exceptions import ConnectionError as RedisConnectionError

from stream_dp.dev.child_process import spawn, stop_owned
from stream_dp.dev.child_process import wait_until as wait_until_ready
from stream_dp.dev.redis_server import server_binary
from stream_dp.dev.servers import start_broker
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.releases.release import Release, decode_release
from tests.apache_kafka import server as apache_kafka
from tests.docs.compose import ONCE, OWN, PASSWORD, ROOT, SERVICES, environment, with_password
from tests.system import forked_program
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

LOGIN = [f"STREAM_DP_KAFKA_{name}" for name in ("SECURITY", "SASL_MECHANISM", "USERNAME", "PASSWORD")]
"""What Apache Kafka asks for, and the embedded broker does not: tests/system/test_compose_kafka.py is about it."""


@pytest.fixture
def guarded_redis(tmp_path: Path) -> Iterator[str]:
    """The address of a server that runs the very command of the `redis` service; only its place differs."""
    program, *options = [with_password(word) for word in SERVICES["redis"]["command"]]
    assert program == "valkey-server"
    (port, _), folder = apache_kafka.free_ports(), tmp_path / "redis"
    folder.mkdir()
    here: list[str | Path] = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    process = spawn([server_binary(), *options, *here], folder / "server.log", owned=True)
    try:
        url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
        wait_until_ready(lambda: _answers(url), process, folder / "server.log", "the redis service")
        yield url
    finally:
        stop_owned(process)


def _answers(url: str) -> bool:
    try:
        with Redis.from_url(url) as client:
            return bool(client.ping())
    except (RedisConnectionError, BusyLoadingError):
        return False


def test_the_redis_service_wants_its_password_and_writes_before_it_answers(guarded_redis: str) -> None:
    stranger = Redis.from_url(guarded_redis.replace(f":{PASSWORD}@", ""))
    with stranger, pytest.raises(AuthenticationError):
        stranger.get("stream_dp:{shop}:key")
    with Redis.from_url(guarded_redis) as client:
        wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        assert client.config_get(*wanted) == wanted


def healthy(service: str, ports: dict[str, str], folder: Path, own: dict[str, str]) -> bool:
    """Whether the service's own health check passes, in its folder and environment, with the ports of this machine.

    It is a process, which takes time from those that start, so it is left out while nobody listens, and is not begun
    again at once.
    """
    kind, program, *check = OWN[service]["healthcheck"]["test"]
    assert (kind, program) in (("CMD", "python"), ("CMD", "stream-dp"))
    if program == "stream-dp":
        check = ["-m", "stream_dp.cli", *check]
    else:
        [there] = re.findall(r"127\.0\.0\.1:(\d+)/", check[-1])
        check[-1] = check[-1].replace(f":{there}/", f":{ports[there]}/")
        with socket.socket() as visitor:
            if visitor.connect_ex(("127.0.0.1", int(ports[there]))):
                return False
    checked = subprocess.run([sys.executable, *check], cwd=folder, env=own, capture_output=True)
    well = checked.returncode == 0
    time.sleep(0 if well else 0.3)
    return well


@contextmanager
def started(service: str, folder: Path, reachable: dict[str, str]) -> Iterator[Callable[[], None]]:
    """A service on its very command and environment; the addresses are those of this machine.

    Gives a function that waits until the service is healthy.
    """
    ports: dict[str, str] = {}

    def here(word: str) -> str:
        host, _, port = word.rpartition(":")
        if port in ("8080", "9464", "9465"):
            free = ports.setdefault(port, str(apache_kafka.free_ports()[0]))
            return f"127.0.0.1:{free}" if host else free
        return "127.0.0.1" if word == "0.0.0.0" else word

    words = [here(word) for word in OWN[service]["command"]]
    own = {name: here(str(value)) for name, value in SERVICES[service]["environment"].items()}
    own |= {name: value for name, value in reachable.items() if name in own}
    own = environment(service, **{name: with_password(value) for name, value in own.items()})
    for name in LOGIN:
        del own[name]
    told = folder / f"{service}.log"
    told.touch()
    process = forked_program.start_in(folder, words, own, told)

    def is_well() -> bool:
        assert process.exitcode is None, told.read_text()
        return healthy(service, ports, folder, own)

    def wait() -> None:
        wait_until(is_well, lambda: f"{service} is not healthy:\n{told.read_text()}")

    try:
        yield wait
    finally:
        process.terminate()
        process.join(GIVE_UP_SECONDS)
    assert PASSWORD.encode() not in told.read_bytes()
    assert b"Traceback" not in told.read_bytes()
    assert process.exitcode in (0, -signal.SIGTERM)


def first_release(kafka: str) -> Release:
    """The stream's first one, once it is there."""
    with KafkaConsumer("shop.releases", bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        [[record]] = consumer.poll(int(1000 * GIVE_UP_SECONDS), max_records=1).values()
    return decode_release(record.value)


def test_our_services_run_on_their_own_commands_and_environments(guarded_redis: str, tmp_path: Path) -> None:
    """All of them at once, until every health check passes and an event has become a release."""
    broker = start_broker(tmp_path / "kafka")
    (tmp_path / "stream.toml").write_text((ROOT / "stream.example.toml").read_text())
    reachable = {"STREAM_DP_KAFKA": broker.address, "STREAM_DP_REDIS": guarded_redis}
    try:
        with Redis.from_url(guarded_redis) as redis:
            JournaledLedger(broker.address, redis, "shop.events").set_budget(2.0, 1e-5, "event")
        with ExitStack() as services:
            alone = [name for name in OWN if name != ONCE]
            waits = [services.enter_context(started(name, tmp_path, reachable)) for name in alone]
            for wait in waits:
                wait()
            with KafkaProducer(bootstrap_servers=broker.address, enable_idempotence=True) as producer:
                producer.send("shop.events", b'{"items": ["tea"]}').get(GIVE_UP_SECONDS)
            assert first_release(broker.address).round == 1
    finally:
        broker.stop()
