"""A stream on a standalone cluster of Spark, all of whose processes are killed in turn: the releases of one worker.

The command that `stream-dp spark --master URL` prints is run as it is.  Its broker is a real Apache Kafka, whatever
`--kafka` says.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apache_spark.own_servers import own_servers
from tests.apache_spark.processes import PATIENCE, below, children, command, kill, wait_patiently
from tests.apache_spark.test_stream import APART, PARTITIONS, SPARK, check_letters, feed, wait_for_round
from tests.system.streams import Stream, ended, small_stream
from tests.system.ticking import open_epoch

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'stream_dp[spark]'")

from tests.apache_spark.cluster import Cluster


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    with (
        own_servers(tmp_path / "servers") as servers,
        small_stream(
            servers.kafka, servers.redis_url, "shop", tmp_path, partitions=PARTITIONS, **SPARK
        ) as found,
    ):
        open_epoch(found)
        yield found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as found:
        found.start_master()
        for name in ("first", "second"):
            found.start_worker(name)
        yield found


class Driver:
    """What `spark-submit` runs: a Java process, which has started one of Python."""

    def __init__(self, stream: Stream, cluster: Cluster, state: Path) -> None:
        self._stream, self._cluster = stream, cluster
        words = "spark", "--state", str(state), "--master", cluster.master
        printed = subprocess.run(
            [sys.executable, "-m", "stream_dp.cli", *words],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=self._env,
        )
        self.line = printed.stdout.strip()
        self.process: subprocess.Popen[bytes] | None = None
        self._left = 0

    @property
    def _env(self) -> dict[str, str]:
        settings = self._stream.settings
        values = {name: getattr(settings, name) for name in settings.__struct_fields__}
        named = {
            f"STREAM_DP_{name.upper()}": str(value) for name, value in values.items() if value is not None
        }
        return self._cluster.environment | named

    def start(self) -> None:
        with (self._cluster.folder / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                shlex.split(self.line), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._env
            )

    def python(self) -> int:
        """The process that is ours."""
        assert self.process is not None
        return next(pid for pid in children(self.process.pid) if "submitted.py" in command(pid))

    def kill(self) -> None:
        """Kill the Java process; that of Python ends when it needs Spark again."""
        assert self.process is not None
        self._left = self.python()
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """Start another one if it was killed, once nothing is left of it."""
        if self._left:
            left, self._left = Path(f"/proc/{self._left}"), 0
            wait_patiently(lambda: not left.exists(), lambda: "the driver goes on without Spark")
            self.start()

    def stop(self) -> int:
        """Ask it to end, and return its status."""
        assert self.process is not None
        os.kill(self.python(), signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def __enter__(self) -> "Driver":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            kill(*below(self.process.pid), self.process.pid)
            self.process.wait()


@pytest.mark.timeout(3_600)
def test_a_cluster_counts_a_stream_whoever_is_killed_comes_or_goes(
    stream: Stream, cluster: Cluster, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    worker = stream.start()
    with Driver(stream, cluster, state) as driver:

        def lose_executors() -> None:
            kill(*(pid for name in ("first", "second") for pid in cluster.executors(name)))

        def restart_master() -> None:
            cluster.kill("master")
            cluster.start_master()

        steps: tuple[Callable[[], None], ...] = (
            lambda: None,
            lose_executors,
            lambda: cluster.kill("first"),
            lambda: cluster.start_worker("third"),
            restart_master,
            driver.kill,
            lambda: cluster.stop("second"),
        )
        for number, step in enumerate(steps, 1):
            feed(stream, (number - 1) * APART + 1, number * APART - 4)
            step()
            feed(stream, number * APART - 3, number * APART)
            driver.start_again()
            wait_for_round(stream, number * APART, worker)
        assert cluster.executors("third"), "a worker that came later has work"
        assert driver.stop() == 0
    worker.terminate()
    assert ended(worker) == 0
    stream.check_releases()
    check_letters(stream)
