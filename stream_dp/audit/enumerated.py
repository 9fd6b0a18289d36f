"""One-shot noise that takes every value in turn: the whole law of what a mechanism releases, none of it sampled.

The mechanism runs once for every combination of the values that it asks for.  Integers of noise are taken as far out as
all but `REST` of their law; coins, orders of users and samples are taken all.  Noise that is compared as a double and
decides an order (Gumbel, Gaussian) has no such list of values: `one_shot_laws.py` has the laws of what it decides.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable
from functools import lru_cache
from itertools import permutations
from math import factorial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch import laplace_tails
from stream_dp.privacy.discrete_gaussian import pmf
from stream_dp.privacy.one_shot_noise import OneShotNoise

Integers = NDArray[np.int64]
Outcome = TypeVar("Outcome", bound=Hashable)
Law = dict[Outcome, float]

REST = 1e-8
"""Of the law of one integer: what lies further out than the values that are taken."""


def law_of(run: Callable[[OneShotNoise], Outcome]) -> "Law[Outcome]":
    """Every outcome of `run` and its probability."""
    noise, found = EveryNoise(), defaultdict[Outcome, float](float)
    while noise.begin():
        outcome = run(noise)
        found[outcome] += noise.chance
    return dict(found)


def delta_between(one: "Law[Outcome]", other: "Law[Outcome]", epsilon: float) -> float:
    """The least delta by which any set of outcomes of one law exceeds e^epsilon times that of the other."""
    bound = float(np.exp(epsilon))
    return max(
        sum(max(0.0, chance - bound * right.get(key, 0.0)) for key, chance in left.items())
        for left, right in ((one, other), (other, one))
    )


class EveryNoise(OneShotNoise):
    """Each run between two calls of `begin` sees another combination; `chance` is the probability of the last one."""

    def __init__(self) -> None:
        super().__init__(bytes(32))
        self._taken: list[int] = []
        self._sizes: list[int] = []
        self._place = 0
        self._begun = False
        self.chance = 1.0

    def begin(self) -> bool:
        """Go on to the next combination; False where all were seen."""
        while self._begun and self._taken and self._taken[-1] + 1 == self._sizes[-1]:
            self._taken.pop()
            self._sizes.pop()
        if self._begun and not self._taken:
            return False
        if self._begun:
            self._taken[-1] += 1
        self._begun, self._place, self.chance = True, 0, 1.0
        return True

    def discrete_gaussian(self, sigma_squared: float, count: int) -> Integers:
        return self._integers(_gaussian(sigma_squared), count)

    def discrete_laplace(self, scale: float, count: int) -> Integers:
        return self._integers(_laplace(scale), count)

    def passes(self, chance: NDArray[np.float64], missing: NDArray[np.float64]) -> NDArray[np.bool_]:
        taken = [self._choose((float(p), float(q))) == 0 for p, q in zip(chance, missing, strict=True)]
        return np.array(taken, np.bool_)

    def order(self, identities: Integers) -> NDArray[np.intp]:
        return np.array(self._permutation(len(identities)), np.intp)

    def sample_marks(self, stage: int, users: Integers, items: Integers) -> NDArray[np.uint64]:
        marks = np.empty(len(users), np.uint64)
        for user in np.unique(users):
            mine = np.flatnonzero(users == user)
            marks[mine] = np.array(self._permutation(len(mine)), np.uint64) << np.uint64(40)
        return marks

    def _permutation(self, size: int) -> tuple[int, ...]:
        return _permutations(size)[self._choose((1 / factorial(size),) * factorial(size))]

    def _integers(self, law: tuple[tuple[int, ...], tuple[float, ...]], count: int) -> Integers:
        values, chances = law
        return np.array([values[self._choose(chances)] for _ in range(count)], np.int64)

    def _choose(self, chances: tuple[float, ...]) -> int:
        """Which of these comes now."""
        if self._place == len(self._taken):
            self._taken.append(0)
            self._sizes.append(len(chances))
        number = self._taken[self._place]
        self._place += 1
        self.chance *= chances[number]
        return number


@lru_cache
def _permutations(size: int) -> list[tuple[int, ...]]:
    return list(permutations(range(size)))


@lru_cache
def _laplace(scale: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    reach = laplace_tails.tail_point(scale, REST)
    q = np.exp(-1 / scale)
    values = np.arange(-reach, reach + 1)
    return tuple(values.tolist()), tuple(((1 - q) / (1 + q) * q ** np.abs(values)).tolist())


@lru_cache
def _gaussian(sigma_squared: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    half = pmf(sigma_squared)
    reach = int(np.flatnonzero(half > REST / 10)[-1])
    values = np.arange(-reach, reach + 1)
    return tuple(values.tolist()), tuple(half[np.abs(values)].tolist())
