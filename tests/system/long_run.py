"""Run windows for long, on real servers, with labels that come and go: nothing may grow with the number of rounds.

    python -m tests.system.long_run --rounds 10000000

A thousand labels are alive at any time, and every tenth round a new one takes the place of the oldest.  The worker is
killed twice and goes on.  A row of the table is a tenth of the run; at the end, the last two blocks are verified.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from stream_dp.dev.servers import embedded
from stream_dp.events.record import Record
from stream_dp.kafka.clients import kept_clients
from stream_dp.verification.rebuild import verify_epoch
from stream_dp.verification.verify import Certificate
from tests.system.streams import AnyWorker, Stream, ended, small_stream

WINDOW, ITEMS, ALIVE, ROUNDS_OF_A_LABEL = 60, 4, 1_000, 10
SETTINGS: dict[str, Any] = {
    "mechanism": "window",
    "window": WINDOW,
    "items_per_event": ITEMS,
    "epsilon": 16.0,
    "delta": 1e-3,
}
AS_USUAL: dict[str, Any] = {"batch_rounds": 500, "checkpoint_every": "1s"}
"""What a stream has that does not say otherwise: those of tests are smaller."""

TENTHS = 10
KILLED_IN = (4, 7)
_FED_AT_ONCE = 20_000
_BEGAN, _MILLISECONDS_APART = 1_500_000_000_000, 11_000
_GROWTH, _SLOWER = 1.15, 1.5
"""How much more memory, and time a round, the last three tenths may take than the second to the fourth."""


@dataclass(frozen=True)
class Tenth:
    """What was seen at the end of a tenth of the run: sizes in bytes, processor time of the worker in seconds."""

    rounds: int
    labels_seen: int
    labels_remembered: int
    redis_keys: int
    redis_memory: int
    worker_memory: int
    seconds_per_round: float
    killed: bool


@dataclass(frozen=True)
class LongRun:
    """All tenths, and what the comparison of the last two blocks gave."""

    tenths: list[Tenth]
    certificate: Certificate

    def growth(self, of: Callable[[Tenth], float]) -> float:
        """What the last three tenths have, as a multiple of what the second to the fourth had."""
        return sum(map(of, self.tenths[-3:])) / sum(map(of, self.tenths[1:4]))

    @property
    def failures(self) -> list[str]:
        """What is not as it should be after a run that was long enough to tell."""
        grown = {
            "labels remembered": self.growth(lambda each: each.labels_remembered) > _GROWTH,
            "bytes in Redis": self.growth(lambda each: each.redis_keys) > _GROWTH,
            "memory of Redis": self.growth(lambda each: each.redis_memory) > _GROWTH,
            "memory of the worker": self.growth(lambda each: each.worker_memory) > _GROWTH,
            "time of a round": self.growth(lambda each: each.seconds_per_round) > _SLOWER,
        }
        return [f"more and more: {name}" for name, is_more in grown.items() if is_more] + (
            [] if self.certificate.sound else [f"verify: {self.certificate.verdict}"]
        )


def long_run(stream: Stream, rounds: int, tell: Callable[[Tenth], None] = lambda tenth: None) -> LongRun:
    """Run at least so many rounds of `stream`, an event each; every tenth ends with a block."""
    size = -(-rounds // (TENTHS * WINDOW)) * WINDOW
    chance, tenths = np.random.default_rng(1), list[Tenth]()
    worker: AnyWorker = stream.start()
    for number in range(1, TENTHS + 1):
        before, done = _seconds(worker), number * size
        for records in _drifting(chance, done - size, done):
            stream.write(stream.settings.events, records)
        spent = -before
        if number in KILLED_IN:
            stream.wait_until_round(done - size // 2, worker)
            spent += _seconds(worker)
            worker.kill()
            ended(worker)
            worker = stream.start()
        stream.wait_until_round(done, worker)
        _wait_until_saved(stream, worker, done)
        tenths.append(_seen(stream, worker, done, (spent + _seconds(worker)) / size, number in KILLED_IN))
        tell(tenths[-1])
    worker.terminate()
    assert ended(worker) == 0, stream.logged()
    with stream.redis() as redis, kept_clients():
        return LongRun(tenths, verify_epoch(stream.settings, redis).certificate)


def _drifting(chance: np.random.Generator, first: int, last: int) -> Iterator[list[Record]]:
    """The events of the rounds from `first` on: the younger a label, the more often it is there.

    A block takes eleven minutes, so the journal has the beginning of every block.
    """
    for start in range(first, last, _FED_AT_ONCE):
        numbers = np.arange(start, min(last, start + _FED_AT_ONCE))[:, np.newaxis] // ROUNDS_OF_A_LABEL
        labels = numbers + ALIVE - (ALIVE * chance.power(0.3, (len(numbers), ITEMS))).astype(int)
        values = (
            b'{"items":[%b]}' % b",".join(b'"label %d"' % label for label in row) for row in labels.tolist()
        )
        yield [
            Record(0, _BEGAN + number * _MILLISECONDS_APART, None, value)
            for number, value in enumerate(values, start)
        ]


def _wait_until_saved(stream: Stream, worker: AnyWorker, done: int) -> None:
    stream.wait_until(lambda: stream.checkpoint().state.round >= done, worker)


def _seen(stream: Stream, worker: AnyWorker, done: int, seconds: float, killed: bool) -> Tenth:
    with stream.redis() as redis:
        memory = redis.info("memory")
    assert isinstance(memory, dict)
    return Tenth(
        done,
        done // ROUNDS_OF_A_LABEL + ALIVE,
        len(stream.checkpoint().state.labels),
        sum(map(len, stream.redis_keys().values())),
        int(memory["used_memory"]),
        _memory(worker),
        seconds,
        killed,
    )


def _seconds(worker: AnyWorker) -> float:
    """Processor time that the process has taken."""
    fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(worker: AnyWorker) -> int:
    """What the process holds in memory, in bytes."""
    resident = int(Path(f"/proc/{worker.pid}/statm").read_text().split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """0 if nothing grew and the last two blocks are what the log gives."""
    arguments = argparse.ArgumentParser(prog="python -m tests.system.long_run", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=10_000_000, help="at least so many")
    asked, console = arguments.parse_args(), Console(width=120)

    def tell(tenth: Tenth) -> None:
        console.print(
            f"round {tenth.rounds:,}: {tenth.seconds_per_round * 1e6:,.0f} us a round", highlight=False
        )

    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder) / "servers") as servers:
        options = {**SETTINGS, **AS_USUAL}
        with small_stream(servers.kafka, servers.redis_url, "long-run", Path(folder), **options) as stream:
            run = long_run(stream, asked.rounds, tell)
    console.print(_table(run))
    certificate = run.certificate
    console.print(
        f"verify: {certificate.verdict}; rounds {certificate.first_round:,} to {certificate.rounds:,} compared, from "
        f"{certificate.log_records:,} records"
    )
    for failure in run.failures:
        console.print(failure)
    return 1 if run.failures else 0


def _table(run: LongRun) -> Table:
    table = Table(
        "rounds",
        "labels seen",
        "remembered",
        "keys in Redis, kB",
        "Redis, MB",
        "worker, MB",
        "us a round",
        "",
    )
    for each in run.tenths:
        table.add_row(
            f"{each.rounds:,}",
            f"{each.labels_seen:,}",
            f"{each.labels_remembered:,}",
            f"{each.redis_keys / 1e3:,.1f}",
            f"{each.redis_memory / 1e6:,.2f}",
            f"{each.worker_memory / 1e6:,.0f}",
            f"{each.seconds_per_round * 1e6:,.0f}",
            "killed" if each.killed else "",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
