"""Neighbouring histograms for the one-shot histograms: a count that everybody sees, and one that nobody should."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.audit.bounds import Views
from stream_dp.audit.examine import LARGER, Pair
from stream_dp.audit.one_shot_replicas import disjoint_counts, one_by_one, per_replica
from stream_dp.batch.histogram import (
    GaussianHistogram,
    LaplaceHistogram,
    gaussian_histogram,
    laplace_histogram,
)
from stream_dp.batch.known_domain import KnownHistogram, SparseVector, known_histogram, sparse_vector
from stream_dp.batch.result import Outcome
from stream_dp.privacy.one_shot_noise import OneShotNoise

_AT_ONCE = 1 << 15
_HIDDEN = -(1 << 30)


def pairs() -> list[Pair]:
    """All of them."""
    return [*_unknown_domain(), *_known_domain()]


def _unknown_domain() -> list[Pair]:
    found = []
    for name, run, kind in (
        ("laplace-histogram", laplace_histogram, LaplaceHistogram),
        ("gaussian-histogram", gaussian_histogram, GaussianHistogram),
    ):
        one, two = kind(1.0, 0.01, 1), kind(1.0, 0.01, 2)
        claim = one.cost.epsilon_at(0.02), 0.02
        both = two.cost.epsilon_at(0.02), 0.02
        found += [
            tiled(name, "one more user of an item of many", claim, run, one, [20], [21]),
            tiled(name, "an item that only one user holds", claim, run, one, [0], [1]),
            tiled(name, "one user of one common and one new item", both, run, two, [9, 0], [10, 1]),
        ]
    return found


def _known_domain() -> list[Pair]:
    plain, filtered = (KnownHistogram(1.0, _AT_ONCE, 1, eta) for eta in (0.0, 0.2))
    search = SparseVector(2.0, 4, 3, 1)
    return [
        tiled("known-histogram", "one more user of a bin", (1.0, 0.0), known_histogram, plain, [3], [4]),
        tiled("known-histogram", "a bin beside the filter", (1.0, 0.0), known_histogram, filtered, [1], [2]),
        _sparse("a user of all bins", search, [0, 2, 2, 1], [1, 3, 3, 2]),
        _sparse("a user of one bin", search, [2, 2, 2, 2], [2, 3, 2, 2]),
    ]


def tiled(
    mechanism: str,
    name: str,
    claim: tuple[float, float],
    run: Callable[[NDArray[np.int64], Any, OneShotNoise], Outcome],
    parameters: Any,
    smaller: Sequence[int],
    larger: Sequence[int],
    runs: int = 8 * _AT_ONCE,
) -> Pair:
    """A pair whose replicas are items side by side; always whole blocks, for a list of public bins has one length."""

    def sample(side: int, wanted: int, key: bytes) -> Views:
        counts = larger if side == LARGER else smaller
        size = _AT_ONCE // len(counts)
        noise = OneShotNoise(key)
        blocks = []
        for _ in range(0, wanted, size):
            shown, noisy = per_replica(
                run(disjoint_counts(counts, size), parameters, noise), len(counts), size
            )
            blocks.append(np.where(shown, noisy, _HIDDEN))
        return _views(np.concatenate(blocks)[:wanted])

    return Pair(mechanism, name, *claim, sample, runs)


def _views(released: NDArray[np.int64]) -> Views:
    shown = released != _HIDDEN
    counts = np.where(shown, released, 0)
    views = {f"count of item {i}": released[:, i] for i in range(released.shape[1])}
    return {**views, "items shown": shown.sum(axis=1), "sum of counts": counts.sum(axis=1)}


def _sparse(name: str, parameters: SparseVector, smaller: Sequence[int], larger: Sequence[int]) -> Pair:
    def sample(side: int, wanted: int, key: bytes) -> Views:
        counts = np.array(larger if side == LARGER else smaller)

        def run(noise: OneShotNoise) -> list[int]:
            result = sparse_vector(counts, parameters, noise)
            assert result.counts is not None
            return [*result.items, *result.counts] if len(result.items) else [-1, 0]

        found, noisy = one_by_one(run, wanted, key).T
        return {"bin": found, "count": noisy, "bin and count": found * 64 + np.clip(noisy, -32, 31)}

    return Pair("sparse-vector", name, parameters.epsilon, 0.0, sample, 40_000)
