"""The laws of what one-shot mechanisms decide by Gumbel and Gaussian noise, as formulas over all outcomes.

The scores, scales and thresholds are those of the mechanisms' own parameters and of `head`; what stands here is how
such noise picks among them.  The tests of `stream_dp.batch` compare runs of the mechanisms with the same laws.
"""

import math
from collections import defaultdict
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from stream_dp.audit.enumerated import Law
from stream_dp.batch.cost import epsilon_per_pick
from stream_dp.batch.gumbel_top_k import GumbelTopK, KnownTopK, PayWhatYouGet
from stream_dp.batch.joint_top_k import JointTopK
from stream_dp.batch.label_votes import ArgmaxVotes, LabelVotes
from stream_dp.batch.largest_gap import GaussianGap, LargestGap, Ranks
from stream_dp.batch.ranking import Head, head
from stream_dp.batch.stable_top_k import GaussianStableTopK, StableFixedK, StableTopK

Counts = NDArray[np.int64]
Names = tuple[int, ...]
BOTTOM = -1
"""The mark that a mechanism found fewer labels than it was asked for."""

_GRID = np.linspace(-9.0, 9.0, 4001)


def picked(scores: dict[int, float], epsilon: float, k: int, last: int | None = BOTTOM) -> "Law[Names]":
    """The first k by noisy score with Gumbel noise of scale 1 / epsilon, in order, ended by `last` where that comes."""
    law: Law[Names] = {}

    def draw(before: Names, chance: float) -> None:
        left = {item: score for item, score in scores.items() if item not in before}
        if not left or len(before) == k:
            law[before] = chance
            return
        top = max(left.values())
        weights = {item: math.exp(epsilon * (score - top)) for item, score in left.items()}
        for item, weight in weights.items():
            now = chance * weight / sum(weights.values())
            if item == last:
                law[(*before, item)] = now
            else:
                draw((*before, item), now)

    draw((), 1.0)
    return law


def gumbel(counts: Counts, parameters: GumbelTopK) -> "Law[Names]":
    """What `gumbel_top_k` releases."""
    top = head(counts, parameters.kbar)
    scores = dict(zip(top.items.tolist(), top.counts.astype(float).tolist(), strict=True))
    return picked(scores | {BOTTOM: top.next_count + parameters.offset}, parameters.epsilon, parameters.k)


def known(counts: Counts, parameters: KnownTopK) -> "Law[Names]":
    """What `known_top_k` releases."""
    return picked(dict(enumerate(counts.astype(float).tolist())), parameters.epsilon, parameters.k)


def joint(counts: Counts, parameters: JointTopK) -> "Law[Names]":
    """What `joint_top_k` releases: every set has the weight of its own score, and is then put in order."""
    sets = list(combinations(range(len(counts)), parameters.k))
    outside = [np.delete(counts, items).max(initial=0) for items in sets]
    scores = [float(counts[list(items)].min() - most) for items, most in zip(sets, outside, strict=True)]
    weights = np.exp(parameters.together.epsilon / 2 * (np.array(scores) - max(scores)))
    law: Law[Names] = {}
    for items, weight in zip(sets, weights / weights.sum(), strict=True):
        scored = {item: float(counts[item]) for item in items}
        each = parameters.order.epsilon if parameters.k > 1 else 1.0
        law |= {order: weight * chance for order, chance in picked(scored, each, parameters.k).items()}
    return law


def two_queries(counts: Counts, budget: PayWhatYouGet, kbar: int) -> "Law[tuple[Names, Names]]":
    """What two queries of a pay-what-you-get budget release: the second takes all marks that the first has left."""
    law: Law[tuple[Names, Names]] = {}
    for first, chance in gumbel(counts, budget.query(budget.marks - 1, kbar)).items():
        after = PayWhatYouGet(budget.epsilon, budget.threshold_delta, budget.marks - len(first), 1)
        if not after.marks:
            law[first, ()] = chance
            continue
        for second, then in gumbel(counts, after.query(after.marks, kbar)).items():
            law[first, second] = chance * then
    return law


def gap(counts: Counts, parameters: LargestGap) -> "Law[int]":
    """The rank that `largest_gap` releases."""
    ranks = parameters.ranks
    return _by_gumbel(head(counts, ranks.kbar).gaps(ranks.kbar), ranks, 2 / parameters.epsilon)


def gaussian_gap(counts: Counts, parameters: GaussianGap) -> "Law[int]":
    """The rank that `largest_gap_gaussian` releases."""
    ranks = parameters.ranks
    return _by_gaussian(head(counts, ranks.kbar).gaps(ranks.kbar), ranks, parameters.sigma)


def stable(counts: Counts, parameters: StableTopK | GaussianStableTopK) -> "Law[Names]":
    """The set that `stable_top_k` releases, or the mark."""
    found = defaultdict[Names, float](float)
    for items, chance in _sets(head(counts, parameters.ranks.kbar), parameters).items():
        found[(BOTTOM,) if items is None else items] += chance
    return dict(found)


def stable_fixed_k(counts: Counts, parameters: StableFixedK) -> "Law[Names]":
    """What `stable_fixed_k` releases: a stable set, and what completes it or is chosen from it."""
    k, kbar = parameters.k, parameters.kbar
    found = defaultdict[Names, float](float)
    for items, chance in _sets(head(counts, kbar), parameters.stable).items():
        released = items or ()
        if len(released) == k:
            found[released] += chance
        elif len(released) > k:
            scores = {item: float(counts[item]) for item in released}
            for names, then in picked(scores, epsilon_per_pick(parameters.rho / 2, k), k).items():
                found[names] += chance * then
        else:
            missing = k - len(released)
            remaining = counts.copy()
            remaining[list(released)] = 0
            epsilon = epsilon_per_pick(parameters.rho / 2, missing)
            rest = GumbelTopK(epsilon, parameters.delta / 2, missing, kbar - len(released))
            for names, then in gumbel(remaining, rest).items():
                found[released + names] += chance * then
    return dict(found)


def votes(tallies: NDArray[np.int64], parameters: LabelVotes) -> "Law[tuple[Names, ...]]":
    """What `label_votes` releases of all queries together."""
    law: Law[tuple[Names, ...]] = {(): 1.0}
    for row in tallies:
        one = stable(row, parameters.query)
        law = {(*past, now): before * then for past, before in law.items() for now, then in one.items()}
    return law


def argmax_votes(tallies: NDArray[np.int64], parameters: ArgmaxVotes) -> "Law[tuple[Names, ...]]":
    """What `argmax_votes` releases of all queries together."""
    law: Law[tuple[Names, ...]] = {(): 1.0}
    for row in tallies:
        one = known(row, parameters.query)
        law = {(*past, now): before * then for past, before in law.items() for now, then in one.items()}
    return law


def _by_gumbel(gaps: Counts, ranks: Ranks, scale: float) -> "Law[int]":
    """The rank of the largest score with Gumbel noise."""
    scores = ranks.scores(gaps)
    weights = np.exp((scores - scores.max()) / scale)
    return {place + ranks.least: float(weight) for place, weight in enumerate(weights / weights.sum())}


def _by_gaussian(gaps: Counts, ranks: Ranks, sigma: float) -> "Law[int]":
    """The rank of the largest score with Gaussian noise: the integral over the noise of the largest."""
    scores = ranks.scores(gaps)
    density = np.exp(-(_GRID**2) / 2) / math.sqrt(2 * math.pi)
    law: Law[int] = {}
    for place, each in enumerate(scores):
        others = np.delete(scores, place)
        below = np.prod(ndtr(_GRID[:, None] + (each - others) / sigma), axis=1)
        law[place + ranks.least] = float(np.trapezoid(density * below, _GRID))
    return law


def _sets(top: Head, parameters: StableTopK | GaussianStableTopK) -> "Law[Names | None]":
    """The set that passes the test of its gap, None where none does."""
    gaps = top.gaps(parameters.ranks.kbar)
    by = _by_gumbel if isinstance(parameters, StableTopK) else _by_gaussian
    test = parameters.test
    found = defaultdict["Names | None", float](float)
    for k, chance in by(gaps, parameters.ranks, parameters.scale).items():
        margin = max(test.step, int(gaps[k - 1])) - test.offset - test.step
        passes = float(ndtr(margin / test.sigma))
        found[tuple(sorted(top.items[:k].tolist()))] += chance * passes
        found[None] += chance * (1 - passes)
    return dict(found)
