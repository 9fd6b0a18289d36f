"""What labels cost that are not shown: rounds beside few and beside many of them, and a test that looks at all.

Both histograms count the same rounds in turns, so a slow moment of the machine hits both.  All times are those of the
processor.
"""

from functools import partial
from time import process_time

import numpy as np
from rich.console import Console

from benchmarks.measure import take_turns
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_schedule import rounds_of_tests
from stream_dp.engine.discovery_histogram import DiscoveryHistogram
from stream_dp.engine.histogram import KNOWN, HistogramState
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise

SHOWN = 5_000
FEW, MANY = 10_000, 1_000_000
MOST = 10_000_000
_HORIZON = 2**20 - 1
_ROUNDS, _ITEMS, _TURNS = 2_000, 4, 9
_PAGE = "https://shop.example/article/{:09d}"


def main(console: Console, most: int = MOST) -> None:
    """Print both ratios."""
    histograms = {f"{idle:,} idle labels": _filled(idle) for idle in (FEW, MANY)}
    rng = np.random.default_rng(0)
    rounds = [[_PAGE.format(i) for i in {*row}] for row in rng.integers(0, SHOWN, (_ROUNDS, _ITEMS)).tolist()]
    for histogram in histograms.values():
        _pass_the_test(histogram)
    contestants = {name: partial(_count, each, rounds) for name, each in histograms.items()}
    seconds = take_turns(contestants, _TURNS, process_time)
    few, many = seconds.values()
    for name, taken in seconds.items():
        console.print(f"{SHOWN:,} shown beside {name}: {_ROUNDS / taken:,.0f} rounds a second")
    console.print(f"many : few = {few / many:.3f}")
    largest = _filled(most)
    first = _pass_the_test(largest)
    tests = largest.mechanism.tests
    following = [_pass_the_test(largest) for _ in tests[1:4]]
    console.print(
        f"a test over {most:,} labels holds rounds up for {first:.2f} seconds of the processor at first, and then for "
        + ", ".join(f"{each:.2f}" for each in following)
    )


def _count(histogram: DiscoveryHistogram, rounds: list[list[str]]) -> None:
    """Count these rounds, of which every hundredth is released."""
    for _ in histogram.blocks(rounds, wanted=np.arange(len(rounds)) % 100 == 99):
        pass


def _filled(idle: int) -> DiscoveryHistogram:
    """Before its first round: labels that are known and shown, and idle ones, of one event each."""
    mechanism, _ = calibrate(1.0, 1e-6, _HORIZON, _ITEMS, "blt", tests=rounds_of_tests(_HORIZON))
    state = HistogramState.before_any_round(list(map(_PAGE.format, range(SHOWN + idle))))
    assert state.shown_since is not None
    state.shown_since[:SHOWN] = KNOWN
    state.counts[SHOWN:] = 1
    assert isinstance(mechanism, DiscoveryMechanism)
    return DiscoveryHistogram(mechanism, KeyedNoise(bytes(KEY_BYTES), "idle", bytes(NONCE_BYTES)), state)


def _pass_the_test(histogram: DiscoveryHistogram) -> float:
    """Count empty rounds up to the next test, and that; returns the seconds that it takes beyond an ordinary round."""
    tests = np.array(histogram.mechanism.tests)
    left = int(tests[np.searchsorted(tests, histogram.round, "right")]) - histogram.round
    rounds: list[list[str]] = [[]] * (left - 1)
    for _ in histogram.blocks(rounds, wanted=np.zeros(left - 1, bool)):
        pass
    began = process_time()
    [*_] = histogram.blocks([[]], wanted=np.zeros(1, bool))
    return process_time() - began


if __name__ == "__main__":
    main(Console())
