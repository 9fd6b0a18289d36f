"""What fills a night: the tests of every run with larger numbers, long runs of windows, and audits.

    python -m tests.soak
    python -m tests.soak --part audits --part "long run"

Each part leaves its output and a line for the report in build/soak.  At the end the report has a row for each part that
has run, with the commit that it ran on; --write puts it into docs/soak.md.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.system import soak

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "soak"
PAGE = ROOT / "docs" / "soak.md"
HEAD = "| part | what it does | how it ended | took | commit | on |\n|---|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Part:
    """A command, and the environment in which it does more than in every run."""

    does: str
    words: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def _tests(broker: str) -> Part:
    files = [
        f"tests/system/test_{name}.py" for name in ("crashes", "partitions", "flipped_bits", "foreign_shape")
    ]
    return Part(
        "workers killed 750 times at random, and at every step; 10,000 bits flipped in Redis; 100,000 records of a "
        "foreign shape",
        ("pytest", *files, "--kafka", broker, "--timeout", "0", "--verbose"),
        {soak.KILLS: "250", soak.BITS: "10000", soak.RECORDS: "100000"},
    )


PARTS = {
    "crashes": _tests("embedded"),
    "crashes on Apache Kafka": _tests("apache"),
    "Spark": Part(
        "tasks, drivers, Java, workers and brokers of a stream on Spark killed 200 times",
        ("pytest", "tests/apache_spark/test_stream.py", "--timeout", "0", "--verbose"),
        {soak.SPARK_KILLS: "200"},
    ),
    "long run": Part(
        "10,000,000 rounds of windows, with labels that come and go, over two kills",
        ("tests.system.long_run", "--rounds", "10000000"),
    ),
    "audits": Part("20 audits with seeds of their own", ("stream_dp.audit", "--repeat", "20")),
}


def run(name: str, part: Part) -> int:
    """Run one part, show what it prints, and keep that and its row; 0 if it ended well."""
    began, told = time.monotonic(), ""
    known = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(known, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    print(f"\n{name}: {part.does}", flush=True)
    command, environment = [sys.executable, "-u", "-m", *part.words], os.environ | part.environment
    with (
        (FOLDER / f"{name}.log").open("w") as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as ran,
    ):
        for line in ran.stdout or ():
            print(line, end="", flush=True)
            log.write(line)
            told = line.strip(" =\n") or told
    ended = told if ran.returncode == 0 else f"**FAILED** ({ran.returncode}): {told}"
    took = f"{(time.monotonic() - began) / 60:.0f} min"
    day = datetime.now(UTC).date().isoformat()
    (FOLDER / f"{name}.row").write_text(f"| {name} | {part.does} | {ended} | {took} | {commit} | {day} |\n")
    return ran.returncode


def report() -> str:
    """A table in Markdown, with a row for each part that has run here."""
    files = (FOLDER / f"{name}.row" for name in PARTS)
    return "".join([HEAD, *(file.read_text() for file in files if file.exists())])


def main() -> int:
    """0 if every part that was asked for ended well."""
    arguments = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    arguments.add_argument("--part", choices=PARTS, action="append", help="only this one; may be repeated")
    arguments.add_argument("--write", action="store_true", help="write what has run so far into docs/soak.md")
    asked = arguments.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = asked.part or ([] if asked.write else PARTS)
    failed = [name for name in names if run(name, PARTS[name]) != 0]
    print(f"\n{report()}")
    if asked.write:
        before, _, _ = PAGE.read_text().partition(HEAD)
        PAGE.write_text(before + report())
    return int(failed != [])


if __name__ == "__main__":
    sys.exit(main())
