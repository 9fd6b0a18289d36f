"""Jobs that fit their mechanism and `items_per_user` to how many items users hold, which they estimate themselves.

1. A small part of epsilon goes to an estimate: how many users hold 1 item, 2, 3, 4 to 5, 6 to 10, and so on, in public
   bins, each number with discrete Laplace noise.  A user is in one bin, so one unit changes one of these numbers by 1.
2. The noisy numbers alone choose one of the branches, each a mechanism whose parameters were fixed before.
3. The branch runs with noise of its own.  Each is calibrated to what is left of epsilon, and to delta.

Guarantee: (epsilon, delta) for both together, by adaptive composition: whatever the estimate says, the branch that it
chooses is (epsilon - epsilon0, delta)-DP, and the estimate is epsilon0-DP.  So is every output of a mechanism that
shows the noisy numbers too; a result shows less, namely which branch ran.

Beside other charges, every branch tells at most as much as the two mechanisms of `loss.either` together, whichever is
chosen; so these are charged after the estimate.

`audit --exact` counts the true delta, and catches a choice by true sizes and users who count in several bins.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.cost import Cost
from stream_dp.batch.laplace_tails import standard_deviation
from stream_dp.batch.result import Outcome
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.counted import Counted
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.share import Share, share_of

Reals = NDArray[np.float64]

EDGES = (1, 2, 3, 4, 6, 11, 31, 51, 101, 301)
"""The least number of items of a user in each bin."""

_HELD = (1.0, 2.0, 3.0, 4.4, 7.4, 17.0, 39.0, 71.0, 165.0, 450.0)
"""How many items a user of each bin is taken to hold."""

_DISTINCT = 3.0
"""A bin counts if its number is so many noise scales above 0."""

_EASY = 15.0
"""The label of rank k is taken to be held by one in 15 k of all pairs of a user and an item, or more."""

_FALLS = 10.5
"""Labels are taken to be held like 1 / (10.5 rank) of all pairs: this is the sum of 1 / rank over 20,000 of them."""

_HEAD = 150.0
"""Two stages count for a histogram of at most about so many labels: of more, users would keep the first ones alone."""

_BONUS = 0.05
"""What counts twice as much of what users hold may need 2^0.05 times as much of a label."""


@dataclass(frozen=True)
class Branch:
    """A mechanism that may be chosen.

    `gives`: how much a user of so many items gives to all labels together, where a label needs `calibrated.needed`.
    `of_head`: it is good at the most frequent labels alone.  `swaps`: what it needs counts so many times.
    """

    mechanism: str
    chosen: dict[str, Any]
    calibrated: Calibrated
    gives: Callable[[Reals], Reals]
    of_head: bool = False
    swaps: float = 1.0

    @property
    def needed(self) -> float:
        """See `Calibrated.needed`."""
        assert self.calibrated.needed is not None
        return self.calibrated.needed


@dataclass(frozen=True)
class Fitted:
    """`epsilon`: of the estimate.  `usual`: what runs where the estimate tells nothing.  `k`: of a top-k, else 0.

    `held`: how many items a user of each bin is taken to hold; with one branch alone nobody asks.
    `bins`: the PUBLIC labels that alone are counted.
    """

    epsilon: float
    branches: Sequence[Branch]
    usual: Branch
    k: int = 0
    edges: Sequence[int] = EDGES
    held: Sequence[float] = _HELD
    bins: list[str] | None = None

    def estimate(self, rows: Counted, noise: OneShotNoise) -> NDArray[np.int64]:
        """Noisy numbers of users by how many items they hold, int64 of shape (edges,)."""
        counted = rows if self.bins is None else rows.restricted(self.bins)
        return counted.sizes(self.edges) + noise.discrete_laplace(1 / self.epsilon, len(self.edges))

    def choose(self, noisy: NDArray[np.int64]) -> Branch:
        """The branch that finds most labels; it follows from the noisy numbers and public ones alone.

        Of those that find a top k with ease, it is the one that counts most of what users hold, because sampling moves
        labels past each other.  Sampling lowers counts too, so what counts more is preferred a little.
        """
        users = self._users(noisy)
        if not users.any() or len(self.branches) == 1:
            return self.usual
        held = np.array(self.held)
        given = {place: float(users @ each.gives(held)) for place, each in enumerate(self.branches)}
        shown = max(
            given[place] / each.needed for place, each in enumerate(self.branches) if not each.of_head
        )
        if not self.k and shown > _HEAD * _FALLS:
            given = {place: whole for place, whole in given.items() if not self.branches[place].of_head}
        part = {
            place: self.branches[place].swaps * self.branches[place].needed / whole
            for place, whole in given.items()
        }
        best = min(part, key=lambda place: part[place] / given[place] ** _BONUS)
        limit = 1 / (_EASY * self.k) if self.k else 0.0
        good = [best, *(place for place, each in part.items() if each <= limit)]
        return self.branches[
            max(good, key=lambda place: (given[place], not self.branches[place].of_head, -part[place]))
        ]

    def run(self, rows: Counted, noise: OneShotNoise) -> Outcome:
        """Estimate, choose and run."""
        noisy = self.estimate(rows, noise)
        branch = self.choose(noisy)
        found = branch.calibrated.run(rows, noise)
        chosen = {"fitted": branch.mechanism} | branch.chosen
        if found.counts is None:
            return replace(found, chosen=chosen)
        most = branch.chosen["items_per_user"]
        return replace(found, chosen=chosen | self._counted(noisy, most), over_cap=self.over_cap(noisy, most))

    def over_cap(self, noisy: NDArray[np.int64], most: int) -> Share | None:
        """Which share of the users holds more than `most` items, by the noisy numbers; None if they do not tell.

        Of two sums of bins with noise of their own, one is a part of the other: they have its variance in common.
        """
        if most + 1 not in self.edges:
            return None
        over, variance = noisy[np.array(self.edges) > most], standard_deviation(1 / self.epsilon) ** 2
        shared = variance * len(over)
        whole_sd = math.sqrt(variance * len(noisy))
        return share_of(float(over.sum()), math.sqrt(shared), float(noisy.sum()), whole_sd, covariance=shared)

    def _users(self, noisy: NDArray[np.int64]) -> Reals:
        """The numbers that stand out of their noise; 0 for the others."""
        return np.where(noisy < _DISTINCT / self.epsilon, 0, noisy).astype(np.float64)

    def _counted(self, noisy: NDArray[np.int64], most: int) -> dict[str, float]:
        """The part of what users hold that is counted with `most` items of each, by the noisy numbers."""
        users, held = self._users(noisy), np.array(self.held)
        if not users.any() or not self.held:
            return {}
        return {"part_counted": round(float(users @ np.minimum(held, most) / (users @ held)), 2)}

    def calibrated(self, epsilon: float, delta: float) -> Calibrated:
        """The whole, which keeps (epsilon, delta)."""
        each = [branch.calibrated for branch in self.branches]
        needed = [one.needed for one in each if one.needed is not None]
        return Calibrated(
            Cost(
                self.epsilon**2 / 2 + max(one.cost.rho for one in each),
                max(one.cost.delta for one in each),
                (epsilon, delta),
                loss=loss.pure(self.epsilon) + loss.either(one.cost.loss for one in each),
            ),
            delta,
            self.run,
            self.bins,
            divides=all(one.divides for one in each),
            needed=min(needed, default=None),
            needed_most=max(needed, default=None),
        )
