"""Jobs that fit their mechanism and `items_per_user` to how many items users hold, which they estimate themselves.

1. A small part of epsilon goes to an estimate: how many users hold 1 item, 2, 3, 4 to 5, 6 to 15, and so on, in public
   bins, each number with discrete Laplace noise.  A user is in one bin, so one unit changes one of these numbers by 1.
2. The noisy numbers alone choose one of the branches, each a mechanism whose parameters were fixed before.
3. If that one has Gaussian noise, a small part of what is left goes to the counts of the labels of two ranks.  One unit
   moves each of them by at most 1: it adds to every label's count 0 or 1, so to the r-th largest count, too.  By both
   estimates the branch is chosen again, among those with Gaussian noise.
4. The branch runs with noise of its own.

Guarantee: (epsilon, delta) for all together, by adaptive composition.  The first estimate is epsilon0-DP, and what
follows is (epsilon - epsilon0, delta)-DP.  Write V for the mu^2 of a Gaussian that is (epsilon - epsilon0, d)-DP for
a d between delta / 2 and delta.  The counts of ranks are covered by a Gaussian of a part of V, and each branch that
may follow by one of the rest, but for a threshold of delta d.  Which d of each branch keeps all together within
delta, whichever is chosen, is computed by `novel_labels.after`.  A branch that runs without the counts is (epsilon -
epsilon0, delta)-DP by itself.  All this holds for outputs that show the noisy numbers too; a result shows less,
namely which branch ran.

Beside other charges, every branch tells at most as much as the two mechanisms of `loss.either` together, whichever is
chosen; so these are charged after the estimate.

`audit --exact` counts the true delta.  It catches a choice by true sizes or counts, users who count in several bins,
and counts of ranks that nothing pays for.
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
from stream_dp.jobs.prospect import Counting, Prospect
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise
from stream_dp.privacy.share import Share, share_of

Reals = NDArray[np.float64]

EDGES = (1, 2, 3, 4, 6, 16, 31, 61, 101, 301)
"""The least number of items of a user in each bin."""

_HELD = (1.0, 2.0, 3.0, 4.4, 9.0, 22.0, 42.0, 77.0, 165.0, 450.0)
"""How many items a user of each bin is taken to hold."""

_DISTINCT = 3.0
"""Bins count if their number is so many noise scales above 0."""

_CLEAR = 3.5
"""Counts of ranks tell something if the first of them is so many standard deviations above 0."""

_EASY = 15.0
"""The label of rank k is taken to be held by one in 15 k of all pairs of a user and an item, or more."""

_BONUS = 0.05
"""What counts twice as much of what users hold may need 2^0.05 times as much of a label."""

PLACES = (30, 150)
"""The ranks whose counts tell how frequent labels are."""


@dataclass(frozen=True)
class Branch:
    """A mechanism that may be chosen.

    `gives`: how much a user of so many items gives to all labels together, where a label needs `calibrated.needed`.
    `swaps`: what it needs counts so many times, because its noise moves labels past each other.
    `counting`: of one with Gaussian noise that is chosen by the counts of ranks.
    """

    mechanism: str
    chosen: dict[str, Any]
    calibrated: Calibrated
    gives: Callable[[Reals], Reals]
    swaps: float = 1.0
    counting: Counting | None = None

    @property
    def needed(self) -> float:
        """See `Calibrated.needed`."""
        assert self.calibrated.needed is not None
        return self.calibrated.needed


@dataclass(frozen=True)
class RankCounts:
    """How many users hold the labels of some ranks, each count with noise N_Z(0, `sigma_squared`)."""

    sigma_squared: float
    places: tuple[int, ...] = PLACES

    @property
    def cost(self) -> Cost:
        """One unit moves each count by at most 1."""
        moved = len(self.places)
        return Cost(
            moved / (2 * self.sigma_squared), 0.0, loss=loss.discrete_gaussian(self.sigma_squared, moved)
        )

    def exact(self, rows: Counted) -> NDArray[np.int64]:
        """PRIVATE: the counts themselves, int64 of shape (places,); 0 where there are fewer labels."""
        counts, last = rows.counts(), self.places[-1]
        largest = np.sort(np.partition(counts, -last)[-last:] if len(counts) > last else counts)[::-1]
        return np.pad(largest, (0, last - len(largest)))[np.array(self.places) - 1]

    def estimate(self, rows: Counted, noise: OneShotNoise) -> NDArray[np.int64]:
        """Int64 of shape (places,)."""
        return self.exact(rows) + noise.discrete_gaussian(self.sigma_squared, len(self.places))


@dataclass(frozen=True)
class Fitted:
    """`epsilon`: of the first estimate.  `usual`: what runs where it tells nothing.  `k`: of a top-k, else 0.

    `held`: how many items a user of each bin is taken to hold; with one branch alone nobody asks.
    `bins`: the PUBLIC labels that alone are counted.  `ranks`: the second estimate, if any branch has `counting`.
    """

    epsilon: float
    branches: Sequence[Branch]
    usual: Branch
    k: int = 0
    edges: Sequence[int] = EDGES
    held: Sequence[float] = _HELD
    bins: list[str] | None = None
    ranks: RankCounts | None = None

    def estimate(self, rows: Counted, noise: OneShotNoise) -> NDArray[np.int64]:
        """Noisy numbers of users by how many items they hold, int64 of shape (edges,)."""
        counted = rows if self.bins is None else rows.restricted(self.bins)
        return counted.sizes(self.edges) + noise.discrete_laplace(1 / self.epsilon, len(self.edges))

    def choose(self, noisy: NDArray[np.int64]) -> Branch:
        """The branch that needs least of what users give; it follows from the noisy numbers and public ones alone."""
        return self._least(noisy, self.branches)

    def choose_by_counts(self, noisy: NDArray[np.int64], counts: NDArray[np.int64]) -> Branch:
        """The branch with Gaussian noise that is likely to show most; it follows from noisy numbers and public ones.

        A count below the standard deviation of its noise is taken to be that: less would have counts between the two
        ranks fall faster than anybody knows.
        If no label of the first rank stands out of its noise, there may be fewer labels than that rank.  Of these two
        stages show only as many as a user keeps, so it must keep that many then.
        """
        assert self.ranks is not None
        sure = counts[0] >= _CLEAR * math.sqrt(self.ranks.sigma_squared)
        most = 0 if sure else self.ranks.places[0]
        counting = [
            (each, each.counting)
            for each in self.branches
            if each.counting is not None and each.counting.shows_at_most >= most
        ]
        told = np.maximum(counts, math.sqrt(self.ranks.sigma_squared))
        prospect = Prospect(self._users(noisy), np.array(self.held), self.ranks.places, told)
        shown = [prospect.labels(how, self.k) for _, how in counting]
        best = int(np.argmax(shown))
        return counting[best][0] if shown[best] >= 1 else self._least(noisy, [each for each, _ in counting])

    def _least(self, noisy: NDArray[np.int64], branches: Sequence[Branch]) -> Branch:
        """The branch that needs least of what users give.

        Sampling lowers counts, so what counts more of what users hold is preferred a little.  It moves labels past each
        other, too: of branches that find a top k with ease, the one that counts most is taken, of equals the first.
        """
        users = self._users(noisy)
        if not users.any() or len(self.branches) == 1:
            return self.usual
        given = [float(users @ each.gives(np.array(self.held))) for each in branches]
        part = [each.swaps * each.needed / whole for each, whole in zip(branches, given, strict=True)]
        best = min(range(len(part)), key=lambda place: part[place] / given[place] ** _BONUS)
        limit = 1 / (_EASY * self.k) if self.k else 0.0
        good = sorted({best, *(place for place, each in enumerate(part) if each <= limit)})
        return branches[max(good, key=lambda place: given[place])]

    def run(self, rows: Counted, noise: OneShotNoise) -> Outcome:
        """Estimate, choose and run."""
        noisy = self.estimate(rows, noise)
        branch = self.choose(noisy)
        if self.ranks is not None and branch.counting is not None and self._users(noisy).any():
            branch = self.choose_by_counts(noisy, self.ranks.estimate(rows, noise))
        found = branch.calibrated.run(rows, noise)
        if self.k:
            found = found.first(self.k)
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
        """Numbers of users by bin: those that do not stand out of their noise are added to the bin below.

        A bin stands out by itself, or with those above it that do not: most of these may be nothing but noise.
        """
        users, together, bins = np.zeros(len(noisy)), 0, 0
        for place in reversed(range(len(noisy))):
            alone = int(noisy[place])
            together, bins = together + alone, bins + 1
            if max(together / math.sqrt(bins), alone) >= _DISTINCT / self.epsilon:
                users[place], together, bins = together if together > 0 else alone, 0, 0
        return users

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
        costs = [
            branch.calibrated.cost + self.ranks.cost
            if self.ranks is not None and branch.counting is not None
            else branch.calibrated.cost
            for branch in self.branches
        ]
        return Calibrated(
            Cost(
                self.epsilon**2 / 2 + max(cost.rho for cost in costs),
                max(cost.delta for cost in costs),
                (epsilon, delta),
                loss=loss.pure(self.epsilon) + loss.either(cost.loss for cost in costs),
            ),
            delta,
            self.run,
            self.bins,
            divides=all(one.divides for one in each),
            needed=min(needed, default=None),
            needed_most=max(needed, default=None),
        )
