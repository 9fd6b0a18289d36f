"""How many labels `stable` releases on public logs, without and with a range for their number, and why so few.

python -m benchmarks stable_sets
"""

import numpy as np
from rich.console import Console

from benchmarks.defaults import DELTA, EPSILONS, RUNS, logs
from benchmarks.markdown import table
from stream_dp.batch.largest_gap import Ranks
from stream_dp.batch.stable_top_k import StableTopK
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import JobRequest, request_from
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.accounting import zcdp_rho
from stream_dp.privacy.one_shot_noise import OneShotNoise

K, LEAST = 200, 20
RANGES: dict[str, dict[str, float]] = {
    "neither": {},
    "`penalty` 1": {"penalty": 1.0},
    f"`least` {LEAST}": {"least": LEAST},
}


def main(console: Console) -> None:
    console.print(f"Labels by `stable` with k = {K} at delta {DELTA:g}, least to most of {RUNS} runs.")
    lines = [
        [
            name,
            f"{epsilon:g}",
            *(_sizes(rows, epsilon, chosen) for chosen in RANGES.values()),
            f"{_largest_gap(rows)}",
            f"{_needed(epsilon):.0f}",
        ]
        for name, rows in logs()
        for epsilon in EPSILONS
    ]
    heads = ["log", "epsilon", *RANGES, f"largest gap from rank {LEAST} on", "needed"]
    console.print(table(heads, lines), highlight=False, soft_wrap=True, markup=False)


def _largest_gap(rows: Rows) -> int:
    """Between the counts of ranks that follow each other, from LEAST to K."""
    counts = np.sort(np.append(rows.counts(), 0))[::-1]
    return int(np.max(-np.diff(counts)[LEAST - 1 : K]))


def _needed(epsilon: float) -> float:
    """The gap that passes the test of `stable` half of the time, once it is chosen."""
    test = StableTopK(zcdp_rho(epsilon, DELTA / 2), DELTA / 2, Ranks(K, LEAST)).test
    return test.step + test.offset


def _sizes(rows: Rows, epsilon: float, chosen: dict[str, float]) -> str:
    asked = {"id": "sets", "job": "top-k", "mechanism": "stable", "epsilon": epsilon, "delta": DELTA, "k": K}
    request = request_from(asked | chosen)
    assert isinstance(request, JobRequest)
    run = calibrate(request).run
    sizes = [len(run(rows, OneShotNoise(bytes([number] * 32))).items) for number in range(RUNS)]
    return f"{np.min(sizes)} to {np.max(sizes)}"
