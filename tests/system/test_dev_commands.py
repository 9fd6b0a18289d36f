"""`stream-dp dev up|down|status` as a user meets it: real servers, and one clear sentence for every mistake."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from kafka import KafkaProducer
from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.dev import redis_server, servers
from stream_dp.dev.child_process import birth_of, is_free, stop_by_id
from tests.apache_kafka.server import free_ports
from tests.system.waiting import GIVE_UP_SECONDS, wait_until


def run(command: str, folder: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["dev", command, "--folder", str(folder), *options])


def told(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return {server["name"]: server for server in json.loads(result.stdout)["servers"]}


@pytest.fixture
def ports() -> list[str]:
    kafka, redis = free_ports()
    return ["--kafka-port", str(kafka), "--redis-port", str(redis)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "dev"
    servers.down(tmp_path / "dev")


def test_up_serves_both_until_down_and_the_data_stay(folder: Path, ports: list[str]) -> None:
    started = told(run("up", folder, *ports, "--json"))
    with KafkaProducer(bootstrap_servers=started["kafka"]["address"]) as producer:
        assert producer.send("kept", b"1").get(GIVE_UP_SECONDS).offset == 0
    client = redis.Redis.from_url(f"redis://{started['redis']['address']}/0")
    client.set("kept", "yes")
    client.close()
    assert told(run("status", folder, "--json")) == started
    stopped = told(run("down", folder, "--json"))
    assert [server["running"] for server in stopped.values()] == [False, False]
    assert [birth_of(server["pid"]) for server in started.values()] == [None, None]
    again = told(run("up", folder, *ports, "--json"))
    with KafkaProducer(bootstrap_servers=again["kafka"]["address"]) as producer:
        assert producer.send("kept", b"2").get(GIVE_UP_SECONDS).offset == 1
    with redis.Redis.from_url(f"redis://{again['redis']['address']}/0") as client:
        assert client.get("kept") == b"yes"


def test_people_read_names_addresses_and_processes(folder: Path, ports: list[str]) -> None:
    assert "Nothing is running" in run("status", folder).output
    shown = run("up", folder, *ports).output.splitlines()
    assert [line.split()[0] for line in shown] == ["kafka", "redis"]
    assert f"127.0.0.1:{ports[1]}" in shown[0]
    assert "running, process" in shown[1]


def test_a_second_up_is_refused_and_changes_nothing(folder: Path, ports: list[str]) -> None:
    before = told(run("up", folder, *ports, "--json"))
    second = run("up", folder, *ports)
    assert second.exit_code == 2
    assert "already running" in second.stderr
    assert told(run("status", folder, "--json")) == before


@pytest.mark.parametrize(("server", "option"), [("Kafka", "--kafka-port"), ("Redis", "--redis-port")])
def test_a_taken_port_is_named_with_the_option_that_changes_it(
    folder: Path, ports: list[str], server: str, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run("up", folder, *ports, option, port)
    assert result.exit_code == 2
    assert result.stderr == f"error: port {port} for {server} is in use: choose another one with {option}\n"
    assert servers.status(folder) == []


def test_if_redis_does_not_start_the_broker_does_not_stay(
    folder: Path, ports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "server_binary", lambda: Path("/bin/false"))
    result = run("up", folder, *ports)
    assert result.exit_code == 2
    assert "the Redis server did not start" in result.stderr
    assert is_free(int(ports[1]))
    assert servers.status(folder) == []


def test_down_with_nothing_running_says_so(folder: Path) -> None:
    result = run("down", folder)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: nothing is running in")


def test_a_folder_that_cannot_be_one_is_named(tmp_path: Path, ports: list[str]) -> None:
    (tmp_path / "file").touch()
    result = run("up", tmp_path / "file", *ports)
    assert result.exit_code == 2
    assert "name another one with --folder" in result.stderr


def test_status_tells_a_killed_server_from_a_running_one(folder: Path, ports: list[str]) -> None:
    started = told(run("up", folder, *ports, "--json"))
    os.kill(started["kafka"]["pid"], signal.SIGKILL)
    wait_until(lambda: birth_of(started["kafka"]["pid"]) is None, lambda: "the broker stays")
    result = run("status", folder, "--json")
    assert result.exit_code == 1
    now = {server["name"]: server["running"] for server in json.loads(result.stdout)["servers"]}
    assert now == {"kafka": False, "redis": True}


def test_down_never_ends_a_process_that_took_over_a_recorded_id(folder: Path, ports: list[str]) -> None:
    """The recorded id belongs to another process by now: its birth is not the recorded one."""
    stranger = subprocess.Popen(["sleep", "600"])
    time.sleep(0.05)  # births are told apart by the kernel's ticks of 10 ms; ids come round much later
    told(run("up", folder, *ports, "--json"))
    recorded = folder / "servers.json"
    broker = servers.status(folder)[0]
    try:
        rows = json.loads(recorded.read_text())
        rows[0]["pid"] = stranger.pid
        recorded.write_text(json.dumps(rows))
        assert run("down", folder).exit_code == 0
        assert stranger.poll() is None
    finally:
        stop_by_id(broker.pid, broker.birth)
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_help_shows_an_example(command: str) -> None:
    assert f"stream-dp dev {command}" in CliRunner().invoke(app, ["dev", command, "--help"]).output


@pytest.mark.parametrize("group", [[], ["jobs"], ["budget"], ["key"], ["dev"]])
def test_help_of_a_group_shows_an_example(group: list[str]) -> None:
    told = CliRunner().invoke(app, [*group, "--help"]).output
    assert " ".join(["stream-dp", *group]) in told[told.index("Example") :]
