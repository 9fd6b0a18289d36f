"""The mechanisms of a set-union job, each calibrated to the guarantee of the whole job.

What they compute, with their sources: stream_dp/batch/.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from stream_dp.batch.baskets import Baskets, Weighing
from stream_dp.batch.greedy_set_union import Greedy, greedy, greedy_transfer
from stream_dp.batch.policy_set_union import GaussianPolicy, LaplacePolicy, gaussian_policy, laplace_policy
from stream_dp.batch.result import Outcome
from stream_dp.batch.set_union import (
    GaussianSetUnion,
    LaplaceCount,
    LaplaceSetUnion,
    gaussian_count,
    gaussian_weighted,
    laplace_count,
    laplace_weighted,
)
from stream_dp.batch.sips import Sips, sips
from stream_dp.batch.two_rounds import TwoRounds, two_rounds
from stream_dp.jobs.calibrated import Calibrated, calibrated
from stream_dp.jobs.counted import Counted
from stream_dp.jobs.declared import one_shot
from stream_dp.jobs.defaults import GAUSSIAN_ALPHA, GAUSSIAN_COUNT_ITEMS, GAUSSIAN_UNION_ITEMS, LAPLACE_ITEMS
from stream_dp.jobs.shares import DOWN
from stream_dp.privacy.accounting import gaussian_rho
from stream_dp.privacy.one_shot_noise import OneShotNoise

_PROMISE = {"epsilon": 2.0, "delta": 0.02}
_SMALL = ({**_PROMISE, "items_per_user": 2},)


def _union(run: Callable[..., Any], kind: Callable[..., Any], items: int) -> Callable[..., Calibrated]:
    """A set union in one round of weights, where a user counts with a sample of `items` items unless told otherwise."""

    def calibrate(epsilon: float, delta: float, items_per_user: int = items) -> Calibrated:
        found = calibrated(_weighing, run, kind(epsilon, delta, items_per_user), delta)
        own_threshold = run is gaussian_count
        return replace(found, needed=None) if own_threshold else found

    return calibrate


def _policy(
    run: Callable[..., Any], kind: Callable[..., Any], items: int, fill: float
) -> Callable[..., Calibrated]:
    """A set union in which users come one after the other and fill up what still needs weight."""

    def calibrate(
        epsilon: float, delta: float, items_per_user: int = items, alpha: float = fill
    ) -> Calibrated:
        parameters = kind(epsilon, delta, items_per_user, alpha)
        return calibrated(_baskets, run, parameters, delta, divides=False)

    return calibrate


@one_shot("set-union", "greedy", enumerated=({**_PROMISE, "tokens": 3},))
def calibrate_greedy(epsilon: float, delta: float, tokens: int, alpha: float = 3.0) -> Calibrated:
    """Users spend tokens on the items they name most; they may hold any number of items."""
    parameters = Greedy(epsilon, delta, tokens, alpha)
    return calibrated(_baskets, greedy, parameters, delta, divides=False)


@one_shot(
    "set-union",
    "greedy-transfer",
    enumerated=tuple(
        {**_PROMISE, "tokens": 3, "frequencies": public} for public in ({"a": 1, "b": 3, "c": 2}, {})
    ),
)
def calibrate_greedy_transfer(
    epsilon: float, delta: float, frequencies: dict[str, int], tokens: int, alpha: float = 3.0
) -> Calibrated:
    """Users spend tokens on the items that are most frequent in PUBLIC data."""
    if any(not 0 <= number < 2**62 for number in frequencies.values()):
        raise ValueError("frequencies must be whole numbers from 0 to 2^62.")
    of_others = 0
    public = np.array([*frequencies.values(), of_others], np.int64)

    def read(rows: Counted, noise: OneShotNoise) -> tuple[Baskets, Any]:
        return rows.baskets(), public[rows.places(list(frequencies))]

    def release(read: tuple[Baskets, Any], parameters: Greedy, noise: OneShotNoise) -> Outcome:
        return greedy_transfer(*read, parameters, noise)

    return calibrated(read, release, Greedy(epsilon, delta, tokens, alpha), delta, divides=False)


@one_shot("set-union", "sips", enumerated=_SMALL)
def calibrate_sips(epsilon: float, delta: float, items_per_user: int = GAUSSIAN_UNION_ITEMS) -> Calibrated:
    """Three rounds of weights that need no order of users: the fastest of those that find much."""
    parameters = Sips(gaussian_rho(epsilon, delta / 2) * DOWN, delta / 2, items_per_user)
    return calibrated(_weighing, sips, parameters, delta)


def _weighing(rows: Counted, noise: OneShotNoise) -> Weighing:
    """What users hold, for weights that they give without looking at each other."""
    return rows.weighing()


def _baskets(rows: Counted, noise: OneShotNoise) -> Baskets:
    """What each user holds, where one comes after the other."""
    return rows.baskets()


for _name, _calibrate in {
    "two-rounds": _policy(two_rounds, TwoRounds, GAUSSIAN_UNION_ITEMS, 8.0),
    "policy": _policy(laplace_policy, LaplacePolicy, LAPLACE_ITEMS, 3.0),
    "policy-gaussian": _policy(gaussian_policy, GaussianPolicy, GAUSSIAN_UNION_ITEMS, GAUSSIAN_ALPHA),
    "weighted": _union(laplace_weighted, LaplaceSetUnion, LAPLACE_ITEMS),
    "weighted-gaussian": _union(gaussian_weighted, GaussianSetUnion, GAUSSIAN_UNION_ITEMS),
    "count": _union(laplace_count, LaplaceCount, LAPLACE_ITEMS),
    "count-gaussian": _union(gaussian_count, GaussianSetUnion, GAUSSIAN_COUNT_ITEMS),
}.items():
    one_shot("set-union", _name, enumerated=_SMALL)(_calibrate)
