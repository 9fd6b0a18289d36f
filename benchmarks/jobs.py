"""Whole jobs from files and from a topic, beside other libraries and beside bare kafka-python.

python -m benchmarks jobs
"""

import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from rich.console import Console
from rich.table import Table

from benchmarks.measure import take_turns
from stream_dp.dev.servers import embedded
from stream_dp.jobs.file_rows import read_file
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import JobRequest, request_from
from stream_dp.jobs.rows import RowCollector
from stream_dp.jobs.source_file import find_file
from stream_dp.jobs.topic_rows import TopicRange, read_topic
from stream_dp.kafka import log
from stream_dp.privacy.one_shot_noise import OneShotNoise

ROWS, USERS, ITEMS = 10_000_000, 1_000_000, 100_000
OTHERS_ROWS = 200_000
RECORDS = 200_000
PROMISE = {"epsilon": 1.0, "delta": 1e-6}
JOBS: dict[str, dict[str, Any]] = {
    "top-k gumbel": {"job": "top-k", "mechanism": "gumbel", "k": 100},
    "histogram gaussian": {"job": "histogram", "mechanism": "gaussian", "items_per_user": 10},
    "set-union sips": {"job": "set-union", "mechanism": "sips", "items_per_user": 10},
    "set-union greedy": {"job": "set-union", "mechanism": "greedy"},
}


def main(console: Console) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files(console, folder)
        numbering(console, folder / "rows.parquet")
        others(console, folder)
        topic(console, folder)


def write(file: Path, rows: int) -> Path:
    """Users at random and items by a heavy-tailed law, as text."""
    random = np.random.default_rng(1)
    ranks = np.minimum((random.pareto(0.6, rows) * 5).astype(np.int64), ITEMS - 1)
    users = pa.array(np.char.add("user-", np.arange(USERS).astype("U")))
    items = pa.array(np.char.add("item number ", np.arange(ITEMS).astype("U")))
    table = pa.table(
        {"user": users.take(pa.array(random.integers(0, USERS, rows))), "item": items.take(pa.array(ranks))}
    )
    if file.suffix == ".csv":
        pacsv.write_csv(table, file)  # with quotes around every value
    else:
        pq.write_table(table, file)
    return file


def job(file: Path | str, asked: dict[str, Any]) -> int:
    """One whole job over a file; returns how many labels it released."""
    source = {"file": str(file), "name": "benchmark"}
    request = request_from({"v": 1, "id": "benchmark", **PROMISE, **asked, "source": source})
    assert isinstance(request, JobRequest)
    calibrated, collector = calibrate(request), RowCollector()
    read_file(find_file(request.source, "user"), "user", collector, lambda done, total: None)
    rows = collector.rows()
    return len(rows.names(calibrated.run(rows, OneShotNoise(bytes(32))).items))


def files(console: Console, folder: Path) -> None:
    table = Table(
        "job", "Parquet", "CSV", title=f"Whole jobs over {ROWS:,} rows with text labels, million rows/s"
    )
    both = [write(folder / "rows.parquet", ROWS), write(folder / "rows.csv", ROWS)]
    for name, asked in JOBS.items():
        seconds = take_turns({file.suffix: partial(job, file, asked) for file in both}, 1)
        table.add_row(name, *(f"{ROWS / seconds[file.suffix] / 1e6:.2f}" for file in both))
    console.print(table)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    console.print(f"peak memory of this process: {peak:.2f} GiB\n")


def numbering(console: Console, file: Path) -> None:
    """What counting users per label takes DuckDB, and what only numbering the names takes other libraries."""
    import duckdb
    import polars as pl

    count = f"SELECT item, count(*) FROM (SELECT DISTINCT user, item FROM '{file}') GROUP BY item"
    names = ("user", "item")
    contestants: dict[str, Callable[[], object]] = {
        "DuckDB, users per label": lambda: duckdb.execute(count).fetchall(),
        "polars, names as categories": lambda: (
            pl.scan_parquet(file).with_columns(pl.all().cast(pl.Categorical)).collect()
        ),
        "pyarrow, names as dictionaries": lambda: pq.read_table(
            file, read_dictionary=names
        ).unify_dictionaries(),
        "a whole job here": partial(job, file, JOBS["top-k gumbel"]),
    }
    seconds = take_turns(contestants, 3)
    table = Table("", "seconds", "beside DuckDB", title=f"{ROWS:,} rows of Parquet, {USERS:,} users")
    for name, each in seconds.items():
        table.add_row(name, f"{each:.2f}", f"{each / seconds['DuckDB, users per label']:.1f}")
    console.print(table)


def others(console: Console, folder: Path) -> None:
    """Counts of unlisted labels by other libraries, from the same file; on fewer rows, as they take longer."""
    file = write(folder / "small.parquet", OTHERS_ROWS)
    contestants: dict[str, Callable[[], object]] = {
        "stream_dp": lambda: job(file, JOBS["histogram gaussian"]),
        "pipeline-dp 0.3, local": lambda: pipeline_dp_counts(file),
    }
    table = Table(
        "", "million rows/s", title=f"Private counts of unlisted labels, {OTHERS_ROWS:,} rows of Parquet"
    )
    for name, seconds in take_turns(contestants, 1).items():
        table.add_row(name, f"{OTHERS_ROWS / seconds / 1e6:.3f}")
    console.print(table)


def pipeline_dp_counts(file: Path) -> int:
    import pipeline_dp

    read = pq.read_table(file)
    rows = list(zip(read["user"].to_pylist(), read["item"].to_pylist(), strict=True))
    return len(list(counted_by_pipeline_dp(rows, pipeline_dp.LocalBackend())))


def counted_by_pipeline_dp(rows: Any, backend: Any) -> Any:
    """The counts that PipelineDP releases of rows of (user, item), as a collection of `backend`.

    Guarantee, noise and bound are those of the job "histogram gaussian".
    """
    import pipeline_dp

    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-6)
    engine = pipeline_dp.DPEngine(accountant, backend)
    parameters = pipeline_dp.AggregateParams(
        noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
        metrics=[pipeline_dp.Metrics.PRIVACY_ID_COUNT],
        max_partitions_contributed=10,
        max_contributions_per_partition=1,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: 0,
    )
    result = engine.aggregate(rows, parameters, extractors)
    accountant.compute_budgets()
    return result


def topic(console: Console, folder: Path) -> None:
    """Reading a topic into arrays, beside a consumer that only counts the records."""
    with embedded(folder / "servers") as servers:
        log.create_topics(servers.kafka, "benchmark.events")
        with KafkaProducer(bootstrap_servers=servers.kafka, linger_ms=20) as producer:
            for number in range(RECORDS):
                value = b'{"items": ["item number %d"], "user": "user-%d"}' % (number % 997, number % 9_973)
                producer.send("benchmark.events", value)

        def ours() -> None:
            collector = RowCollector()
            chosen = TopicRange("benchmark.events", (0,), (RECORDS,))
            read_topic(servers.kafka, chosen, "user", collector, lambda done, total: None)
            assert len(collector.rows().items) == RECORDS

        seconds = take_turns({"bare": lambda: bare(servers.kafka), "ours": ours}, 3)
    console.print(
        f"Log reading: kafka-python alone {RECORDS / seconds['bare'] / 1e3:,.0f} thousand records/s, into arrays "
        f"{RECORDS / seconds['ours'] / 1e3:,.0f}: {seconds['ours'] / seconds['bare']:.2f} times as long"
    )


def bare(kafka: str) -> None:
    partition = TopicPartition("benchmark.events", 0)
    with KafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        seen, since = 0, time.monotonic()
        while seen < RECORDS:
            seen += len(consumer.poll(500).get(partition, []))
            assert time.monotonic() - since < 120
