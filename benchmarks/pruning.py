"""A million labels on one machine: what pruning makes a round cost, what it takes of memory, and what it changes."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from stream_dp.calibration import calibrate
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.histogram import RunningHistogram
from stream_dp.noise_table import Pruning
from stream_dp.plan import far_along
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise
from stream_dp.records import ReleaseEncoder
from tests.real_events import real_events

BLOCK_ROUNDS = 256
IN_REACH = 5_000
_ROUNDS = 4 * BLOCK_ROUNDS


def main(console: Console) -> None:
    """Print rounds a second and memory for 100,000 and 1,000,000 labels, and how many releases pruning changes."""
    table = Table(
        "labels seen",
        "in reach",
        "rounds per CPU second",
        "us/round",
        "MB",
        title=f"Pruning by blocks of {BLOCK_ROUNDS} rounds",
    )
    costs = {}
    for labels in (100_000, 1_000_000):
        # A process of its own, so that memory is that of this engine alone.
        command = [sys.executable, "-m", "benchmarks.pruning", str(labels)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        rate, reached, megabytes = float(told[0]), int(told[1]), float(told[2])
        costs[labels] = 1e6 / rate
        table.add_row(
            f"{labels:,}", f"{reached:,}", f"{rate:,.0f}", f"{costs[labels]:.0f}", f"{megabytes:.0f}"
        )
    console.print(table)
    console.print(
        f"Ten times the labels out of reach: {costs[1_000_000] / costs[100_000]:.2f} times the cost."
    )
    _differences(console)


def measure(labels: int) -> tuple[float, int, float]:
    """Rounds a second of processor time, releases encoded, how many labels were in reach, and megabytes resident."""
    mechanism, guarantee = calibrate(1.0, 1e-6, 2**20 - 1, 4)
    noise = KeyedNoise(bytes(KEY_BYTES), "bench", bytes(NONCE_BYTES))
    names = [f"label {i}" for i in range(labels)]
    state = far_along(mechanism, noise, names, IN_REACH)
    histogram = RunningHistogram(mechanism, noise, state, Pruning(BLOCK_ROUNDS))
    encoder = ReleaseEncoder("bench", 1, bytes(NONCE_BYTES), mechanism, guarantee)
    rng = np.random.default_rng(0)
    popular, any_label = rng.integers(0, IN_REACH, 2 * _ROUNDS), rng.integers(0, labels, 2 * _ROUNDS)
    rounds = [[names[i], names[j]] for i, j in zip(popular.tolist(), any_label.tolist(), strict=True)]
    del state
    reached, started = 0, 0.0
    for start in range(0, len(rounds), BLOCK_ROUNDS):
        if start == _ROUNDS:  # the first half is warming up
            started = process_time()
        for block in histogram.blocks(rounds[start : start + BLOCK_ROUNDS]):
            encoder.encode(block, range(len(block.sizes)))
            if len(block.sizes) > 1:
                reached = max(reached, len(histogram._table._rows))
    rate = _ROUNDS / (process_time() - started)
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return rate, reached, resident


def _differences(console: Console) -> None:
    """How many released counts are missing with pruning: on real events, and on streams made to suffer from it."""
    table = Table("stream", "block", "counts released", "missing with pruning", title="What pruning changes")
    for name, rounds, items, horizon in _streams():
        mechanism, _ = calibrate(4.0, 1e-6, horizon, items)
        for block_rounds in (64, 256, 1024):
            whole, pruned = (
                _released(mechanism, rounds, pruning) for pruning in (None, Pruning(block_rounds))
            )
            missing = sum(len(whole[number]) - len(pruned[number]) for number in whole)
            table.add_row(name, str(block_rounds), f"{sum(map(len, whole.values())):,}", f"{missing:,}")
    console.print(table)


def _streams() -> Iterator[tuple[str, list[list[str]], int, int]]:
    invoices = [sorted(set(items))[:16] for items in real_events(20_728)]
    yield "retail invoices, 16 items each", invoices, 16, 32_767
    steady = [[f"label {i % 40}"] for i in range(16_000)]
    yield "40 labels that all linger at the threshold", steady, 1, 16_383
    bursts = [[f"label {i // 400}"] for i in range(16_000)]
    yield "40 labels, each rising from nothing in 400 rounds", bursts, 1, 16_383


def _released(
    mechanism: BinaryMechanism, rounds: Sequence[Sequence[str]], pruning: Pruning | None
) -> dict[int, set[str]]:
    noise = KeyedNoise(bytes(KEY_BYTES), "bench", bytes(NONCE_BYTES))
    histogram = RunningHistogram(mechanism, noise, pruning=pruning)
    found: dict[int, set[str]] = {}
    pending = iter(rounds)
    while batch := list(islice(pending, 1_000)):
        for block in histogram.blocks(batch):
            found |= {snapshot.round: set(snapshot.labels.tolist()) for snapshot in block.snapshots()}
    return found


if __name__ == "__main__":
    print(*measure(int(sys.argv[1])))
