"""Neighbouring histograms for top-k and for what rests on gaps between sorted counts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.audit.bounds import Views
from stream_dp.audit.examine import LARGER, Pair
from stream_dp.audit.one_shot_replicas import one_by_one
from stream_dp.batch.gumbel_top_k import (
    GumbelTopK,
    KnownTopK,
    PayWhatYouGet,
    gumbel_top_k,
    known_top_k,
    pay_what_you_get,
)
from stream_dp.batch.joint_top_k import JointTopK, joint_top_k
from stream_dp.batch.label_votes import LabelVotes, Unit, label_votes
from stream_dp.batch.largest_gap import GaussianGap, LargestGap, Ranks, largest_gap, largest_gap_gaussian
from stream_dp.batch.ptr_top_k import GaussianPtr, LaplacePtr, ptr_top_k
from stream_dp.batch.result import Outcome
from stream_dp.batch.stable_top_k import StableFixedK, StableTopK, stable_fixed_k, stable_top_k
from stream_dp.batch.top_k import GaussianTopK, LaplaceTopK, gaussian_top_k, laplace_top_k
from stream_dp.privacy.one_shot_noise import OneShotNoise

Counts = Sequence[int]
Run = Callable[[NDArray[np.int64], OneShotNoise], Sequence[int]]
"""One run on a histogram: a fixed number of integers that say all of its outcome."""

DELTA = 0.01
_RUNS = 24_000


def pairs() -> list[Pair]:
    """All of them."""
    return [*_counted(), *_gumbel(), *_gaps(), *_stable(), *_votes()]


def _counted() -> list[Pair]:
    found = []
    for name, run, kind in (
        ("laplace-top-k", laplace_top_k, LaplaceTopK),
        ("gaussian-top-k", gaussian_top_k, GaussianTopK),
    ):
        lone, head, tie = kind(1.0, DELTA, 1, 1), kind(1.0, DELTA, 1, 2), kind(1.0, DELTA, 2, 2)
        found += [
            counted(name, "an item that only one user holds", run, lone, [0], [1]),
            counted(name, "one more user of the first item", run, head, [15, 6, 0], [16, 6, 0]),
            counted(name, "a user who changes which items are looked at", run, tie, [3, 3, 3, 3], [3, 3, 4, 4]),
        ]  # fmt: skip
    return found


def counted(mechanism: str, name: str, run: Any, parameters: Any, smaller: Counts, larger: Counts) -> Pair:
    """A pair of a top-k with counts, at its own delta where a guarantee by itself is known, else at twice that."""
    delta = DELTA if parameters.cost.alone else 2 * DELTA
    claim = parameters.cost.epsilon_at(delta), delta

    def outcome(counts: NDArray[np.int64], noise: OneShotNoise) -> list[int]:
        result = run(counts, parameters, noise)
        total = int(result.counts.sum())
        return [
            ordered(result),
            len(result.items),
            total,
            int(result.counts[0]) if len(result.items) else -99,
        ]

    views = ("items in order", "items shown", "sum of counts", "first count")
    return single(mechanism, name, claim, outcome, views, smaller, larger)


def _gumbel() -> list[Pair]:
    everybody = [6, 6, 0], [7, 7, 0]
    one_item = [7, 3, 0], [8, 3, 0]
    two = GumbelTopK(1.0, DELTA, 2, 3)
    budget = PayWhatYouGet(1.0, DELTA, 2, 2)
    known, at_once = KnownTopK(1.0, 3, 2), JointTopK(1.0, 3, 2)

    def top(counts: NDArray[np.int64], noise: OneShotNoise) -> list[int]:
        return [ordered(gumbel_top_k(counts, two, noise))]

    def twice(counts: NDArray[np.int64], noise: OneShotNoise) -> list[int]:
        first, left = pay_what_you_get(counts, budget, 1, 2, noise)
        second, _ = pay_what_you_get(counts, left, 1, 2, noise)
        return [ordered(first) * 1000 + ordered(second)]

    return [
        single("gumbel-top-k", "a user of all items", claimed(two.cost), top, ("items in order",), *everybody),
        single("gumbel-top-k", "one more user of the first item", claimed(two.cost), top, ("items in order",),
               *one_item),
        single("gumbel-top-k", "an item that only one user holds", claimed(two.cost), top, ("items in order",),
               [0, 0], [1, 0]),
        single("known-top-k", "one more user of the first bin", claimed(known.cost),
               lambda counts, noise: [ordered(known_top_k(counts, known, noise))], ("bins in order",), *one_item),
        single("joint-top-k", "one more user of the first bin", claimed(at_once.cost),
               lambda counts, noise: [ordered(joint_top_k(counts, at_once, noise))], ("bins in order",), *one_item),
        single("pay-what-you-get", "two queries, a user of all items", claimed(budget.cost), twice,
               ("both answers",), *everybody),
    ]  # fmt: skip


def _gaps() -> list[Pair]:
    falling = [6, 4, 2, 0], [7, 4, 3, 0]  # one gap grows by 1, the next falls by 1, the third grows by 1
    parameters, gaussian = LargestGap(1.0, Ranks(3)), GaussianGap(2.0, DELTA, Ranks(3))
    return [
        single("largest-gap", "gaps that move apart", claimed(parameters.cost),
               lambda counts, noise: [largest_gap(counts, parameters, noise).rank], ("rank",), *falling),
        single("largest-gap-gaussian", "gaps that move apart", claimed(gaussian.cost),
               lambda counts, noise: [largest_gap_gaussian(counts, gaussian, noise).rank], ("rank",), *falling,
               runs=16_000),
    ]  # fmt: skip


def _stable() -> list[Pair]:
    adaptive, fixed = StableTopK(1.0, DELTA, Ranks(2)), StableFixedK(1.0, DELTA, 1, 2)
    laplace, gaussian = LaplacePtr(1.0, DELTA, 1), GaussianPtr(1.0, DELTA, 1)

    def set_of(counts: NDArray[np.int64], noise: OneShotNoise) -> list[int]:
        return [unordered(stable_top_k(counts, adaptive, noise))]

    def k_of(counts: NDArray[np.int64], noise: OneShotNoise) -> list[int]:
        return [ordered(stable_fixed_k(counts, fixed, noise))]

    def tested(parameters: LaplacePtr | GaussianPtr) -> Run:
        return lambda counts, noise: [ordered(ptr_top_k(counts, parameters, noise))]

    situations = (
        ("a gap that grows from 1", [4, 3, 0], [5, 3, 0]),
        ("a gap that grows from 2", [5, 3, 0], [6, 3, 0]),
        ("an item that only one user holds", [0, 0], [1, 0]),
        ("a user who changes the order", [3, 3], [3, 4]),
    )
    return [
        single(mechanism, name + noise, claimed(cost), run, ("items",), smaller, larger, runs)
        for mechanism, noise, cost, run, runs in (
            ("stable-top-k", "", adaptive.cost, set_of, _RUNS),
            ("stable-fixed-k", "", fixed.cost, k_of, 16_000),
            ("ptr-top-k", ", Laplace noise", laplace.cost, tested(laplace), 16_000),
            ("ptr-top-k", ", Gaussian noise", gaussian.cost, tested(gaussian), 16_000),
        )
        for name, smaller, larger in situations
    ]


def _votes() -> list[Pair]:
    found = []
    cases: list[tuple[Unit, Counts, Counts]] = [
        ("teacher", [6, 2, 0], [7, 2, 0]),
        ("record", [4, 3, 0], [5, 2, 0]),
    ]
    for unit, smaller, larger in cases:
        parameters = LabelVotes(0.5, DELTA / 2, 2, 2, unit)

        def both(
            counts: NDArray[np.int64], noise: OneShotNoise, parameters: LabelVotes = parameters
        ) -> list[int]:
            answers = label_votes(np.array([counts, counts]), parameters, noise).answers
            return [1000 * unordered(answers[0]) + unordered(answers[1])]

        found.append(
            single("label-votes", f"one {unit}, two queries", claimed(parameters.cost), both, ("both sets",),
                   smaller, larger)
        )  # fmt: skip
    return found


def claimed(cost: Any) -> tuple[float, float]:
    """What a mechanism of this cost claims: at its own delta where possible, else at twice that."""
    delta = cost.alone[1] if cost.alone else 2 * cost.delta
    return cost.epsilon_at(delta), delta


def single(
    mechanism: str, name: str, claim: tuple[float, float], run: Run, views: Sequence[str],
    smaller: Counts, larger: Counts, runs: int = _RUNS,
) -> Pair:  # fmt: skip
    """A pair whose runs are single ones; `run` returns one integer for each of `views`."""

    def sample(side: int, wanted: int, key: bytes) -> Views:
        counts = np.array(larger if side == LARGER else smaller, np.int64)
        outcomes = one_by_one(lambda noise: run(counts, noise), wanted, key)
        return dict(zip(views, outcomes.T, strict=True))

    return Pair(mechanism, name, *claim, sample, runs)


def ordered(result: Outcome) -> int:
    """The items in their order, as one number: at most 8 items; the bottom mark is 9."""
    marks = [int(item) + 1 for item in result.items] + [9] * result.bottom
    return sum(mark * 10**place for place, mark in enumerate(marks))


def unordered(result: Outcome) -> int:
    """The set of items, bit by bit."""
    return sum(1 << int(item) for item in result.items)
