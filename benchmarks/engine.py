"""What a round costs per label, from events to encoded releases, with all labels released and with none.

All labels are released by both rules, in turn: each round's own labels, and those kept since they were shown.
"""

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.measure import take_turns
from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.calibration import calibrate
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise
from stream_dp.privacy.release_tags import ReleaseTags
from stream_dp.releases.encoder import ReleaseEncoder

CELLS = 2_000_000
TURNS = 5
_ROUNDS_AT_ONCE = 500  # as the worker's batches


def main(console: Console) -> None:
    """Print nanoseconds per label and round, and rounds a second."""
    mechanism, guarantee = calibrate(1.0, 1e-6, 2**24 - 1, 4, shown="each-round")
    assert isinstance(mechanism, BinaryMechanism)
    everything = replace(mechanism, thresholds=tuple(-(10**6) for _ in mechanism.thresholds))
    kept = replace(everything, shown="kept")
    tags = ReleaseTags(bytes(32), "bench", bytes(16))
    table = Table(
        "labels",
        "all released: ns",
        "rounds/s",
        "all kept: ns",
        "rounds/s",
        "none released: ns",
        "rounds/s",
        "kept / each-round",
        title="Engine, per label and round",
    )
    for labels in (100, 1_000, 10_000, 100_000):
        rounds = max(10, CELLS // labels)
        seconds = take_turns(
            {
                name: _Stream(
                    contestant,
                    labels,
                    rounds,
                    ReleaseEncoder("bench", 1, bytes(16), contestant, guarantee, tags),
                )
                for name, contestant in (("all", everything), ("kept", kept), ("none", mechanism))
            },
            TURNS,
        )
        row = [
            f"{seconds[name] / rounds / labels * 1e9:.1f}|{rounds / seconds[name]:,.0f}" for name in seconds
        ]
        ratio = f"{seconds['kept'] / seconds['all']:.2f}"
        table.add_row(f"{labels:,}", *"|".join(row).split("|"), ratio)
    console.print(table)


class _Stream:
    """A histogram over `labels` labels; each call feeds it `rounds` events of two items and encodes its releases."""

    def __init__(self, mechanism: BinaryMechanism, labels: int, rounds: int, encoder: ReleaseEncoder) -> None:
        names = [f"label {i}" for i in range(labels)]
        known = HistogramState.before_any_round(names)
        noise = KeyedNoise(bytes(KEY_BYTES), "bench", bytes(NONCE_BYTES))
        self._histogram = RunningHistogram(mechanism, noise, known)
        self._encoder = encoder
        self._events = [[names[7 * i % labels], names[(13 * i + 1) % labels]] for i in range(rounds)]

    def __call__(self) -> None:
        for start in range(0, len(self._events), _ROUNDS_AT_ONCE):
            for block in self._histogram.blocks(self._events[start : start + _ROUNDS_AT_ONCE]):
                self._encoder.encode(block, range(len(block.sizes)))
