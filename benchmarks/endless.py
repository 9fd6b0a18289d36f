"""A stream of windows that goes on for long: what it remembers, and what a round costs, from beginning to end.

Labels come and go: 1,000 are alive at any time, and a new one takes the place of the oldest every round, so that as
many labels are seen as there are rounds.  After every tenth of the rounds the state is restored from a checkpoint's.
"""

import resource
from copy import deepcopy
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.measure import take_turns
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.window import WindowMechanism
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.engine.window_histogram import WindowHistogram
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise

WINDOW, ALIVE, EVENTS = 60, 1_000, 20
ROUNDS, AT_ONCE = 100_000, 500
_LABELS, _TURN = 1_000, 240


def main(console: Console) -> None:
    _cost(console)
    _long_run(console)


def _noise() -> KeyedNoise:
    return KeyedNoise(bytes(KEY_BYTES), "bench", bytes(NONCE_BYTES))


def _cost(console: Console) -> None:
    """Of labels that are shown in every round, beside a running blt counter of the same labels."""
    mechanism, _ = calibrate(1.0, 1e-6, WINDOW, 4, "window")
    blt, _ = calibrate(1.0, 1e-6, 65_535, 4, "blt")
    assert isinstance(mechanism, WindowMechanism)
    names = [f"label {number}" for number in range(_LABELS)]
    windows, running = WindowHistogram(mechanism, _noise()), RunningHistogram(blt, _noise())
    everybody = [names] * _TURN
    for histogram in (windows, running):
        for _ in histogram.blocks([names * 10] * 2 * WINDOW):
            pass

    def turn(histogram: WindowHistogram | RunningHistogram) -> None:
        for _ in histogram.blocks(everybody):
            pass

    seconds = take_turns({"window": lambda: turn(windows), "blt": lambda: turn(running)}, 7)
    per = {name: taken / (_LABELS * _TURN) * 1e9 for name, taken in seconds.items()}
    console.print(
        f"{_LABELS:,} labels, all shown: {per['window']:.0f} ns per label and round, "
        f"{per['window'] / per['blt']:.2f} times those of blt ({per['blt']:.0f} ns)"
    )


def _long_run(console: Console) -> None:
    mechanism, _ = calibrate(4.0, 1e-3, WINDOW, 1, "window")
    assert isinstance(mechanism, WindowMechanism)
    histogram, chance = WindowHistogram(mechanism, _noise()), np.random.default_rng(1)
    table = Table(
        "rounds", "labels seen", "labels remembered", "state, kB", "shown", "us a round", "peak memory, MB"
    )
    tenth, done = max(AT_ONCE, ROUNDS // 10), 0
    while done < ROUNDS:
        began, shown = process_time(), 0
        for first in range(done, done + tenth, AT_ONCE):
            ages = (ALIVE * chance.power(0.3, (AT_ONCE, EVENTS))).astype(int)
            events = [
                [f"label {first + step + age}" for age in row] for step, row in enumerate(ages.tolist())
            ]
            shown = sum(int(block.sizes[-1]) for block in histogram.blocks(events)) and _last_size(histogram)
        done += tenth
        spent = (process_time() - began) / tenth
        state: HistogramState = deepcopy(histogram.state())
        size = sum(column.cells.nbytes for column in (*state.counter.columns, *state.recent))
        size += sum(len(label) for label in state.labels)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cells = (
            f"{done:,}",
            f"{done + ALIVE:,}",
            f"{len(state.labels):,}",
            f"{size / 1000:,.0f}",
            f"{shown:,}",
        )
        table.add_row(*cells, f"{spent * 1e6:,.0f}", f"{memory:,.0f}")
        histogram = WindowHistogram(mechanism, _noise(), state)
    console.print(table)


def _last_size(histogram: WindowHistogram) -> int:
    return int(histogram.last_release().sizes[-1])


if __name__ == "__main__":
    main(Console(width=120))
