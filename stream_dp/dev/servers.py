"""The embedded broker and a real Redis server together, for trying out and for tests.

`embedded` starts both as children on free ports for the length of a `with` block.
`up`, `down` and `status` keep a pair running between commands, recorded in `servers.json` in their folder.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from stream_dp.dev import redis_server
from stream_dp.dev.atomic_file import write_atomically
from stream_dp.dev.child_process import (
    ServerFailed,
    birth_of,
    is_free,
    prepare_folder,
    spawn,
    stop_by_id,
    stop_owned,
    wait_until,
)

HOST = "127.0.0.1"
_STATE_FILE = "servers.json"
_BROKER_READY_FILE = "broker.json"  # written by stream_dp.dev.broker, not imported here to start fast


@dataclass(frozen=True)
class Servers:
    """Where to connect: `kafka` is a bootstrap address, `redis_url` a URL for redis-py."""

    kafka: str
    redis_url: str


@dataclass(frozen=True)
class ServerStatus:
    """One recorded server; `birth` tells its process from a later one with the same id."""

    name: str
    address: str
    pid: int
    birth: str

    @property
    def running(self) -> bool:
        return birth_of(self.pid) == self.birth


@dataclass
class BrokerProcess:
    """A running broker; `process.kill()` is a real SIGKILL of it."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def stop(self) -> None:
        """Stop it and wait until it is gone; its data stay in the folder."""
        stop_owned(self.process)


def start_broker(folder: Path, port: int = 0, owned: bool = True) -> BrokerProcess:
    """Start a broker on `folder` and wait until it accepts connections; `port` 0 takes a free one.

    Raises ServerFailed, for example if the port, or the folder, is in use by another broker.
    """
    prepare_folder(folder)
    log, ready = folder / "broker.log", folder / _BROKER_READY_FILE
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "stream_dp.dev.broker",
        "--folder",
        folder,
        "--port",
        str(port),
    ]
    process = spawn(command, log, owned)
    try:
        wait_until(lambda: _ready_port(ready, process.pid) is not None, process, log, "the broker")
    except BaseException:
        stop_owned(process)
        raise
    listening_on = _ready_port(ready, process.pid)
    assert listening_on is not None
    return BrokerProcess(listening_on, folder, process)


def _ready_port(ready: Path, pid: int) -> int | None:
    """The port the broker with this process id listens on, once it does."""
    try:
        told = json.loads(ready.read_text())
    except FileNotFoundError:
        return None
    return int(told["port"]) if told["pid"] == pid else None


@contextmanager
def embedded(folder: Path) -> Iterator[Servers]:
    """Both servers on free ports with their data below `folder`; they stop with the block or this process."""
    broker = start_broker(folder / "kafka")
    try:
        with redis_server.running(folder / "redis") as redis:
            yield Servers(broker.address, redis.url)
    finally:
        broker.stop()


def up(folder: Path, kafka_port: int = 9092, redis_port: int = 6379) -> list[ServerStatus]:
    """Start both servers detached from this process and record them in `folder`.

    Raises ServerFailed if they run already, if a port is taken, or if one does not start (then neither runs).
    """
    folder = folder.absolute()
    if any(server.running for server in status(folder)):
        raise ServerFailed(
            f"servers of {folder} are already running: stop them first with `stream-dp dev down`"
        )
    for name, port, option in (("Kafka", kafka_port, "--kafka-port"), ("Redis", redis_port, "--redis-port")):
        if not is_free(port):
            raise ServerFailed(f"port {port} for {name} is in use: choose another one with {option}")
    started = [_recorded("kafka", start_broker(folder / "kafka", kafka_port, owned=False))]
    try:
        started.append(_recorded("redis", redis_server.start(folder / "redis", redis_port, owned=False)))
        write_atomically(folder / _STATE_FILE, json.dumps([asdict(server) for server in started], indent=2))
    except BaseException:
        for server in started:
            stop_by_id(server.pid, server.birth)
        raise
    return started


def down(folder: Path) -> list[ServerStatus]:
    """Stop the servers recorded in `folder` and return those that ran; their data stay."""
    stopped = [server for server in status(folder) if server.running]
    for server in stopped:
        stop_by_id(server.pid, server.birth)
    (folder / _STATE_FILE).unlink(missing_ok=True)
    return stopped


def status(folder: Path) -> list[ServerStatus]:
    """The servers recorded in `folder`, running or not; empty if there are none.

    Raises ServerFailed if the record cannot be read.
    """
    recorded = folder / _STATE_FILE
    try:
        return msgspec.json.decode(recorded.read_bytes(), type=list[ServerStatus])
    except FileNotFoundError:
        return []
    except (msgspec.DecodeError, UnicodeError):
        raise ServerFailed(
            f"{recorded} is not a record of servers: end those that still run there by hand, then delete it"
        ) from None


def _recorded(name: str, server: BrokerProcess | redis_server.RedisServer) -> ServerStatus:
    birth = birth_of(server.process.pid)
    if birth is None:
        raise ServerFailed(f"the {name} server ended right after its start, see its log in {server.folder}")
    return ServerStatus(name, f"{HOST}:{server.port}", server.process.pid, birth)
