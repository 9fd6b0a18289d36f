"""A real Apache Kafka server on loopback, for tests: what the embedded broker promises is proved against it.

`apache_kafka(folder)` runs one for the length of a `with` block and gives its bootstrap address.
Tests that stop, kill or restart it hold a `Broker` instead:

    with Broker(folder) as broker:
        broker.kill()
        broker.start()          # same address, same data

It needs `java` (17 or newer) and, the first time, `mvn` with access to Maven Central.
"""

import atexit
import contextlib
import fcntl
import shutil
import socket
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template
from typing import Self

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from stream_dp.dev.child_process import spawn, stop_owned

HERE = Path(__file__).resolve().parent
POM = HERE / "pom.xml"
JAR_CACHE = HERE.parents[1] / ".kafka"
CLUSTER_ID = "c3RyZWFtX2RwX3Rlc3RzMQ"  # 16 bytes in url-safe base 64; any constant does
READY_SECONDS = 120.0
_HELD = contextlib.ExitStack()
atexit.register(_HELD.close)


class KafkaUnavailableError(Exception):
    """Apache Kafka cannot run here; the message is one sentence that says what to change."""


def version() -> str:
    """The Kafka release that pom.xml asks for."""
    found = ElementTree.parse(POM).findtext(".//{*}kafka.version")
    if found is None:
        raise KafkaUnavailableError(f"{POM.name} has no <kafka.version> property: restore it.")
    return found


def _require(program: str, advice: str) -> None:
    if shutil.which(program) is None:
        raise KafkaUnavailableError(advice)


def jars() -> Path:
    """The folder of the server's jars, fetched by Maven when this release is not in the cache yet."""
    folder = JAR_CACHE / version()
    fetch(POM, folder)
    return folder


def fetch(pom: Path, folder: Path, *options: str) -> None:
    """Let Maven copy what `pom` depends on to `folder`, unless it is there; one process at a time does so."""
    _require("java", "Apache Kafka needs Java 17: install it (Debian: apt-get install default-jdk-headless).")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / "fetching.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if not folder.is_dir():
            _copy_dependencies(pom, folder, *options)


def _copy_dependencies(pom: Path, folder: Path, *options: str) -> None:
    _require("mvn", "Maven has to fetch Apache Kafka: install it (Debian: apt-get install maven).")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}", *options]
    fetched = subprocess.run(
        ["mvn", "--batch-mode", "--quiet", "--file", pom, *goal],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode != 0:
        raise KafkaUnavailableError(f"Maven could not fetch {folder.name}:\n{fetched.stdout}{fetched.stderr}")
    partial.rename(folder)  # last, so that an interrupted download is never taken for a complete one


def java(options: list[str], main: list[str | Path], folder: Path) -> list[str | Path]:
    """The command that runs the class `main` with the jars of `folder`; warnings and errors only are logged."""
    # Stay with the quick compiler: tests wait for start-up, not for peak throughput.
    fixed = ["-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN", "-cp", f"{folder}/*"]
    return ["java", *options, *fixed, *main]


def free_ports() -> tuple[int, int]:
    """Two loopback ports that the kernel gives to nobody else while this process lives, whoever listens on them.

    Not to a client either, that reconnects while the broker is down: it would connect to itself, and keep the broker
    from coming back.
    """
    holders = [_HELD.enter_context(socket.socket()) for _ in range(2)]
    for holder in holders:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that a server may listen
        holder.bind(("127.0.0.1", 0))
    first, second = (int(holder.getsockname()[1]) for holder in holders)
    return first, second


class Broker:
    """One Apache Kafka node on a fixed loopback port, with settings, data and log below `folder`.

    `more` goes below server.properties.template, whose lines it may replace; `options` are for StorageTool format.
    """

    def __init__(self, folder: Path, more: str = "", options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.port, self.controller_port = free_ports()
        self.address = f"127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._format(more, options)

    def _format(self, more: str, options: Sequence[str]) -> None:
        """Write the settings and the empty storage of a new cluster."""
        data = self.folder / "data"
        data.mkdir(parents=True)
        template = Template((HERE / "server.properties.template").read_text() + more)
        settings = template.substitute(port=self.port, controller_port=self.controller_port, data=data)
        self._properties.write_text(settings)
        tool: list[str | Path] = ["kafka.tools.StorageTool", "format", "--config", self._properties]
        tool += ["--cluster-id", CLUSTER_ID, *options]
        done = subprocess.run(java([], tool, jars()), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise KafkaUnavailableError(f"Apache Kafka could not format {data}:\n{done.stdout}{done.stderr}")

    @property
    def pid(self) -> int:
        """The server's process id; only a running server has one."""
        if self._process is None:
            raise RuntimeError("The broker is not running.")
        return self._process.pid

    @property
    def is_started(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._process is not None

    def start(self) -> None:
        """Start on the same address and data as before and return when a client gets its metadata."""
        if self._process is not None:
            raise RuntimeError("The broker is running already.")
        # Owned: it ends with the tests, even when those are killed.
        self._process = spawn(
            java(["-Xmx512m"], ["kafka.Kafka", self._properties], jars()), self.log, owned=True
        )
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise KafkaUnavailableError(
                    f"Apache Kafka exited ({process.returncode}):\n{self._log_tail()}"
                )
            if self._accepts_connections() and self._serves_metadata():
                return
            time.sleep(0.05)
        raise KafkaUnavailableError(f"Apache Kafka took over {READY_SECONDS:.0f} s:\n{self._log_tail()}")

    def _accepts_connections(self) -> bool:
        """Asked first, because a refused connection makes the Kafka client wait longer and longer."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _serves_metadata(self) -> bool:
        try:
            with KafkaAdminClient(bootstrap_servers=self.address, bootstrap_timeout_ms=2_000) as admin:
                return any(not node["is_fenced"] for node in admin.describe_cluster()["brokers"])
        except KafkaError:
            return False

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def stop(self) -> None:
        """Shut down in order, as an operator would; does nothing when it is down already."""
        if self._process is not None:
            stop_owned(self._process)
            self._process = None

    def kill(self) -> None:
        """SIGKILL: no clean shutdown, nothing flushed by the server."""
        if self._process is not None:
            self._process.kill()
            self.stop()

    def restart(self) -> None:
        """Stop in order and start again."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def apache_kafka(folder: Path) -> Iterator[str]:
    """Run a new Apache Kafka node with its data below `folder` and give its bootstrap address."""
    with Broker(folder) as broker:
        yield broker.address
