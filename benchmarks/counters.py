"""What each counter costs per label and round, beside the Binary Mechanism."""

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.measure import take_turns
from stream_dp.counters import MECHANISMS
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import CalibratedCounter, CounterState, Hits
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KEY_BYTES, NONCE_BYTES, KeyedNoise

LABELS, ROUNDS_AT_ONCE, BLOCKS = 1_000, 131, 16
TURNS = 5
_NONE = np.empty(0, np.int64)


def main(console: Console) -> None:
    """Print nanoseconds per label and round of the noise alone, and the ratio to `binary`."""
    streams = {name: Stream(calibrate(1.0, 1e-6, 2**20 - 1, 4, name)[0]) for name in MECHANISMS}
    seconds = take_turns(streams, TURNS)
    table = Table("mechanism", "ns per label and round", "times binary", title="Counters, 1,000 labels")
    for name, taken in seconds.items():
        cost = taken / (LABELS * ROUNDS_AT_ONCE * BLOCKS)
        table.add_row(name, f"{cost * 1e9:.1f}", f"{taken / seconds['binary']:.2f}")
    console.print(table)


class Stream:
    """A counter of labels that are all known; each call takes it further by some blocks of rounds."""

    def __init__(self, mechanism: CalibratedCounter) -> None:
        noise = KeyedNoise(bytes(KEY_BYTES), "bench", bytes(NONCE_BYTES))
        self._counter = mechanism.counter(noise)
        self._ids = noise.label_ids(b"label %d" % i for i in range(LABELS))
        self._counter.restore(CounterState(), LABELS)

    def __call__(self) -> None:
        for _ in range(BLOCKS):
            self._counter.advance(self._ids, [EMPTY_HISTORY] * ROUNDS_AT_ONCE, Hits(_NONE, _NONE), _NONE)
