"""Top-k labels without counts over an unknown domain, for users who may hold any number of items.

`gumbel_top_k`: Gumbel noise on the kbar largest counts of DISTINCT users and on a threshold above the (kbar + 1)-th;
at most k labels above it, in noisy order, and a bottom mark when there are fewer than k.
threshold_delta-approximate (k * epsilon^2 / 8)-zCDP for adding or removing one user, and (k * epsilon, d)-DP.
Sources: Durfee and Rogers, poster "Task: Top-k", Algorithm 2; Rogers, "A Unifying Privacy Analysis Framework for
Unknown Domain Algorithms in Differential Privacy" (the survey), Algorithm 3 and Theorem 9. Corrected: the poster's
offset ln(kbar/d) lacks the 1/epsilon.

`pay_what_you_get`: many such queries, chosen one after the other, of which only what is returned is paid: a budget of
`marks` (returned labels and bottom marks) and of `queries`. All queries together are
(queries * d)-approximate (marks * epsilon^2 / 8)-zCDP. Source: survey Algorithm 4 and Theorem 10.

`known_top_k`: k labels of a PUBLIC list, whatever the counts, so without threshold, mark or delta.
k * epsilon^2 / 8 -zCDP and (k * epsilon)-DP. One user moves any number of counts by 1, all in one direction, so the
score of one bin moves against another's by at most 1, and each pick, the exponential mechanism on the bins that are
left with weights e^(epsilon * count), is epsilon-bounded-range. Durfee and Rogers 2019, Lemma 4.2: adding Gumbel noise
once is the same as picking k times.

A Gumbel draw decides an order and is never released; what its precision means for ties stands in `one_shot_noise.py`.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.cost import Cost, require_count, require_delta, require_positive
from stream_dp.batch.ranking import head
from stream_dp.batch.result import Outcome
from stream_dp.privacy import loss
from stream_dp.privacy.one_shot_noise import OneShotNoise


@dataclass(frozen=True, slots=True)
class GumbelTopK:
    """`epsilon` per returned mark; k <= kbar."""

    epsilon: float
    threshold_delta: float
    k: int
    kbar: int

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        require_delta("threshold_delta", self.threshold_delta)
        require_count("k", self.k)
        require_count("kbar", self.kbar)
        if self.k > self.kbar:
            raise ValueError(f"k = {self.k} asks for more than the kbar = {self.kbar} items: raise kbar.")

    @property
    def cost(self) -> Cost:
        return _marks(self.k, self.epsilon, self.threshold_delta)

    @property
    def offset(self) -> float:
        return gumbel_offset(self.epsilon, self.threshold_delta, self.kbar)

    @property
    def sd(self) -> float:
        """Of the noise that decides the order."""
        return math.pi / math.sqrt(6) / self.epsilon

    @property
    def needed(self) -> float:
        """How far above the (kbar + 1)-th count an item is above the mark in 95% of cases: their noise is logistic."""
        return self.offset + math.log(19) / self.epsilon


def gumbel_top_k(counts: NDArray[np.int64], parameters: GumbelTopK, noise: OneShotNoise) -> Outcome:
    """At most k items in noisy order; `counts` is int64 of shape (items,), distinct users per item."""
    top = head(counts, parameters.kbar)
    draws = noise.gumbel(1 / parameters.epsilon, len(top.items) + 1)
    noisy = top.counts + draws[:-1]
    passed = np.flatnonzero(noisy > top.next_count + parameters.offset + draws[-1])
    ranked = passed[np.argsort(-noisy[passed], kind="stable")][: parameters.k]
    return Outcome(top.items[ranked], bottom=len(ranked) < parameters.k)


@dataclass(frozen=True, slots=True)
class KnownTopK:
    """`epsilon` per returned label, `bins` of the public list; k <= bins."""

    epsilon: float
    bins: int
    k: int

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        require_count("bins", self.bins)
        require_count("k", self.k)
        if self.k > self.bins:
            raise ValueError(f"k = {self.k} asks for more than the {self.bins} bins: lower k.")

    @property
    def cost(self) -> Cost:
        return _marks(self.k, self.epsilon, 0.0)

    def check(self, counts: NDArray[np.int64]) -> None:
        """Raises ValueError unless there is one count for each bin."""
        if counts.shape != (self.bins,):
            raise ValueError(f"this mechanism needs one count for each of the {self.bins} public bins.")


def known_top_k(counts: NDArray[np.int64], parameters: KnownTopK, noise: OneShotNoise) -> Outcome:
    """k bins in noisy order; `counts` is int64 of shape (bins,), distinct users per bin of a PUBLIC list."""
    parameters.check(counts)
    noisy = counts + noise.gumbel(1 / parameters.epsilon, len(counts))
    return Outcome(np.argsort(-noisy, kind="stable")[: parameters.k])


def gumbel_offset(epsilon: float, threshold_delta: float, kbar: int) -> float:
    """1 + ln(kbar / d) / epsilon: how far the threshold lies above the (kbar + 1)-th count."""
    return 1 + math.log(kbar / threshold_delta) / epsilon


def _marks(marks: int, epsilon: float, delta: float) -> Cost:
    """`marks` draws of the exponential mechanism, each epsilon-bounded-range (Cesar and Rogers 2021)."""
    return Cost(
        marks * epsilon**2 / 8, delta, (marks * epsilon, delta), loss=loss.bounded_range(epsilon, marks)
    )


@dataclass(frozen=True, slots=True)
class PayWhatYouGet:
    """What is left of a budget: `marks` that may still be returned, `queries` that may still be asked."""

    epsilon: float
    threshold_delta: float
    marks: int
    queries: int

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        require_delta("threshold_delta", self.threshold_delta)
        if self.marks < 0 or self.queries < 0:
            raise ValueError("marks and queries of a pay-what-you-get budget must not be below 0.")

    @property
    def cost(self) -> Cost:
        """What opening a budget of this size costs, once; the queries themselves then cost nothing more."""
        cost = _marks(self.marks, self.epsilon, self.queries * self.threshold_delta)
        return replace(cost, loss=loss.interactive_bounded_range(self.epsilon, self.marks))

    def query(self, k: int, kbar: int) -> GumbelTopK:
        """The next query; raises ValueError, from public numbers only, where the budget does not allow it."""
        if not self.queries:
            raise ValueError("the pay-what-you-get budget has no queries left: open a new one.")
        if k > self.marks:
            raise ValueError(
                f"the pay-what-you-get budget has {self.marks} marks left: ask for k = {self.marks} or fewer"
                " items, or open a new budget."
            )
        return GumbelTopK(self.epsilon, self.threshold_delta, k, kbar)


def pay_what_you_get(
    counts: NDArray[np.int64], budget: PayWhatYouGet, k: int, kbar: int, noise: OneShotNoise
) -> tuple[Outcome, PayWhatYouGet]:
    """One query of a budget, and what is left of it."""
    result = gumbel_top_k(counts, budget.query(k, kbar), noise)
    marks = len(result.items) + result.bottom
    return result, replace(budget, marks=budget.marks - marks, queries=budget.queries - 1)
