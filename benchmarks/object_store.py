"""A job over a large object of a store, beside the same job over the same file here: the most memory, and the time.

python -m benchmarks object_store

The store is moto's server on loopback.  Each job has a process of its own, which reads the content twice, as every job
does: for its digest, and for its rows.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pytest
from rich.console import Console
from rich.table import Table

from benchmarks import large_files
from tests.object_store import object_store

ROWS = {".parquet": 30_000_000, ".csv": 10_000_000, ".jsonl": 5_000_000}
JOB = "histogram gaussian"

PROGRAM = """
import json, sys, time
from benchmarks.jobs import JOBS, job
from benchmarks.measure import most_memory
from stream_dp.jobs.request import Source
from stream_dp.jobs.source_file import digest_of, locate
start = time.perf_counter()
digest_of(locate(Source(file=sys.argv[1])))
labels = job(sys.argv[1], JOBS[sys.argv[2]])
seconds = time.perf_counter() - start
print(json.dumps([labels, seconds, most_memory() / 2**30]))
"""


def main(console: Console) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it tells of every request
    table = Table("file", "MB", "rows", "memory here, GiB", "in the store", "seconds here", "in the store")
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        object_store(patch) as store,
    ):
        for suffix, rows in ROWS.items():
            file = Path(folder) / f"rows{suffix}"
            write(file, rows)
            size = file.stat().st_size
            labels, seconds, memory = run(str(file))
            stored = store.put(file.name, file.read_bytes())
            file.unlink()
            labels_there, seconds_there, memory_there = run(stored)
            assert labels == labels_there
            table.add_row(
                file.name,
                f"{size / 1e6:,.0f}",
                f"{rows:,}",
                *(f"{number:.2f}" for number in (memory, memory_there)),
                *(f"{number:.0f}" for number in (seconds, seconds_there)),
            )
    console.print(table)


def run(name: str) -> tuple[int, float, float]:
    """Labels released, seconds and the most memory in GiB of a job over the file of this name."""
    words = [sys.executable, "-c", PROGRAM, name, JOB]
    ran = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=os.environ)
    labels, seconds, memory = json.loads(ran.stdout)
    return labels, seconds, memory


def write(file: Path, rows: int) -> None:
    """The rows of `large_files`, in the format that the name ends with."""
    if file.suffix == ".parquet":
        large_files.write(file, rows)
        return
    with file.open("wb") as out:
        for number, part in enumerate(large_files.tables(rows)):
            if file.suffix == ".csv":
                pacsv.write_csv(part, out, pacsv.WriteOptions(include_header=number == 0))
            else:
                out.write(lines(part))


def lines(part: pa.Table) -> bytes:
    """Rows as events, one a line."""
    joined = pc.binary_join_element_wise(
        '{"user": "', part["user"], '", "items": ["', part["item"], '"]}', ""
    )
    return ("\n".join(joined.to_pylist()) + "\n").encode()
