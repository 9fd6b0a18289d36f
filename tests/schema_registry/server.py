"""A real schema registry on loopback, for tests: Apicurio, which speaks the protocol of Confluent's, in memory.

It needs `java` (17 or newer) and, the first time, `mvn` with access to Maven Central.
"""

import json
import shutil
import subprocess
import tarfile
import time
import urllib.request
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from stream_dp.dev.child_process import spawn, stop_owned
from tests.apache_kafka.server import JAR_CACHE, KafkaUnavailableError, fetch, free_ports

POM = Path(__file__).resolve().parent / "pom.xml"
READY_SECONDS = 120.0


def unpacked() -> Path:
    """The folder of the server, fetched by Maven when it is not in the cache yet."""
    version = ElementTree.parse(POM).findtext(".//{*}apicurio.version")
    if version is None:
        raise KafkaUnavailableError(f"{POM} has no <apicurio.version> property: restore it.")
    folder = JAR_CACHE / f"registry-{version}"
    fetch(POM, folder)
    server = folder / "server"
    if not server.is_dir():
        [archive] = folder.glob("*-all.tar.gz")
        partial = folder / "server.partial"
        shutil.rmtree(partial, ignore_errors=True)
        with tarfile.open(archive) as packed:
            packed.extractall(partial, filter="data")
        partial.rename(server)
    return server


class Registry:
    """A registry on a fixed port; what was registered is gone when it stops."""

    def __init__(self, folder: Path) -> None:
        self._port, _ = free_ports()
        self._log = folder / "registry.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it, and return when it answers."""
        server = unpacked()
        [jar] = server.glob("*-runner.jar")
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]
        place = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._port}"]
        self._process = spawn(["java", *options, *place, "-jar", jar], self._log, owned=True)
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                self._ask("subjects")
                return
            except (URLError, OSError):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise KafkaUnavailableError(
                        f"the registry did not start:\n{self._log.read_text()[-3000:]}"
                    ) from None
                time.sleep(0.1)

    def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None:
            stop_owned(process)

    def register(self, subject: str, schema: str, kind: str = "AVRO", **references: tuple[str, int]) -> int:
        """The number of a schema; `references`: subject and version, by the name with `/` and `.` as `__` and `_`."""
        told: dict[str, Any] = {"schema": schema, "schemaType": kind}
        if references:
            told["references"] = [
                {"name": name.replace("__", "/").replace("_", "."), "subject": subject, "version": version}
                for name, (subject, version) in references.items()
            ]
        return int(self._ask(f"subjects/{subject}/versions", told)["id"])

    def _ask(self, place: str, told: dict[str, Any] | None = None) -> Any:
        body = None if told is None else json.dumps(told).encode()
        request = urllib.request.Request(f"{self.address}/{place}", body)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except HTTPError as error:
            raise AssertionError(f"{place}: {error.read()!r}") from error
