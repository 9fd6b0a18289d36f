"""Noisy counts of whole public logs in arrays: the law of the true counters' noise, drawn without keys, so fast."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from stream_dp.counters.binary import BinaryMechanism
from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.blt_parameters import output_weights
from stream_dp.counters.registry import Mechanism

_CELLS_AT_ONCE = 4_000_000


class Paths(NamedTuple):
    """Labels that were shown: `first` is the round, from 1, that showed each first; `true` and `noisy` are its counts
    after every round, shape (labels, rounds).
    """

    first: NDArray[np.int64]
    true: NDArray[np.int32]
    noisy: NDArray[np.int32]


def noise_paths(
    mechanism: Mechanism, rounds: int, labels: int, random: np.random.Generator
) -> NDArray[np.float32]:
    """The noise of so many labels' counts after each of the first `rounds` rounds, shape (labels, rounds)."""
    if isinstance(mechanism, BltMechanism):
        draws = mechanism.draw_sd * random.standard_normal((labels, rounds))
        return blt_noise(mechanism, draws).astype(np.float32)
    assert isinstance(mechanism, BinaryMechanism)
    sd = np.float32(np.sqrt(mechanism.sigma_squared))
    numbers = np.arange(1, rounds + 1)
    parents, depths = numbers & (numbers - 1), np.bitwise_count(numbers)
    noise = np.zeros((labels, rounds + 1), np.float32)
    noise[:, 1:] = np.rint(sd * random.standard_normal((labels, rounds), np.float32))
    for depth in range(2, int(depths.max()) + 1):
        nodes = numbers[depths == depth]
        noise[:, nodes] += noise[:, parents[nodes - 1]]
    return noise[:, 1:]


def blt_noise(mechanism: BltMechanism, draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """The noise of counts whose labels have these draws, both of shape (labels, rounds)."""
    weights = zip(output_weights(mechanism.gaps), mechanism.gaps.poles, strict=True)
    return np.rint(
        sum(float(weight) * lfilter([1.0], [1.0, gap - 1], draws, axis=1) for weight, gap in weights)
    )


def true_hits(hits: list[NDArray[np.int64]], rounds: int) -> NDArray[np.int32]:
    """How often each label comes in each round, shape (labels, rounds)."""
    found = np.zeros((len(hits), rounds), np.int32)
    for row, each in zip(found, hits, strict=True):
        np.add.at(row, each - 1, 1)
    return found


def shown_paths(
    mechanism: Mechanism, hits: list[NDArray[np.int64]], rounds: int, seed: int = 1
) -> Iterator[Paths]:
    """The labels that the mechanism shows, some at a time; `hits` holds the rounds that each label's items came in."""
    random = np.random.default_rng(seed)
    numbers = np.arange(1, rounds + 1)
    taus = mechanism.taus(numbers)
    step = max(1, _CELLS_AT_ONCE // rounds)
    for start in range(0, len(hits), step):
        true = np.cumsum(true_hits(hits[start : start + step], rounds), axis=1, dtype=np.int32)
        noisy = true + noise_paths(mechanism, rounds, len(true), random).astype(np.int32)
        reaches = (noisy >= taus) & (true > 0)
        shown = reaches.any(axis=1)
        yield Paths(1 + reaches[shown].argmax(axis=1), true[shown], noisy[shown])
