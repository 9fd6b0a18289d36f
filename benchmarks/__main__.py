"""`python -m benchmarks [name ...]`: run the named benchmarks, or all of them."""

import sys
from importlib import import_module

from rich.console import Console

NAMES = (
    "noise",
    "counters",
    "engine",
    "subscribers",
    "end_to_end",
    "partitions",
    "barriers",
    "recovery",
    "standby",
    "batch",
    "jobs",
    "large_files",
    "object_store",
    "spark",
    "spark_stream",
    "spark_executors",
    "spark_latency",
    "defaults",
    "peers",
    "unions",
    "stable_sets",
    "dashboard",
    "charts",
    "notebook",
    "labels",
    "idle_labels",
    "checkpoint",
    "costs",
    "sizes",
    "mapping",
    "hostile_records",
    "composition",
    "intervals",
    "found_intervals",
    "job_intervals",
    "found_errors",
    "rate_test",
    "windows",
    "endless",
)


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    console = Console(width=110)
    for name in names or NAMES:
        import_module(f"benchmarks.{name}").main(console)


if __name__ == "__main__":
    main(sys.argv[1:])
