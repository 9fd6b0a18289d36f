"""The k most frequent of PUBLIC labels as one set, drawn at once.

A set S of k labels has the score u(S) = (the least count in S) - (the largest count outside S), and is drawn with
weight e^(epsilon u(S) / 2).  One user moves any number of counts by 1, all in one direction, so each of these two
counts moves by at most 1, in that direction, and u by at most 1.  Hence the draw is epsilon-bounded-range, which is
epsilon-DP and epsilon^2 / 8 -zCDP.  Users may hold any number of labels.

What tells S from the true set is counted twice: if the least count of the true set is c, and the largest outside is d,
then exchanging the two labels makes u smaller by 2 (c - d).  Their odds are e^(-epsilon (c - d)), as if all of epsilon
were spent on one comparison.  What k costs is the number of sets: if counts are nearly equal, those inside must be
about 2 k ln(labels / k) / epsilon above those outside.  So this is for small k.

The exponential mechanism: McSherry and Talwar 2007.  Drawing all k at once: Gillenwater, Joseph, Munoz Medina and
Ribero 2022, who draw sequences by a score that compares each rank with the true one.

By falling count, let `first` be the place of the first label outside S and `last` that of the last one inside.  Either
S is the true set, or first < last.  Then S has all before `first`, none after `last`, and any k - 1 - first of those
between.  So one of k * (labels - k) + 1 pairs is drawn, each of which stands for a number of sets of equal score.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.cost import Cost
from stream_dp.batch.gumbel_top_k import KnownTopK
from stream_dp.batch.result import Outcome
from stream_dp.privacy.one_shot_noise import OneShotNoise


@dataclass(frozen=True, slots=True)
class JointTopK(KnownTopK):
    """`epsilon` for the whole set, `bins` of the public list; k <= bins."""

    @property
    def slope(self) -> float:
        """By how much the logarithm of a set's weight grows with its score."""
        return self.epsilon / 2

    @property
    def cost(self) -> Cost:
        """That of one draw."""
        return KnownTopK(self.epsilon, self.bins, 1).cost


def joint_top_k(counts: NDArray[np.int64], parameters: JointTopK, noise: OneShotNoise) -> Outcome:
    """k bins, in the order of the list; `counts` is int64 of shape (bins,), distinct users per bin of a PUBLIC list."""
    parameters.check(counts)
    k = parameters.k
    falling = np.argsort(-counts, kind="stable")
    if k == parameters.bins:
        return Outcome(np.arange(k))
    held = counts[falling].astype(np.float64)
    best = parameters.slope * (held[k - 1] - held[k]) + noise.gumbel(1.0, 1)[0]
    first = last = k
    ends = np.arange(k, parameters.bins)
    sets = np.zeros(len(ends))  # the logarithm of how many have these two ends
    for wanted in range(k):
        outside = k - 1 - wanted
        if wanted:
            sets += np.log((ends - outside - 1) / wanted)
        weights = parameters.slope * (held[k:] - held[outside]) + sets + noise.gumbel(1.0, len(ends))
        largest = int(np.argmax(weights))
        if weights[largest] > best:
            best, first, last = weights[largest], outside, int(ends[largest])
    if first == k:
        return Outcome(np.sort(falling[:k]))
    between = falling[first + 1 : last]
    some = between[np.argsort(noise.gumbel(1.0, len(between)))[: k - 1 - first]]
    return Outcome(np.sort(np.concatenate([falling[:first], some, falling[last : last + 1]])))
