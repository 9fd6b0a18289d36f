"""Real counters under thresholds of a test's own, so low that labels reach them and fall behind within a few rounds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.protocol import Counter, EpochParameters, Hits, RunningCounter
from stream_dp.counters.registry import DISCRETE
from stream_dp.engine.histogram import RunningHistogram
from stream_dp.privacy.keyed_noise import KeyedNoise

KEY, STREAM, NONCE = bytes(range(32)), "crafted", bytes(16)
LABELS = [f"label {i}" for i in range(12)]
HORIZON = 63
Releases = dict[int, dict[str, int]]
NONE = np.empty(0, np.int64)
NO_HITS = Hits(NONE, NONE)


def noise() -> KeyedNoise:
    return KeyedNoise(KEY, STREAM, NONCE)


class Crafted(RunningCounter, frozen=True):
    """A real counter under thresholds of the test's own, low enough that labels come into reach and fall behind."""

    real: Any
    base: int

    @property
    def rho(self) -> float:
        return float(self.real.rho)

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        return (self.base + rounds % 3).astype(np.int32)

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.real.sds(rounds)

    def counter(self, noise: KeyedNoise) -> Counter:
        return self.real.counter(noise)


SIGMA_SQUARED = {"binary": 1.0}


def mechanism(name: str, tau: int = 9) -> Crafted:
    if name == "blt":
        return Crafted(HORIZON, 4, BltMechanism.of(EpochParameters(HORIZON, 4, 0.01), 5.0), tau)
    return Crafted(HORIZON, 4, DISCRETE[name].of(EpochParameters(HORIZON, 4, 0.01), SIGMA_SQUARED[name]), tau)


def releases(
    histogram: RunningHistogram, rounds: Sequence[Sequence[str]], cuts: Sequence[int] = ()
) -> Releases:
    found: Releases = {}
    for start, end in zip([0, *cuts], [*cuts, len(rounds)], strict=True):
        for snapshot in histogram.observe(rounds[start:end]):
            found[snapshot.round] = dict(zip(snapshot.labels.tolist(), snapshot.counts.tolist(), strict=True))
    return found
