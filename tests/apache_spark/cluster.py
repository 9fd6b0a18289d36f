"""A standalone cluster of Spark on loopback, closed as docs/operations/spark.md says."""

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pyspark

from tests.apache_spark.processes import below, children, command, kill, wait_patiently

HOME = Path(pyspark.__file__).parent


class Cluster:
    """A master, and workers of one core each; all that they write is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.environment = os.environ | {
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{HOME / 'bin'}:{os.environ['PATH']}",
        }
        settings = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(32),
            "spark.network.crypto.enabled": "true",
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(folder / "recovery"),
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
        }
        conf = folder / "conf" / "spark-defaults.conf"
        conf.parent.mkdir(mode=0o700)
        conf.touch(mode=0o600)
        conf.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        """Its address."""
        return f"spark://127.0.0.1:{self.port}"

    def start_master(self) -> None:
        """Start it at the port that it always has."""
        self._start("master", "--host", "127.0.0.1", "--port", str(self.port))
        self._until_logged("master", "I have been elected leader")

    def start_worker(self, name: str) -> None:
        """Start one that has a core."""
        place = "--host", "127.0.0.1", "--work-dir", str(self.folder / f"work of {name}")
        self._start(name, *place, "--cores", "1", "--memory", "700m", self.master)
        self._until_logged(name, "Successfully registered with master")

    def executors(self, worker: str) -> list[int]:
        """The processes of a worker that run tasks."""
        pids = children(self.processes[worker].pid)
        return [pid for pid in pids if "CoarseGrainedExecutorBackend" in command(pid)]

    def kill(self, name: str) -> None:
        """End the master or a worker at once."""
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def stop(self, name: str) -> None:
        """Ask the master or a worker to end."""
        self.processes[name].terminate()
        self.processes.pop(name).wait()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            kill(*below(process.pid), process.pid)
            process.wait()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _start(self, name: str, *words: str) -> None:
        kind = "master.Master" if name == "master" else "worker.Worker"
        program = str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--webui-port", "0"
        with self._log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*program, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment
            )

    def _until_logged(self, name: str, text: str) -> None:
        log = self._log(name)
        wait_patiently(lambda: text in log.read_text(), log.read_text)
