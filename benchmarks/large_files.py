"""Whole jobs over Parquet files that get larger, each in a process of its own: rows a second, and the most memory.

python -m benchmarks large_files
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

SIZES = (10_000_000, 100_000_000)
USERS, ITEMS, ROWS_AT_ONCE = 1_000_000, 100_000, 1_000_000
JOBS = ("top-k gumbel", "histogram gaussian")

PROGRAM = """
import json, resource, sys, time
from pathlib import Path
from benchmarks.jobs import JOBS, job
from benchmarks.measure import most_memory
start = time.perf_counter()
labels = job(Path(sys.argv[1]), JOBS[sys.argv[2]])
used = resource.getrusage(resource.RUSAGE_SELF)
seconds = time.perf_counter() - start
print(json.dumps([labels, seconds, used.ru_utime + used.ru_stime, most_memory() / 2**30]))
"""


def main(console: Console) -> None:
    console.print(f"{USERS:,} users and {ITEMS:,} labels, both as text", highlight=False)
    table = Table("job", "rows", "million rows/s", "processor seconds", "most memory, GiB", "labels released")
    with tempfile.TemporaryDirectory() as folder:
        for rows in SIZES:
            file = Path(folder) / "rows.parquet"
            write(file, rows)
            for name in JOBS:
                ran = subprocess.run(
                    [sys.executable, "-c", PROGRAM, str(file), name], stdout=subprocess.PIPE, check=True
                )
                labels, seconds, processor, memory = json.loads(ran.stdout)
                table.add_row(
                    name,
                    f"{rows:,}",
                    f"{rows / seconds / 1e6:.2f}",
                    f"{processor:.0f}",
                    f"{memory:.2f}",
                    f"{labels:,}",
                )
    console.print(table)


def write(file: Path, rows: int) -> None:
    """A file of `tables`; memory does not grow with the rows."""
    parts = tables(rows)
    first = next(parts)
    with pq.ParquetWriter(file, first.schema) as out:
        out.write_table(first)
        for part in parts:
            out.write_table(part)


def tables(rows: int) -> Iterator[pa.Table]:
    """Users at random and items by a heavy-tailed law, as text."""
    random = np.random.default_rng(1)
    users = pa.array(np.char.add("user-", np.arange(USERS).astype("U")))
    items = pa.array(np.char.add("item number ", np.arange(ITEMS).astype("U")))
    for _ in range(rows // ROWS_AT_ONCE):
        ranks = np.minimum((random.pareto(0.6, ROWS_AT_ONCE) * 5).astype(np.int64), ITEMS - 1)
        holders = random.integers(0, USERS, ROWS_AT_ONCE)
        yield pa.table({"user": users.take(pa.array(holders)), "item": items.take(pa.array(ranks))})
