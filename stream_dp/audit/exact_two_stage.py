"""The law of the histogram in two stages on data of two labels, and three ways to spoil it that must be caught.

The first stage decides which label comes first; the second shows counts of what the program lets users keep.  There are
formulas for both noises.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.audit.enumerated import Law
from stream_dp.audit.held_rows import Holdings, rows_of
from stream_dp.audit.one_shot_case import CROWDS, OneShotCase, worst_of_leaving
from stream_dp.batch.baskets import Baskets, each_once, spread_weights
from stream_dp.batch.two_stage import TwoStage, kept_by, weights_of
from stream_dp.privacy.discrete_gaussian import pmf

_REST = 1e-11
"""Of one count: what is left out."""

First = Callable[[Baskets, TwoStage], float]
"""The chance that the first label comes before the second."""


_BOTH = ((0, 1),) * 40
_EVEN: Holdings = ((0,), *_BOTH, (1,))
"""One user more, and the order of the true weights is another."""

_LATE: Holdings = ((1,), *_BOTH)
"""Only one user would give to the second label if each gave to the first one held alone."""

_BEHIND: Holdings = ((0,), *_BOTH, *((1,),) * 12)
"""The first label is behind, and whether it comes first all the same depends on one user more."""


def two_stage_cases() -> Iterator[OneShotCase]:
    yield _case(TwoStage(0.5, 0.001, 1), data=[_EVEN, _LATE, _BEHIND])
    yield _case(TwoStage(0.5, 0.001, 2), data=[_BOTH])
    yield _case(TwoStage(3.0, 0.02, 1), data=[*CROWDS[:2]])


def law_of_two_stages(parameters: TwoStage, holdings: Holdings) -> "Law[Hashable]":
    """What is shown, and how often: the noisy counts of both labels, None for one that is not shown."""
    return _law(parameters, _by_noise, holdings)


def first_of_two_stages() -> Iterator[OneShotCase]:
    """The label of the largest count alone, with its count: a top-k with k = 1."""
    parameters = TwoStage(0.5, 0.001, 1)
    law = partial(_law_of_first, parameters)
    worst = partial(worst_of_leaving, law, [_EVEN, _LATE, _BEHIND], parameters.epsilon)
    yield OneShotCase("top-k two-stage", parameters.epsilon, parameters.delta, worst, "")


def two_stage_wrongly() -> Iterator[OneShotCase]:
    correct = TwoStage(0.5, 0.001, 1)
    yield _case(correct, "users keep what is frequent by true weights", _by_truth, [_EVEN])
    yield _case(correct, "a label that is held has no noise in the first stage", _by_samples, [_LATE])
    yield _case(_AllTwice(0.5, 0.001, 1), "each stage spends all of V", data=[_BEHIND])
    yield _case(_OneLabel(0.5, 0.001, 2), "noise for one label of a user, who keeps two", data=[_BOTH])


def _case(
    parameters: TwoStage, broken: str = "", first: "First | None" = None, data: "list[Holdings] | None" = None
) -> OneShotCase:
    law = partial(_law, parameters, first or _by_noise)
    worst = partial(worst_of_leaving, law, data or CROWDS, parameters.epsilon)
    return OneShotCase("histogram two-stage", parameters.epsilon, parameters.delta, worst, broken)


def _law(parameters: TwoStage, first: First, holdings: Holdings) -> "Law[Hashable]":
    """What is shown, for either order of the labels: the two counts, None where one is not shown."""
    baskets = rows_of(holdings).baskets()
    ahead, found = first(baskets, parameters), dict[Hashable, float]()
    for order, chance in (([3.0, 2.0, 0.0], ahead), ([2.0, 3.0, 0.0], 1 - ahead)):
        counts = spread_weights(kept_by(baskets, np.array(order), parameters), each_once)[:2].tolist()
        one, other = (_shown(count, parameters) for count in counts)
        for (left, p), (right, q) in product(one.items(), other.items()):
            found[left, right] = found.get((left, right), 0.0) + chance * p * q
    return found


def _law_of_first(parameters: TwoStage, holdings: Holdings) -> "Law[Hashable]":
    found = dict[Hashable, float]()
    for counts, chance in law_of_two_stages(parameters, holdings).items():
        assert isinstance(counts, tuple)
        shown = [(-count, place) for place, count in enumerate(counts) if count is not None]
        first = min(shown, default=None)
        found[first] = found.get(first, 0.0) + chance
    return found


def _shown(count: int, parameters: TwoStage) -> "Law[int | None]":
    """The noisy count of one label from tau on, or None."""
    if not count:
        return {None: 1.0}
    half = pmf(parameters.sigma_squared)
    values = np.arange(1 - len(half), len(half))
    law: Law[int | None] = {None: 0.0}
    for noisy, chance in zip((count + values).tolist(), half[np.abs(values)].tolist(), strict=True):
        place = noisy if noisy >= parameters.tau else None
        law[place] = law.get(place, 0.0) + chance
    return {place: chance for place, chance in law.items() if chance > _REST}


def _by_noise(baskets: Baskets, parameters: TwoStage) -> float:
    """If one of the labels is held by nobody, their order changes nothing of what is kept."""
    return _ahead(weights_of(baskets), parameters.first_sigma * np.ones(3))


def _ahead(weights: NDArray[np.float64], sigmas: NDArray[np.float64]) -> float:
    return float(ndtr((weights[0] - weights[1]) / np.hypot(sigmas[0], sigmas[1])))


def _by_truth(baskets: Baskets, parameters: TwoStage) -> float:
    """BROKEN: the order of the weights themselves."""
    weights = weights_of(baskets)
    return float(weights[0] >= weights[1])


def _by_samples(baskets: Baskets, parameters: TwoStage) -> float:
    """BROKEN: a user gives to the first label alone, and what has no weight gets no noise."""
    weights = np.bincount(baskets.items[baskets.starts[:-1]], minlength=3).astype(np.float64)
    return _ahead(weights, np.where(weights > 0, parameters.first_sigma, 0.0))


class _AllTwice(TwoStage):
    """BROKEN: see `two_stage_wrongly`."""

    __slots__ = ()

    @property
    def first_sigma(self) -> float:
        return self.mu_squared**-0.5

    @property
    def sigma_squared(self) -> float:
        return 4 + self.items_per_user / self.mu_squared


class _OneLabel(TwoStage):
    """BROKEN: see `two_stage_wrongly`."""

    __slots__ = ()

    @property
    def sigma_squared(self) -> float:
        return TwoStage(self.epsilon, self.delta, 1).sigma_squared
