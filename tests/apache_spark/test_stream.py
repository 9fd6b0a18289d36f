"""A stream of users that Apache Spark counts: killed in any of its processes, it gives the releases of one worker.

test_cluster.py does the same with a stream of events.
Its broker is a real Apache Kafka, whatever `--kafka` says.
"""

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import WorkerEnds
from stream_dp.releases.release import decode_release
from tests.apache_kafka.server import Broker
from tests.apache_spark.own_servers import own_servers
from tests.apache_spark.processes import PATIENCE, below, children, wait_patiently
from tests.system.example_events import some_events
from tests.system.soak import spark_kills
from tests.system.streams import AnyWorker, Stream, ended, small_stream, status_of
from tests.system.test_spark_engine import MOST_USERS, USERS
from tests.system.test_verify_commands import run
from tests.system.ticking import NO_MORE, TICKS, open_epoch
from tests.system.waiting import GIVE_UP_SECONDS

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'stream_dp[spark]'")

from py4j.protocol import Py4JError

from stream_dp.jobs.spark import cores_of
from stream_dp.spark.worker import run_on

PARTITIONS, APART = 3, 8
SPARK: dict[str, Any] = {"engine": "spark", "mechanism": "blt", "discover": f"every-{APART}", "at_least": 2}
SPARK |= {"epsilon": 20.0, "delta": 0.2, "horizon": 255, "cap_share": True, **TICKS, **NO_MORE}


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "kafka")


@pytest.fixture
def stream(tmp_path: Path, broker: Broker) -> Iterator[Stream]:
    rounds = (spark_kills() + 2) * APART
    settings = SPARK | USERS | {"horizon": max(SPARK["horizon"], (1 << rounds.bit_length()) - 1)}
    with (
        own_servers(tmp_path / "servers", broker) as servers,
        small_stream(
            servers.kafka, servers.redis_url, "shop", tmp_path, partitions=PARTITIONS, **settings
        ) as found,
    ):
        open_epoch(found)
        yield found


class Engine:
    """`stream-dp spark` with two executors' worth of Python processes, in a folder of its own."""

    def __init__(self, stream: Stream, folder: Path) -> None:
        self.stream, self.state, self.scratch = stream, folder / "state", folder / "scratch"
        for each in (self.state, self.scratch):
            each.mkdir(mode=0o700, parents=True)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = "-c", "from stream_dp.cli import main; main()", "spark", "--state", str(self.state)
        process = self.stream.start_faust(*words)
        assert isinstance(process, subprocess.Popen)
        self.process = process

    def kill(self, victim: str) -> None:
        """Kill a process of the engine: the driver, the Java process of Spark or one that counts."""
        assert self.process is not None
        driver = self.process.pid
        if victim == "driver":
            os.kill(driver, signal.SIGKILL)
            self.process.wait(GIVE_UP_SECONDS)
            return
        java = children(driver)
        pids = java if victim == "java" else [each for one in java for each in below(one)]
        if pids:
            os.kill(random.choice(pids), signal.SIGKILL)


def feed(stream: Stream, first: int, last: int) -> None:
    for number in range(first, last + 1):
        users = MOST_USERS if stream.settings.unit == "user" else 0
        events = some_events(24, seed=number, users=users)
        stream.spread(events, PARTITIONS)
        stream.close_rounds(1_000 * number)


def wait_for_round(stream: Stream, number: int, worker: AnyWorker) -> None:
    """Return when a round is released."""

    def released() -> bool:
        assert status_of(worker) is None
        return stream.last_round() >= number

    wait_patiently(released, lambda: f"round {stream.last_round()} instead of {number}:\n{stream.logged()}")


def check_letters(stream: Stream) -> None:
    """Each broken record was copied, and no other."""
    expected = {(each.partition, each.offset) for each in stream.uninterrupted()[1].dead_letters}
    headers = [each.headers for each in stream.dead_letters(at_least=len(expected))]
    assert {(int(each["partition"]), int(each["offset"])) for each in headers} == expected


@pytest.mark.timeout(3_600 + 60 * spark_kills())
def test_spark_counts_a_stream_whoever_is_killed(
    stream: Stream, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, worker = Engine(stream, tmp_path / "spark"), stream.start()
    here = f"--master local[2,4] --conf spark.local.dir={engine.scratch} pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", here)
    engine.start()
    victims = islice(cycle(("task", "driver", "worker", "java", "broker")), spark_kills())
    for number, victim in enumerate(["", *victims, ""], 1):
        last = number * APART
        feed(stream, last - APART + 1, last - 1)
        if victim == "worker":
            worker.kill()
            worker = stream.start()
        elif victim == "broker":
            broker.kill()
            broker.start()
        elif victim:
            engine.kill(victim)
        feed(stream, last, last)  # what it cannot count if Spark has gone
        if victim in ("driver", "java"):
            assert engine.process is not None
            if victim == "java":
                assert engine.process.wait(PATIENCE) == 2, "it says that Spark has ended"
            engine.start()
        wait_for_round(stream, last, worker)
    assert engine.process is not None
    engine.process.terminate()
    assert ended(engine.process) == 0
    worker.terminate()
    assert ended(worker) == 0
    stream.check_releases()
    check_letters(stream)
    shown = decode_release(stream.releases()[-1].value or b"")
    assert len({*(shown.found or [])}) > 1, "labels are found at several tests"
    assert run(stream, "verify", "--json").exit_code == 0


class GoneSpark:
    """A session whose Java process was killed: whatever is asked fails."""

    @property
    def sparkContext(self) -> "GoneSpark":
        return self

    def __getattr__(self, name: str) -> object:
        raise Py4JError(f"An error occurred while calling {name}")


@pytest.mark.parametrize("ask", [cores_of, lambda session: list(run_on(session, lambda _: (), 1))])
def test_whatever_asks_a_spark_that_has_gone_says_so(ask: Callable[[object], object]) -> None:
    with pytest.raises(WorkerEnds, match="Spark"):
        ask(GoneSpark())
