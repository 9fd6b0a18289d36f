"""Two ways to spoil the set union in two rounds (batch/two_rounds.py), each of which the exact audit must catch."""

from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.batch.baskets import Baskets, sample, spread_weights, without
from stream_dp.batch.set_union import UNIT, square_root_share
from stream_dp.batch.two_rounds import HOPELESS, TwoRounds, first_round, second_round
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.one_shot_noise import OneShotNoise

Run = Callable[[Rows, OneShotNoise], Hashable]


def left_with_nothing_keeps_all(parameters: TwoRounds) -> Run:
    """BROKEN: a user whose labels were all dropped goes on with all of them, under the same threshold."""

    def run(rows: Rows, noise: OneShotNoise) -> Hashable:
        kept, weights = _sampled(rows, parameters, noise)
        released, hopeless = first_round(weights, parameters, noise)
        goes_on = ~(released | hopeless)[kept.items]
        owners = kept.owners
        empty = np.bincount(owners[goes_on], minlength=len(kept.users)) == 0
        return _second(_where(kept, goes_on | empty[owners]), released, parameters, noise)

    return run


def dropped_by_true_weight(parameters: TwoRounds) -> Run:
    """BROKEN: what is hopeless follows from the weights themselves."""

    def run(rows: Rows, noise: OneShotNoise) -> Hashable:
        kept, weights = _sampled(rows, parameters, noise)
        sigma, threshold = parameters.first
        hopeless = weights <= HOPELESS * sigma
        released = np.zeros(len(weights), np.bool_)
        over = (weights - threshold) / sigma
        released[:] = noise.passes(ndtr(over), ndtr(-over)) & (weights > 0)
        return _second(without(kept, released | hopeless), released, parameters, noise)

    return run


def _sampled(rows: Rows, parameters: TwoRounds, noise: OneShotNoise) -> tuple[Baskets, NDArray[np.float64]]:
    kept = sample(rows.baskets(), parameters.items_per_user, noise)
    return kept, spread_weights(kept, square_root_share) / UNIT


def _second(
    rest: Baskets, released: NDArray[np.bool_], parameters: TwoRounds, noise: OneShotNoise
) -> Hashable:
    released[second_round(rest, parameters, noise)] = True
    return tuple(np.flatnonzero(released).tolist())


def _where(kept: Baskets, pairs: NDArray[np.bool_]) -> Baskets:
    """The baskets with these of their pairs."""
    before = np.concatenate([[0], np.cumsum(pairs)])
    return replace(kept, starts=before[kept.starts], items=kept.items[pairs], repeats=kept.repeats[pairs])
