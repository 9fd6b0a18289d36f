"""What the defaults of one-shot jobs find beside mechanisms of other libraries, at the same guarantee.

The logs are those of `defaults`, and so is how much is found.  A peer needs a number of items per user in advance.  One
comparison gives it the number that does best over all logs, which nobody may look up in private data either; a harder
one the best for each log and epsilon.

- set-union: the truncated geometric mechanism (Desfontaines, Voss, Gipson and Mandayam 2022), which PipelineDP has.
- histogram: Laplace and Gaussian noise with a threshold, as OpenDP and PipelineDP have them.
- top-k: the head of such a histogram.
- top-k of public bins: the joint exponential mechanism (Gillenwater, Joseph, Munoz Medina and Ribero 2022).

python -m benchmarks peers
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.special import ndtri

from benchmarks.defaults import DELTA, EPSILONS, NOTHING, RUNS, TOPS, logs, made_logs
from stream_dp.jobs.calibrated import sampled
from stream_dp.jobs.defaults import default_mechanism
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import JobName, JobRequest, request_from
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.accounting import zcdp_rho
from stream_dp.privacy.one_shot_noise import OneShotNoise

_BOUNDS = (1, 3, 10, 30, 100)


@dataclass(frozen=True)
class _Cell:
    """One job on one log: what the default finds, and each peer by its settings."""

    default: float
    peers: dict[str, float]
    of_k: bool = False

    @property
    def best(self) -> float:
        return max(self.peers.values())

    @property
    def told(self) -> bool:
        return not self.of_k or max(self.default, self.best) >= NOTHING

    def against(self, peer: float) -> float:
        return self.default / max(peer, 1e-9)


def main(console: Console) -> None:
    columns = ("set-union", "histogram", *(f"k = {k}" for k in TOPS), *(f"bins, k = {k}" for k in TOPS))
    table = {
        (name, epsilon): dict(zip(columns, _cells(rows, epsilon), strict=False))
        for name, rows in itertools.chain(made_logs(), logs())
        for epsilon in EPSILONS
    }
    fixed = {column: _fixed([row[column] for row in table.values() if column in row]) for column in columns}
    console.print(
        f"What the default finds, a peer with one number of items per user for all logs, and the peer with the best of "
        f"each, at delta {DELTA:g}, mean of {RUNS} runs: labels, and for top-k the share of the true ones.\n"
        f"The peers' settings for all logs: {fixed}\n",
        highlight=False,
    )
    lines = ["| log | epsilon | " + " | ".join(columns) + " |", "|---" * (2 + len(columns)) + "|"]
    for (name, epsilon), row in table.items():
        told = []
        for column in columns:
            cell = row.get(column)
            if cell is None or not cell.told:
                told.append("-")
                continue
            form = "{:.2f} : {:.2f} : {:.2f}" if cell.of_k else "{:.0f} : {:.0f} : {:.0f}"
            told.append(form.format(cell.default, cell.peers[fixed[column]], cell.best))
        lines.append(f"| {name} | {epsilon:g} | " + " | ".join(told) + " |")
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
    cells = [(column, cell) for row in table.values() for column, cell in row.items() if cell.told]
    for what, against in (
        ("one peer for all logs", [cell.against(cell.peers[fixed[column]]) for column, cell in cells]),
        ("the best of each", [cell.against(cell.best) for _, cell in cells]),
    ):
        level, near = (sum(each >= bar for each in against) for bar in (1, 0.95))
        console.print(
            f"Beside {what}, the default finds as much or more in {level} of {len(against)} cells, and 0.95 times as "
            f"much in {near}; the least is {min(against):.2f} times.",
            highlight=False,
        )


def _fixed(cells: list[_Cell]) -> str:
    """The settings with which a peer finds most, on average over logs, of what the best of each finds."""
    shares = {
        name: float(np.mean([cell.peers[name] / max(cell.best, 1e-9) for cell in cells if cell.told]))
        for name in cells[0].peers
    }
    return max(shares, key=lambda name: shares[name])


def _cells(rows: Rows, epsilon: float) -> Iterator[_Cell]:
    order = np.argsort(-rows.counts(), kind="stable")
    yield _Cell(
        _ours(rows, epsilon, "set-union"),
        {str(most): _union(rows, epsilon, most) for most in _BOUNDS},
    )
    heads = {
        f"{'Gaussian' if gaussian else 'Laplace'} {most}": list(_heads(rows, epsilon, most, gaussian))
        for most, gaussian in itertools.product(_BOUNDS, (False, True))
    }
    shown = {name: float(np.mean([len(head) for head in found])) for name, found in heads.items()}
    yield _Cell(_ours(rows, epsilon, "histogram"), shown)
    for k in TOPS:
        true = order[:k]
        peers = {name: _share([head[:k] for head in found], true) for name, found in heads.items()}
        yield _Cell(_ours(rows, epsilon, "top-k", true), peers, True)
    bins = rows.names(np.arange(rows.item_count))
    for k in TOPS:
        if k < len(bins):
            true = order[:k]
            joint = {"joint": _share(list(_joint(rows.counts(), k, epsilon)), true)}
            yield _Cell(_ours(rows, epsilon, "top-k", true, bins=bins), joint, True)


def _share(found: list[NDArray[np.int64]], true: NDArray[np.int64]) -> float:
    return float(np.mean([len(np.intersect1d(items, true)) / len(true) for items in found]))


def _ours(
    rows: Rows, epsilon: float, job: JobName, true: NDArray[np.int64] | None = None, **more: Any
) -> float:
    given: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA} | more
    if true is not None:
        given["k"] = len(true)
    request = request_from({"id": "peers", "job": job, "mechanism": default_mechanism(job, given)} | given)
    assert isinstance(request, JobRequest)
    run = calibrate(request).run
    found = [run(rows, OneShotNoise(bytes([number] * 32))).items for number in range(RUNS)]
    return float(np.mean([len(items) for items in found])) if true is None else _share(found, true)


def _union(rows: Rows, epsilon: float, most: int) -> float:
    """How many labels the truncated geometric mechanism releases, on average, with samples of so many items."""
    counts = sampled(most)(rows, OneShotNoise(bytes(32)))
    each, d = epsilon / most, DELTA / most
    chance = [0.0]
    while chance[-1] < 1 and len(chance) <= counts.max(initial=0):
        up, down = np.exp(each) * chance[-1] + d, 1 - np.exp(-each) * (1 - chance[-1] - d)
        chance.append(min(up, down, 1.0))
    return float(np.array(chance)[np.minimum(counts, len(chance) - 1)].sum())


def _heads(rows: Rows, epsilon: float, most: int, gaussian: bool) -> Iterator[NDArray[np.int64]]:
    """Items of noisy counts above a threshold, by falling count."""
    if gaussian:
        sigma = math.sqrt(most / (2 * zcdp_rho(epsilon, DELTA / 2)))
        threshold = 1 + sigma * float(ndtri(1 - DELTA / 2 / most))
    else:
        scale = most / epsilon
        threshold = 1 + scale * math.log(most / (2 * DELTA))
    for number in range(RUNS):
        draw = np.random.default_rng(number)
        counts = sampled(most)(rows, OneShotNoise(bytes([number] * 32)))
        held = np.flatnonzero(counts)
        noise = draw.normal(0, sigma, len(held)) if gaussian else draw.laplace(0, scale, len(held))
        noisy = counts[held] + noise
        shown = np.flatnonzero(noisy >= threshold)
        yield held[shown[np.argsort(-noisy[shown])]]


def _joint(counts: NDArray[np.int64], k: int, epsilon: float) -> Iterator[NDArray[np.int64]]:
    """Sequences of k items, each with weight e^(-epsilon loss / 2).

    The loss is the most by which an item's count is below that of the item which truly has its rank.
    """
    order = np.argsort(-counts, kind="stable")
    falling = counts[order]
    losses = np.arange(int(falling[0]) + 1)
    eligible = np.searchsorted(
        -falling, losses[:, None] - falling[:k], side="right"
    )  # of each rank, at each loss
    sequences = np.log(eligible - np.arange(k)).sum(1)  # the logarithm of how many have at most this loss
    fewer = np.concatenate([[-np.inf], sequences[:-1]])
    exactly = sequences + np.log(-np.expm1(np.minimum(fewer - sequences, -1e-12)))
    weights = np.exp((exactly - epsilon * losses / 2) - (exactly - epsilon * losses / 2).max())
    for number in range(RUNS):
        draw = np.random.default_rng(number)
        loss = int(draw.choice(losses, p=weights / weights.sum()))
        while True:
            taken = np.zeros(len(order), np.bool_)
            found = np.empty(k, np.int64)
            for rank, most in enumerate(eligible[loss]):
                free = np.flatnonzero(~taken[:most])
                found[rank] = draw.choice(free)
                taken[found[rank]] = True
            if (falling[:k] - falling[found]).max() == loss:
                break
        yield order[found]
