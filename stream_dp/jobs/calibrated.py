"""A mechanism whose parameters are fixed: what it costs is known before any data is read."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.baskets import each_once
from stream_dp.batch.cost import Cost, require_count, require_positive
from stream_dp.batch.gumbel_top_k import PayWhatYouGet
from stream_dp.batch.result import BatchResult
from stream_dp.jobs.counted import Counted
from stream_dp.privacy.one_shot_noise import OneShotNoise

Integers = NDArray[np.int64]

_LARGEST_EPSILON = 30.0
"""Beyond, what the draws lack at values of the neighbour's noise would not vanish: privacy/one_shot_noise.py."""
LEAST_DELTA = 1e-15
"""The least that a job may guarantee: what draws and thresholds err by is not charged (one_shot_noise.py)."""

MOST_ITEMS = 1_000_000
"""The most that k, kbar and items_per_user may be: above, a threshold and its noise take too much memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a mechanism released: numbers of items in the order that it gives a meaning.

    `rank`: a released rank instead of items.  `bottom`: the mechanism says that there are fewer items than asked for.
    `chosen`: the parameters that it chose by a noisy estimate.
    """

    items: Integers
    counts: Integers | None = None
    sd: float | None = None
    bottom: bool = False
    rank: int | None = None
    chosen: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The pay-what-you-get budget that a job draws from, as it is opened, and the most marks that the job may take."""

    name: str
    opened: PayWhatYouGet
    k: int


@dataclass(frozen=True, slots=True)
class Calibrated:
    """`delta`: the one that was asked for, at which `cost` gives the epsilon that was asked for, or a lower one.

    `releases_counts`: whether labels come with noisy counts.  `run` is called with rows of any content.
    `shared`: where `cost` is that of a budget, which is charged once for all jobs that name it.
    `parameters`: what the request gave, and what was chosen where it gave nothing.
    `protects`: one unit in words, where that is not one of the source's.
    `needed`: how many users a label needs to be found in 95% of cases: if they hold nothing else, or for a top-k, that
    it needs more than the label behind the last rank.  None where nothing so simple can be said.  `needed_most`: where
    a mechanism chooses its parameters, the same for the worst choice, and `needed` for the best.
    `divides`: whether users are independent of each other, so that many machines can count them.
    """

    cost: Cost
    delta: float
    releases_counts: bool
    run: Callable[[Counted, OneShotNoise], Outcome]
    bins: list[str] | None = None
    shared: SharedBudget | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    protects: str = ""
    divides: bool = True
    needed: float | None = None
    needed_most: float | None = None

    @property
    def epsilon(self) -> float:
        """The least epsilon at `delta`."""
        return self.epsilon_at(self.delta)

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon known at `delta`, which must not be below the one asked for."""
        return self.cost.epsilon_at(delta)


def sampled_counts(rows: Counted, items_per_user: int, noise: OneShotNoise) -> Integers:
    """How many users hold each item, where a user of more than `items_per_user` items keeps a sample of them."""
    return rows.weights(items_per_user, each_once, noise)


def outcome(result: BatchResult, most: int | None = None) -> Outcome:
    """What a mechanism returned, cut to the first `most` items."""
    counts = None if result.counts is None else result.counts[:most]
    return Outcome(result.items[:most], counts, result.sd, result.bottom)


def check_sizes(**sizes: int | None) -> None:
    """Refuse sizes that are no whole numbers from 1 to MOST_ITEMS; None is no size."""
    for name, size in sizes.items():
        if size is not None:
            require_count(name, size)
            if size > MOST_ITEMS:
                raise ValueError(f"{name} must be at most {MOST_ITEMS}, not {size}.")


def check_bins(bins: list[str]) -> None:
    """Refuse a list of public labels that is empty, too long, or names one twice."""
    check_sizes(bins=len(bins))
    if len(set(bins)) != len(bins):
        raise ValueError("bins must name each label once.")


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is not above 0, or so large that it guarantees nothing and draws are too coarse for it."""
    require_positive("epsilon", epsilon)
    if epsilon > _LARGEST_EPSILON:
        raise ValueError(f"epsilon must be at most {_LARGEST_EPSILON:g}, not {epsilon:g}.")


def check_guarantee(epsilon: float, delta: float) -> None:
    """Refuse an epsilon that `check_epsilon` refuses, and a delta beside which what draws err by would not vanish."""
    check_epsilon(epsilon)
    if not LEAST_DELTA <= delta <= 0.1:
        raise ValueError(f"delta must lie between {LEAST_DELTA:g} and 0.1, not {delta:g}.")
