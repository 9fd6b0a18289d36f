"""A million labels on one machine: what pruning makes a round cost, what it takes of memory, and what it changes."""

import os
import subprocess
import sys
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from stream_dp.calibration import calibrate
from stream_dp.histogram import RunningHistogram
from stream_dp.noise_table import Pruning
from stream_dp.plan import far_along
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise
from stream_dp.records import ReleaseEncoder

BLOCK_ROUNDS = 256
IN_REACH = 5_000
_ROUNDS = 4 * BLOCK_ROUNDS


def main(console: Console) -> None:
    """Print rounds a second and memory for 100,000 and 1,000,000 labels, and the table of what pruning changes."""
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
    from benchmarks.accuracy import pruning  # here, so that the processes measured above do not hold it

    console.print("What pruning changes:")
    print(pruning())


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


if __name__ == "__main__":
    print(*measure(int(sys.argv[1])))
