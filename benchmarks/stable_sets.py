"""How many labels `stable` releases on public logs, without and with a range for their number.

python -m benchmarks stable_sets
"""

import numpy as np
from rich.console import Console

from benchmarks.defaults import DELTA, EPSILONS, RUNS, logs
from benchmarks.markdown import table
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import JobRequest, request_from
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.one_shot_noise import OneShotNoise

K = 200
RANGES: dict[str, dict[str, float]] = {
    "neither": {},
    "`penalty` 1": {"penalty": 1.0},
    "`least` 20": {"least": 20},
}


def main(console: Console) -> None:
    console.print(f"Labels by `stable` with k = {K} at delta {DELTA:g}, least to most of {RUNS} runs.")
    lines = [
        [name, f"{epsilon:g}", *(_sizes(rows, epsilon, chosen) for chosen in RANGES.values())]
        for name, rows in logs()
        for epsilon in EPSILONS
    ]
    console.print(table(["log", "epsilon", *RANGES], lines), highlight=False, soft_wrap=True, markup=False)


def _sizes(rows: Rows, epsilon: float, chosen: dict[str, float]) -> str:
    asked = {"id": "sets", "job": "top-k", "mechanism": "stable", "epsilon": epsilon, "delta": DELTA, "k": K}
    request = request_from(asked | chosen)
    assert isinstance(request, JobRequest)
    run = calibrate(request).run
    sizes = [len(run(rows, OneShotNoise(bytes([number] * 32))).items) for number in range(RUNS)]
    return f"{np.min(sizes)} to {np.max(sizes)}"
