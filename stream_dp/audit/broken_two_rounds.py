"""Three ways to spoil the set union in two rounds (batch/two_rounds.py), each of which the exact audit must catch."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from stream_dp.audit.enumerated import Law
from stream_dp.batch.baskets import Baskets, sample, spread_weights, without
from stream_dp.batch.set_union import UNIT, square_root_share
from stream_dp.batch.two_rounds import HOPELESS, TwoRounds, first_round, second_round
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.one_shot_noise import OneShotNoise

Run = Callable[[Rows, OneShotNoise], tuple[int, ...]]


def left_with_nothing_keeps_all(parameters: TwoRounds) -> Run:
    """BROKEN: a user whose labels were all dropped goes on with all of them, under the same threshold."""

    def run(rows: Rows, noise: OneShotNoise) -> tuple[int, ...]:
        kept, weights = _sampled(rows, parameters, noise)
        released, hopeless = first_round(weights, parameters, noise)
        goes_on = ~(released | hopeless)[kept.items]
        owners = kept.owners
        empty = np.bincount(owners[goes_on], minlength=len(kept.users)) == 0
        return _second(_where(kept, goes_on | empty[owners]), released, parameters, noise)

    return run


def dropped_by_true_weight(parameters: TwoRounds) -> Run:
    """BROKEN: what is hopeless follows from the weights themselves."""

    def run(rows: Rows, noise: OneShotNoise) -> tuple[int, ...]:
        kept, weights = _sampled(rows, parameters, noise)
        sigma, threshold = parameters.first
        hopeless = weights <= HOPELESS * sigma
        released = np.zeros(len(weights), np.bool_)
        over = (weights - threshold) / sigma
        released[:] = noise.passes(ndtr(over), ndtr(-over)) & (weights > 0)
        return _second(without(kept, released | hopeless), released, parameters, noise)

    return run


def items_outside_the_sample(parameters: TwoRounds) -> Run:
    """BROKEN: the second round samples anew, and a label that nobody sampled before is hopeless without noise."""

    def run(rows: Rows, noise: OneShotNoise) -> tuple[int, ...]:
        all_baskets = rows.baskets()
        _, weights = _sampled(rows, parameters, noise)
        released, hopeless = first_round(weights, parameters, noise)
        left = without(all_baskets, released | hopeless | (weights == 0))
        again = sample(left, parameters.items_per_user, noise, 1)
        return _second(again, released, parameters, noise)

    return run


@dataclass(frozen=True)
class Crowd:
    """`people` who hold one label in common and `own` labels that nobody else holds, each."""

    people: int
    own: int

    def law_outside_the_sample(self, parameters: TwoRounds, joined: bool) -> "Law[Hashable]":
        """Whether `items_outside_the_sample` releases what they have in common, for samples of one label.

        `joined`: one more user holds that label alone.
        """
        sampled = np.arange(self.people + 1)
        weights = sampled + int(joined)
        passes, stays = _first_round_chances(weights.astype(np.float64), parameters)
        passes[weights == 0], stays[weights == 0] = 0.0, 0.0
        chances = binom.pmf(sampled, self.people, 1 / (1 + self.own))
        _, own_stays = _first_round_chances(np.ones(1), parameters)
        sigma, threshold = parameters.second
        cap = threshold + parameters.alpha * sigma
        found = 0.0
        for those, weight, chance, passed, goes_on in zip(
            sampled, weights, chances, passes, stays, strict=True
        ):
            others = np.arange(self.people - those + 1)
            give = binom.pmf(others, self.people - those, 1 - own_stays[0] / 2)
            second = ndtr((np.minimum(weight + others, cap) - threshold) / sigma)
            found += float(chance * (passed + goes_on * (give @ second)))
        return {True: found, False: 1 - found}


def _first_round_chances(
    weights: NDArray[np.float64], parameters: TwoRounds
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The chances that labels of these weights are released, and that they go on to the second round."""
    sigma, threshold = parameters.first
    passes = ndtr((weights - threshold) / sigma)
    return passes, ndtr(weights / sigma - HOPELESS) - passes


def _sampled(rows: Rows, parameters: TwoRounds, noise: OneShotNoise) -> tuple[Baskets, NDArray[np.float64]]:
    kept = sample(rows.baskets(), parameters.items_per_user, noise)
    return kept, spread_weights(kept, square_root_share) / UNIT


def _second(
    rest: Baskets, released: NDArray[np.bool_], parameters: TwoRounds, noise: OneShotNoise
) -> tuple[int, ...]:
    released[second_round(rest, parameters, noise)] = True
    return tuple(np.flatnonzero(released).tolist())


def _where(kept: Baskets, pairs: NDArray[np.bool_]) -> Baskets:
    """The baskets with these of their pairs."""
    before = np.concatenate([[0], np.cumsum(pairs)])
    return replace(kept, starts=before[kept.starts], items=kept.items[pairs], repeats=kept.repeats[pairs])
