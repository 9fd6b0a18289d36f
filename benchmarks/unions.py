"""What else was tried for set unions: two rounds, beside `policy-gaussian`, `greedy` and GW as it was published.

    python -m benchmarks unions

Two rounds, after MAD2R (Chen, Cohen-Addad, Epasto and Zadimoghaddam 2025): a cheap first round releases what is
frequent, so that users give all of their weight in the second to what is not released yet.  Here the second round is
`policy-gaussian`.  Guarantee: given what the first has released, each round is a Gaussian on weights that a user moves
by at most 1 in l2, so both are one Gaussian of mu^2 = 2 rho, as in `stream_dp/batch/sips.py`; deltas of thresholds add.
They are given as much of delta here as `policy-gaussian` has, which is more than this allows.

GW has the poster's threshold, whose guarantee is false (docs/audit.md), and tokens so small that weights are as good as
real numbers.  It is no mechanism of this project, and stands here as the bar.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from rich.console import Console

from benchmarks.defaults import DELTA, EPSILONS, RUNS, logs
from benchmarks.markdown import table
from stream_dp.batch.baskets import Baskets, sample, without
from stream_dp.batch.greedy_set_union import Greedy, greedy, greedy_transfer, preferred_first
from stream_dp.batch.policy_set_union import GaussianPolicy, gaussian_policy
from stream_dp.batch.set_union import (
    UNIT,
    released_by_gaussian,
    released_by_laplace,
    square_root_share,
)
from stream_dp.batch.set_union_thresholds import shared_budget_gaussian
from stream_dp.jobs.defaults import GAUSSIAN_ALPHA, GAUSSIAN_UNION_ITEMS
from stream_dp.loops import fill_greedily, move_towards
from stream_dp.privacy.accounting import gaussian_rho
from stream_dp.privacy.one_shot_noise import OneShotNoise

_ALPHAS = (3.0, 8.0, GAUSSIAN_ALPHA)
_SHARES = (0.05, 0.1, 0.2, 0.3)
_TOKENS = (1, 4, 16)
_ALPHA_OF_GW = 3.0


def main(console: Console) -> None:
    console.print(
        f"Labels of set unions at delta {DELTA:g}, mean of {RUNS} runs; best of what stands in brackets.",
        highlight=False,
    )
    rows = []
    for name, read in logs():
        held = read.baskets()
        for epsilon in EPSILONS:
            run = partial(_mean, held, epsilon)
            found = [
                run(_policy, GAUSSIAN_ALPHA),
                max(run(_policy, alpha) for alpha in _ALPHAS),
                max(run(_greedy, tokens) for tokens in _TOKENS),
                max(run(_one_order, tokens) for tokens in _TOKENS),
                max(run(two_rounds, share, alpha) for share in _SHARES for alpha in _ALPHAS),
                run(_as_published),
            ]
            rows.append([name, f"{epsilon:g}", *(f"{each:.0f}" for each in found)])
    header = [
        "log",
        "epsilon",
        "`policy-gaussian`",
        f"best alpha {_ALPHAS}",
        f"`greedy`, best tokens {_TOKENS}",
        "`greedy-transfer` without frequencies",
    ]
    header += ["two rounds, best share and alpha", "GW, whose guarantee is false"]
    console.print(table(header, rows), highlight=False, soft_wrap=True, markup=False)


def _mean(held: Baskets, epsilon: float, union: Callable[..., int], *parameters: float) -> float:
    runs = [union(held, epsilon, *parameters, OneShotNoise(bytes([number] * 32))) for number in range(RUNS)]
    return float(np.mean(runs))


def _policy(held: Baskets, epsilon: float, alpha: float, noise: OneShotNoise) -> int:
    parameters = GaussianPolicy(epsilon, DELTA, GAUSSIAN_UNION_ITEMS, alpha)
    return len(gaussian_policy(held, parameters, noise).items)


def _greedy(held: Baskets, epsilon: float, tokens: int, noise: OneShotNoise) -> int:
    return len(greedy(held, Greedy(epsilon, DELTA, tokens), noise).items)


def _one_order(held: Baskets, epsilon: float, tokens: int, noise: OneShotNoise) -> int:
    """Every user helps the labels in the order of their bytes, which is public."""
    nothing_known = np.zeros(held.item_count, np.int64)
    return len(greedy_transfer(held, nothing_known, Greedy(epsilon, DELTA, tokens), noise).items)


def two_rounds(held: Baskets, epsilon: float, share: float, alpha: float, noise: OneShotNoise) -> int:
    """How many labels both rounds release; `share`: the first round's part of rho and delta."""
    limit = GAUSSIAN_UNION_ITEMS
    delta = GaussianPolicy(epsilon, DELTA, limit).each_delta
    rho = gaussian_rho(epsilon, delta)
    first, second = (1 / math.sqrt(2 * rho * part) for part in (share, 1 - share))
    released = np.zeros(held.item_count, np.bool_)
    weights = held.weights(limit, square_root_share, noise) / UNIT
    threshold = shared_budget_gaussian(first, share * delta, limit)
    released[released_by_gaussian(weights, threshold, first, noise)] = True
    left = sample(without(held, released), limit, noise, 1)
    threshold = shared_budget_gaussian(second, (1 - share) * delta, limit)
    moved = np.zeros(held.item_count)
    move_towards(noise.order(left.users), left.starts, left.items, threshold + alpha * second, moved)
    released[released_by_gaussian(moved, threshold, second, noise)] = True
    return int(released.sum())


def _as_published(held: Baskets, epsilon: float, noise: OneShotNoise) -> int:
    scale = UNIT / epsilon
    tau = round(UNIT + scale * math.log(1 / (2 * DELTA)))
    weights = np.zeros(held.item_count, np.int64)
    items = preferred_first(held, held.repeats)
    cap = tau + round(_ALPHA_OF_GW * scale)
    fill_greedily(noise.order(held.users), held.starts, items, UNIT, cap, weights)
    return len(released_by_laplace(weights, tau, scale, noise))
