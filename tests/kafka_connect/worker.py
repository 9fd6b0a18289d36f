"""A real Kafka Connect in one process, with Debezium's sink for databases, for tests.

It needs `java` (17 or newer) and, the first time, `mvn` with access to Maven Central.
"""

import json
import shutil
import tarfile
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from stream_dp.dev.child_process import spawn, stop_owned
from tests.apache_kafka.server import JAR_CACHE, KafkaUnavailableError, fetch, free_ports, java, version

POM = Path(__file__).resolve().parent / "pom.xml"
READY_SECONDS = 120.0

# The worker's own settings: how it reads and writes records stands in the connector's.
_WORKER = """
bootstrap.servers={kafka}
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
plugin.path={plugins}
plugin.discovery=service_load
config.providers=env
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
"""


def _debezium_version() -> str:
    found = ElementTree.parse(POM).findtext(".//{*}debezium.version")
    if found is None:
        raise KafkaUnavailableError(f"{POM} has no <debezium.version> property: restore it.")
    return found


def parts() -> tuple[Path, Path]:
    """The folders of Connect's jars and of its plugins, fetched by Maven when they are not in the cache yet."""
    folder = JAR_CACHE / f"connect-{version()}-{_debezium_version()}"
    fetch(POM, folder, f"-Dkafka.version={version()}")
    plugins = folder / "plugins"
    if not plugins.is_dir():
        [archive] = folder.glob("*-plugin.tar.gz")
        partial = folder / "plugins.partial"
        shutil.rmtree(partial, ignore_errors=True)
        with tarfile.open(archive) as packed:
            packed.extractall(partial, filter="data")
        partial.rename(plugins)
    return folder, plugins


class ConnectWorker:
    """Connectors of one file each, on a REST port of its own."""

    def __init__(self, folder: Path, kafka: str, *connectors: str) -> None:
        """`connectors` are the texts of properties files, each with a `name`."""
        jars, plugins = parts()
        folder.mkdir(parents=True)
        port, _ = free_ports()
        self.log = folder / "connect.log"
        self._rest = f"http://127.0.0.1:{port}"
        settings = folder / "worker.properties"
        settings.write_text(_WORKER.format(kafka=kafka, port=port, folder=folder, plugins=plugins))
        files = [folder / f"{number}.properties" for number in range(len(connectors))]
        for file, text in zip(files, connectors, strict=True):
            file.write_text(text)
        main: list[str | Path] = ["org.apache.kafka.connect.cli.ConnectStandalone", settings, *files]
        self._process = spawn(java(["-Xmx384m"], main, jars), self.log, owned=True)

    def tasks(self, connector: str) -> list[dict[str, Any]]:
        """The state of each task, as the worker tells it; none before there are any."""
        if (status := self._process.poll()) is not None:
            raise KafkaUnavailableError(f"Kafka Connect ended ({status}):\n{self.log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{self._rest}/connectors/{connector}/status", timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)["tasks"]
                return found
        except (URLError, OSError):
            return []

    def stop(self) -> None:
        """Stop in order; what was read is committed."""
        stop_owned(self._process)


@contextmanager
def kafka_connect(folder: Path, kafka: str, *connectors: str) -> Iterator[ConnectWorker]:
    """A worker with these connectors for the length of a `with` block."""
    worker = ConnectWorker(folder, kafka, *connectors)
    try:
        yield worker
    finally:
        worker.stop()
