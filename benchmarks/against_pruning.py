"""What pruning gave beside labels that are found at tests: labels shown, error, memory and speed on four public logs.

python -m benchmarks.against_pruning

One run of each at epsilon 1 and delta 1e-6, one release after every event, always with the same noise key.  Memory is
what a histogram takes that is restored from the state at the log's end.  The first rounds, which compile, do not count.
"""

import copy
import tracemalloc
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import numpy as np
import orjson

from benchmarks.labels_seen import flights_log, retail_log, verses_log
from benchmarks.markdown import table
from benchmarks.public_logs import plane_events
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.discovery_schedule import rounds_of_tests
from stream_dp.engine.counting import Histogram, histogram_of
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.noise_table import Pruning
from stream_dp.planning.preview import PublicLog
from stream_dp.privacy.keyed_noise import KeyedNoise

WARM = 64


class Way(NamedTuple):
    """A way to find labels."""

    name: str
    mechanism: str
    at_tests: bool = False
    block_rounds: int = 0


WAYS = (
    Way("binary, pruned", "binary", block_rounds=256),
    Way("blt, pruned", "blt", block_rounds=256),
    Way("blt, tests", "blt", at_tests=True),
)


def logs() -> list[tuple[str, PublicLog, int, int]]:
    """Name, events, horizon and items of an event."""
    planes = PublicLog.of(orjson.dumps({"items": items}) for items in plane_events())
    return [
        ("invoices", retail_log(), 32_767, 16),
        ("verses", verses_log(), 32_767, 16),
        ("flights", flights_log(), 524_287, 3),
        ("planes", planes, 131_071, 2),
    ]


def main() -> None:
    """Print the table."""
    rows = []
    for name, log, horizon, items in logs():
        for way in WAYS:
            rows.append([name, way.name, *measured(log, way, horizon, items)])
    print(
        table(["log", "labels are found by", "shown", "rms error", "bytes a label", "rounds a second"], rows)
    )


def measured(log: PublicLog, way: Way, horizon: int, items: int) -> list[str]:
    """Labels shown after the last event, rms error of their counts, bytes of a label that was seen, rounds a second."""
    tests = rounds_of_tests(horizon) if way.at_tests else ()
    mechanism, _ = calibrate(1.0, 1e-6, horizon, items, way.mechanism, tests=tests)
    noise = KeyedNoise(bytes(32), "accuracy", bytes(16))
    pruning = Pruning(way.block_rounds) if way.block_rounds else None
    rounds = list(log.admitted(items))
    histogram = histogram_of(mechanism, noise, pruning=pruning)
    for _ in histogram.blocks(rounds[:WARM]):
        pass
    started = process_time()
    for block in histogram.blocks(rounds[WARM:]):
        last = block
    seconds = process_time() - started
    places = last.places(len(last.sizes) - 1)
    truth = dict.fromkeys(histogram.state().labels, 0)
    for admitted in rounds:
        for label in admitted:
            truth[label] += 1
    shown = [truth[label] for label in last.labels[places].tolist()]
    errors = last.counts[-1, places] - np.array(shown)
    rms = f"{np.sqrt(np.mean(np.square(errors, dtype=float))):.1f}" if shown else ""
    size = memory(histogram, lambda state: histogram_of(mechanism, noise, state, pruning)) / len(truth)
    return [f"{len(shown):,}", rms, f"{size:,.0f}", f"{(len(rounds) - WARM) / seconds:,.0f}"]


def memory(histogram: Histogram, restored: Callable[[HistogramState], Histogram]) -> int:
    """Bytes of a histogram that goes on from this one's state."""
    state = copy.deepcopy(histogram.state())
    tracemalloc.start()
    try:
        again = restored(state)
        assert again.round == histogram.round
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    main()
