"""Private counts of unlisted labels on Spark, ours and PipelineDP's: one session with two cores, the same file.

python -m benchmarks spark
"""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.jobs import JOBS, PROMISE, counted_by_pipeline_dp, write
from benchmarks.measure import take_turns
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import JobRequest, request_from
from stream_dp.jobs.source_file import find_file
from stream_dp.jobs.spark import Spark
from stream_dp.privacy.one_shot_noise import OneShotNoise

ROWS = 1_000_000


def main(console: Console) -> None:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder) / "rows.parquet", ROWS)
        contestants = {
            "stream_dp --engine spark": partial(ours, file),
            "pipeline-dp 0.3 on Spark": partial(pipeline_dp_counts, session, file),
        }
        seconds = take_turns(contestants, 3)
    table = Table(
        "", "thousand rows/s", title=f"Private counts on Spark, two cores, {ROWS:,} rows of Parquet"
    )
    for name, taken in seconds.items():
        table.add_row(name, f"{ROWS / taken / 1e3:,.0f}")
    console.print(table)
    ours_taken, theirs = seconds.values()
    console.print(f"PipelineDP takes {theirs / ours_taken:.1f} times as long")


def ours(file: Path) -> int:
    """One whole job; returns how many labels it released."""
    source = {"file": str(file), "name": "benchmark"}
    request = request_from(
        {"v": 1, "id": "benchmark", **PROMISE, **JOBS["histogram gaussian"], "source": source}
    )
    assert isinstance(request, JobRequest)
    rows, _ = Spark().rows(find_file(request.source, "user"), "user", "", lambda done, total: None)
    return len(rows.names(calibrate(request).run(rows, OneShotNoise(bytes(32))).items))


def pipeline_dp_counts(session: Any, file: Path) -> int:
    """The same guarantee, noise and bound by PipelineDP; returns how many labels it released."""
    import pipeline_dp

    rows = session.read.parquet(str(file)).select("user", "item").rdd.map(tuple)
    return len(counted_by_pipeline_dp(rows, pipeline_dp.SparkRDDBackend(session.sparkContext)).collect())
