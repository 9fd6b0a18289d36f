"""A mechanism whose parameters are fixed: what it costs is known before any data is read."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.baskets import each_once
from stream_dp.batch.cost import Cost
from stream_dp.batch.gumbel_top_k import PayWhatYouGet
from stream_dp.batch.result import Outcome
from stream_dp.jobs.counted import Counted
from stream_dp.privacy.one_shot_noise import OneShotNoise

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The pay-what-you-get budget that a job draws from, as it is opened, and the most marks that the job may take."""

    name: str
    opened: PayWhatYouGet
    k: int


@dataclass(frozen=True, slots=True)
class Calibrated:
    """`delta`: the one that was asked for, at which `cost` gives the epsilon that was asked for, or a lower one.

    `run` is called with rows of any content.
    `shared`: where `cost` is that of a budget, which is charged once for all jobs that name it.
    `parameters`: what the request gave, and what was chosen where it gave nothing.
    `protects`: one unit in words, where that is not one of the source's.
    `needed`: how many users a label needs to be found in 95% of cases: if they hold nothing else, or for a top-k, that
    it needs more than the label behind the last rank.  None where nothing so simple can be said.  `needed_most`: where
    a mechanism chooses its parameters, the same for the worst choice, and `needed` for the best.
    `divides`: whether users are independent of each other, so that many machines can count them.
    `sd`: of the noise of each count, where that is one number.
    """

    cost: Cost
    delta: float
    run: Callable[[Counted, OneShotNoise], Outcome]
    bins: list[str] | None = None
    shared: SharedBudget | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    protects: str = ""
    divides: bool = True
    needed: float | None = None
    needed_most: float | None = None
    sd: float | None = None

    @property
    def epsilon(self) -> float:
        """The least epsilon at `delta`."""
        return self.epsilon_at(self.delta)

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon known at `delta`, which must not be below the one asked for."""
        return self.cost.epsilon_at(delta)


def head(found: Calibrated, k: int) -> Calibrated:
    """The first k of what a mechanism releases."""
    return replace(found, run=lambda rows, noise: found.run(rows, noise).first(k))


Read = Callable[[Counted, OneShotNoise], Any]
"""What a mechanism is given of the rows."""


def sampled(items_per_user: int) -> Read:
    """How many users hold each item, where a user of more than `items_per_user` items keeps a sample of them."""
    return lambda rows, noise: rows.weights(items_per_user, each_once, noise)


def counted(rows: Counted, noise: OneShotNoise) -> Integers:
    """How many users hold each item, however many they hold."""
    return rows.counts()


def calibrated(
    read: Read,
    release: Callable[..., Outcome],
    parameters: Any,
    delta: float,
    *,
    alone: tuple[float, float] | None = None,
    bins: list[str] | None = None,
    divides: bool = True,
) -> Calibrated:
    """The mechanism `release` with these parameters on what is `read` of the rows; with `bins`, only of these.

    `alone`: the guarantee of the mechanism by itself, where the parameters do not tell it.
    """

    def run(rows: Counted, noise: OneShotNoise) -> Outcome:
        return release(read(rows if bins is None else rows.restricted(bins), noise), parameters, noise)

    cost = parameters.cost if alone is None else replace(parameters.cost, alone=alone)
    needed, sd = (getattr(parameters, name, None) for name in ("needed", "sd"))
    return Calibrated(cost, delta, run, bins, divides=divides, needed=needed, sd=sd)
