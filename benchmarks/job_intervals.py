"""How often the 95% intervals of a job's counts hold what they say, beside count +- 1.96 sd.

Table of docs/intervals.md.

Public logs, delta 1e-6, and keys that are numbers, so the table comes out the same every time.  What an interval speaks
of is the number of users who count with the label; a sample of what they hold is part of that, and is drawn again here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.defaults import logs
from benchmarks.markdown import table
from stream_dp.batch.baskets import each_once
from stream_dp.batch.two_stage import TwoStage, by_weight, weights_of
from stream_dp.jobs.mechanisms import MECHANISMS
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.one_shot_noise import OneShotNoise

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 3.0)
_RUNS, _ENOUGH = 30, 2_000  # labels
_NORMAL_95 = 1.96

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Asked:
    """A mechanism with its parameters, and what it counts under a key."""

    job: str
    mechanism: str
    parameters: dict[str, Any]
    counted: Callable[[Rows, float, bytes, int], Integers]

    def __str__(self) -> str:
        most, k = self.parameters["items_per_user"], self.parameters.get("k")
        return f"{self.job} {self.mechanism}, {most} items" + (f", k = {k}" if k else "")


def of_sample(rows: Rows, epsilon: float, key: bytes, most: int) -> Integers:
    """Users who count with each label, of samples of what they hold."""
    return rows.weights(most, each_once, OneShotNoise(key))


def of_two_stages(rows: Rows, epsilon: float, key: bytes, most: int) -> Integers:
    """Users who count with each label, of what the first stage shows to be frequent."""
    users, parameters = rows.baskets(), TwoStage(epsilon, DELTA, most)
    first = OneShotNoise(key).gaussian(parameters.first_sigma, users.item_count)
    return users.weights(most, each_once, by_weight(weights_of(users) + first), 1)


ASKED = (
    Asked("histogram", "laplace", {"items_per_user": 3}, of_sample),
    Asked("histogram", "gaussian", {"items_per_user": 10}, of_sample),
    Asked("histogram", "gaussian", {"items_per_user": 30}, of_sample),
    Asked("histogram", "two-stage", {"items_per_user": 30}, of_two_stages),
    Asked("top-k", "gaussian", {"items_per_user": 30, "k": 10, "kbar": 5_000}, of_sample),
    Asked("top-k", "gaussian", {"items_per_user": 30, "k": 100, "kbar": 5_000}, of_sample),
)


def main(console: Console) -> None:
    lines = []
    for name, rows in logs():
        for asked in ASKED:
            cells = [_cell(*held(rows, asked, epsilon)) for epsilon in EPSILONS]
            lines.append([name, str(asked), *cells])
            console.print(" ".join(lines[-1]), highlight=False)
    head = ["log", "mechanism", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)]
    console.print(table(head, lines), markup=False, highlight=False, soft_wrap=True)


def held(rows: Rows, asked: Asked, epsilon: float) -> tuple[int, float, float]:
    """How many counts there were, and which share of the true ones lies in count +- 1.96 sd and in the interval."""
    calibrated = MECHANISMS[asked.job][asked.mechanism].calibrate(
        epsilon=epsilon, delta=DELTA, **asked.parameters
    )
    naive, inside = list[bool](), list[bool]()
    for key in _keys():
        found = calibrated.run(rows, OneShotNoise(key))
        assert found.counts is not None
        assert found.sd is not None
        assert found.ends is not None
        true = asked.counted(rows, epsilon, key, asked.parameters["items_per_user"])[found.items]
        naive += (np.abs(found.counts - true) <= _NORMAL_95 * found.sd).tolist()
        inside += ((found.ends[0] <= true) & (true <= found.ends[1])).tolist()
        if len(inside) >= _ENOUGH:
            break
    return len(inside), float(np.mean(naive or [False])), float(np.mean(inside or [False]))


def _keys() -> Iterator[bytes]:
    return (number.to_bytes(32, "big") for number in range(_RUNS))


def _cell(labels: int, naive: float, inside: float) -> str:
    return f"{100 * naive:.0f} / {100 * inside:.0f} of {labels:,}" if labels else "-"
