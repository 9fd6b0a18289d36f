"""The k most frequent of PUBLIC labels: first which they are, drawn at once, then their order.

A set S of k labels has the score u(S) = (the least count in S) - (the largest count outside S), and is drawn with
weight e^(e u(S) / 2).  One user moves any number of counts by 1, all in one direction, so each of these two counts
moves by at most 1, in that direction, and u by at most 1.  Hence the draw is e-bounded-range, which is e-DP and
e^2 / 8 -zCDP.  Users may hold any number of labels.  The order takes k - 1 picks of `known_top_k` among the labels of
the set, with what is left of epsilon: the last label has no place to choose.

What tells S from the true set is counted twice: if the least count of the true set is c, and the largest outside is d,
then exchanging the two labels makes u smaller by 2 (c - d).  Their odds are e^(-e (c - d)), as if all of e were spent
on one comparison.  What k costs is the number of sets: if counts are nearly equal, those inside must be about
2 k ln(labels / k) / e above those outside.  So this is for small k.

The exponential mechanism: McSherry and Talwar 2007.  Drawing all k at once: Gillenwater, Joseph, Munoz Medina and
Ribero 2022, who draw sequences by a score that compares each rank with the true one.

By falling count, let `first` be the place of the first label outside S and `last` that of the last one inside.  Either
S is the true set, or first < last.  Then S has all before `first`, none after `last`, and any k - 1 - first of those
between.  So one of k * (labels - k) + 1 pairs is drawn, each of which stands for a number of sets of equal score.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.cost import Cost
from stream_dp.batch.gumbel_top_k import KnownTopK, known_top_k
from stream_dp.batch.result import Outcome
from stream_dp.privacy.one_shot_noise import OneShotNoise

_ORDER = 0.1
"""The share of epsilon that the order gets."""


@dataclass(frozen=True, slots=True)
class JointTopK(KnownTopK):
    """`epsilon` for the set and its order together, `bins` of the public list; k <= bins."""

    @property
    def together(self) -> KnownTopK:
        """What drawing the set costs: as much as one pick."""
        return KnownTopK(self.epsilon if self.k == 1 else (1 - _ORDER) * self.epsilon, self.bins, 1)

    @property
    def order(self) -> KnownTopK:
        """The picks among the k labels of the set, for k above 1."""
        return KnownTopK(_ORDER * self.epsilon / (self.k - 1), self.k, self.k - 1)

    @property
    def cost(self) -> Cost:
        if self.k == 1:
            return self.together.cost
        return replace(self.together.cost + self.order.cost, alone=(self.epsilon, 0.0))


def joint_top_k(counts: NDArray[np.int64], parameters: JointTopK, noise: OneShotNoise) -> Outcome:
    """k bins in noisy order; `counts` is int64 of shape (bins,), distinct users per bin of a PUBLIC list."""
    parameters.check(counts)
    drawn = np.sort(_draw(counts, parameters.k, parameters.together.epsilon / 2, noise))
    if parameters.k == 1:
        return Outcome(drawn)
    first = known_top_k(counts[drawn], parameters.order, noise).items
    return Outcome(drawn[np.concatenate([first, np.delete(np.arange(parameters.k), first)])])


def _draw(counts: NDArray[np.int64], k: int, slope: float, noise: OneShotNoise) -> NDArray[np.int64]:
    """A set of k bins; the logarithm of its weight is `slope` times its score."""
    falling = np.argsort(-counts, kind="stable")
    if k == len(counts):
        return falling
    held = counts[falling].astype(np.float64)
    best = slope * (held[k - 1] - held[k]) + noise.gumbel(1.0, 1)[0]
    first = last = k
    ends = np.arange(k, len(counts))
    sets = np.zeros(len(ends))  # the logarithm of how many have these two ends
    for wanted in range(k):
        outside = k - 1 - wanted
        if wanted:
            sets += np.log((ends - outside - 1) / wanted)
        weights = slope * (held[k:] - held[outside]) + sets + noise.gumbel(1.0, len(ends))
        largest = int(np.argmax(weights))
        if weights[largest] > best:
            best, first, last = weights[largest], outside, int(ends[largest])
    if first == k:
        return falling[:k]
    between = falling[first + 1 : last]
    some = between[np.argsort(noise.gumbel(1.0, len(between)))[: k - 1 - first]]
    return np.concatenate([falling[:first], some, falling[last : last + 1]])
