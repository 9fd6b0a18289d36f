"""A million labels on one machine: what pruning makes a round cost, what it takes of memory, and what it changes."""

import os
import subprocess
import sys
from statistics import median
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from stream_dp.counters.calibration import calibrate
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.engine.noise_table import PrunedTable, Pruning
from stream_dp.planning.release_sizes import far_along
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise
from stream_dp.privacy.release_tags import ReleaseTags
from stream_dp.releases.encoder import ReleaseEncoder

BLOCK_ROUNDS = 256
IN_REACH = 5_000
TURNS = 7
_BLOCKS = 4


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
    engines = [_Engine(labels) for labels in (100_000, 1_000_000)]
    for turn in range(TURNS + 1):
        for engine in engines:
            engine.run(warm=turn > 0)
    costs = []
    for engine in engines:
        seconds = median(engine.seconds) / (_BLOCKS * BLOCK_ROUNDS)
        costs.append(seconds)
        reached, megabytes = engine.end()
        table.add_row(
            f"{engine.labels:,}",
            f"{reached:,}",
            f"{1 / seconds:,.0f}",
            f"{seconds * 1e6:.0f}",
            f"{megabytes:.0f}",
        )
    console.print(table)
    console.print(f"Ten times the labels out of reach: {costs[1] / costs[0]:.2f} times the cost.")
    from benchmarks.labels_seen import pruning  # here, so that the processes measured above do not hold it

    console.print("What pruning changes:")
    print(pruning())


class _Engine:
    """An engine in a process of its own, so that the memory is its own alone; engines take turns."""

    def __init__(self, labels: int) -> None:
        self.labels = labels
        self.seconds: list[float] = []
        command = [sys.executable, "-m", "benchmarks.pruning", str(labels)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, warm: bool) -> None:
        """Let it do the next blocks; the processor seconds of a turn count where it is `warm`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        seconds = float(self._process.stdout.readline())
        if warm:
            self.seconds.append(seconds)

    def end(self) -> tuple[int, float]:
        """How many labels were in reach, and its megabytes resident."""
        told, _ = self._process.communicate()
        reached, megabytes = told.split()
        return int(reached), float(megabytes)


def measure(labels: int) -> None:
    """Do some blocks for every line read and print their processor seconds; then labels in reach and megabytes."""
    mechanism, guarantee = calibrate(1.0, 1e-6, 2**20 - 1, 4)
    noise = KeyedNoise(bytes(KEY_BYTES), "bench", bytes(NONCE_BYTES))
    names = [f"label {i}" for i in range(labels)]
    state = far_along(mechanism, noise, names, IN_REACH)
    histogram = RunningHistogram(mechanism, noise, state, Pruning(BLOCK_ROUNDS))
    tags = ReleaseTags(bytes(KEY_BYTES), "bench", bytes(NONCE_BYTES))
    encoder = ReleaseEncoder("bench", 1, bytes(NONCE_BYTES), mechanism, guarantee, tags)
    del state
    rng, reached = np.random.default_rng(0), 0
    for _ in sys.stdin:
        seconds = 0.0
        for _ in range(_BLOCKS):
            popular, any_label = (
                rng.integers(0, IN_REACH, BLOCK_ROUNDS),
                rng.integers(0, labels, BLOCK_ROUNDS),
            )
            rounds = [[names[i], names[j]] for i, j in zip(popular.tolist(), any_label.tolist(), strict=True)]
            started = process_time()
            for block in histogram.blocks(rounds):
                encoder.encode(block, range(len(block.sizes)))
                if len(block.sizes) > 1 and isinstance(histogram._table, PrunedTable):
                    reached = max(reached, len(histogram._table._rows))
            seconds += process_time() - started
        print(seconds, flush=True)
    with open("/proc/self/statm") as statm:
        print(reached, int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6)


if __name__ == "__main__":
    measure(int(sys.argv[1]))
