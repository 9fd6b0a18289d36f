"""Whether more executors cost more: the processor time of an event on one, two and four of them.

`python -m benchmarks spark_executors` counts one backlog again and again on a standalone cluster on loopback.  Each
executor is pinned to one processor, and so are the broker and the driver.  What tells whether executors slow each other
down are rows with as many executors a processor: one on one and two on two, or two on one and four on two.

More executors a processor cost more, since each counts less in a second, and has to do some things every second.  What
processes lose that take turns on a processor, or share its caches, shows where as many of them decode and count events
without Spark.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from time import perf_counter, process_time, sleep
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import family, processor_seconds
from benchmarks.spark_stream import UNITS, backlog, engine_of, session_on
from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.records import Records
from tests.apache_kafka.server import apache_kafka
from tests.apache_spark.cluster import Cluster

CLUSTERS = (1, 1), (2, 2), (2, 1), (4, 2)
"""How many executors, on how many processors."""

_PASSES = 5  # the first ones start Python, and in each executor Java compiles; the least counts
_ALONE, _TIMES = 200_000, 3  # events of a process, about as many as a task has, and how often it decodes them


def main(console: Console) -> None:
    """Print what an event took on executors, for each unit and each number of them."""
    ours, other = sorted(os.sched_getaffinity(0))[:2]
    table = Table(
        "unit",
        "executors",
        "processors",
        "events",
        "events/s",
        "us of executors' processor an event",
        "us without Spark, of as many processes",
        title="Executors have a processor that broker and driver do not have; two processors are that one and theirs",
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        _on_processor(ours),
        embedded(Path(folder)) as servers,
        apache_kafka(Path(folder) / "apache") as kafka,
    ):
        streams = {unit: backlog(kafka, servers.redis_url, unit, users) for unit, users in UNITS.items()}
        for executors, processors in CLUSTERS:
            theirs = [other, ours][:processors] * (executors // processors)
            with (
                _cluster(Path(folder) / f"{executors} on {processors}", theirs) as cluster,
                ProcessPoolExecutor(1, get_context("spawn")) as driver,  # Java knows one cluster for good
            ):
                workers = [process.pid for name, process in cluster.processes.items() if name != "master"]
                place = cluster.master, cluster.environment, workers
                taken = driver.submit(_counted, streams, *place).result()
                alone = _without_spark(theirs)
                for unit, (events, seconds, used) in taken.items():
                    table.add_row(
                        unit,
                        f"{executors}",
                        f"{processors}",
                        f"{events:,}",
                        f"{events / seconds:,.0f}",
                        f"{used / events * 1e6:.2f}",
                        f"{alone * 1e6:.2f}",
                    )
    console.print(table)


@contextmanager
def _on_processor(which: int) -> Iterator[None]:
    """What is started meanwhile runs on this processor alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {which})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _cluster(folder: Path, processors: Sequence[int]) -> Iterator[Cluster]:
    """One with a worker, and so an executor, on each of these processors."""
    with Cluster(folder) as cluster:
        cluster.environment["PYTHONPATH"] = str(Path.cwd())
        cluster.start_master()
        for number, processor in enumerate(processors):
            with _on_processor(processor):
                cluster.start_worker(f"worker {number}")
        yield cluster


def _counted(
    streams: Mapping[str, Settings], master: str, environment: Mapping[str, str], workers: Sequence[int]
) -> dict[str, tuple[int, float, float]]:
    """How many events each stream has, and for how many seconds the clock and the executors' processor ran."""
    os.environ.update(environment)
    session = session_on(master)
    while any(len(family(each)) == 1 for each in workers):
        sleep(0.1)
    taken = {unit: _of_stream(stream, session, workers) for unit, stream in streams.items()}
    session.stop()
    return taken


def _of_stream(stream: Settings, session: Any, workers: Sequence[int]) -> tuple[int, float, float]:
    taken = list[tuple[int, float, float]]()
    for _ in range(_PASSES):
        with tempfile.TemporaryDirectory() as folder:
            engine, _ = engine_of(stream, session, len(workers), Path(folder))
            began, processor, events = perf_counter(), _processor(workers), 0
            while (records := engine.turn()) is not None:
                events += records
            taken.append((events, perf_counter() - began, _processor(workers) - processor))
    return min(taken, key=lambda each: each[2])


def _processor(workers: Sequence[int]) -> float:
    """The processor time so far of the executors that workers have started, and of what these have."""
    return sum(processor_seconds(each) for pid in workers for each in family(pid)[1:])


def _without_spark(processors: Sequence[int]) -> float:
    """Seconds of a processor that an event takes, the mean of processes that have these processors."""
    with get_context("spawn").Pool(len(processors)) as pool:
        pool.starmap(_decode, enumerate(processors), chunksize=1)  # which starts them all
        return mean(pool.starmap(_decode, enumerate(processors), chunksize=1))


def _decode(seed: int, processor: int) -> float:
    os.sched_setaffinity(0, {processor})
    decode, values = decoder_of(None), [_event(seed * _ALONE + number) for number in range(_ALONE)]
    records = Records(0, range(_ALONE), [0] * _ALONE, [None] * _ALONE, values)
    began = process_time()
    for _ in range(_TIMES):
        sorted(Counter(item for event in decode.all(records) for item in event.items))
    return (process_time() - began) / (_ALONE * _TIMES)


def _event(number: int) -> bytes:
    return b'{"items":["label %d","label %d"]}' % (2 * number, 2 * number + 1)
