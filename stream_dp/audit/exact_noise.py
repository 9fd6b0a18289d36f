"""Every outcome of the noise of one label on a small horizon, and how likely each is.

`binary` adds up whole draws: every combination of the draws that matter to the label is one outcome, and the real
counter makes noise of it.  `blt` rounds sums of real numbers: an outcome is what it rounds to in
every round, and its probability the integral of the Gaussian density over a unit cube, by Gauss-Legendre quadrature.
There the counter is left out, and everything after it is the real program.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt import BltMechanism
from stream_dp.counters.blt_parameters import output_weights
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.protocol import CalibratedCounter, CounterState, Hits
from stream_dp.engine.label_texts import cut
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY

REACH = 7.0
"""Standard deviations of one draw, or of one round's noise, that are enumerated: beyond lies less than 1e-11."""

_QUADRATURE_NODES = 6

Draw = tuple[int, int]
"""A round and a lane."""


class EnumeratedNoise:
    """Stands in for `KeyedNoise`: the i-th label's draws are `outcomes[i]`, those of `draws` in order, all others 0."""

    def __init__(self, outcomes: NDArray[np.int32], draws: Sequence[Draw]) -> None:
        self.outcomes = np.concatenate([outcomes, np.zeros((len(outcomes), 1), np.int32)], axis=1)
        self._places = {draw: place for place, draw in enumerate(draws)}

    def label_ids(self, labels: Sequence[bytes]) -> NDArray[np.uint64]:
        """A label's number is its identity."""
        numbers = np.array([int(label) for label in labels], np.uint64)
        return np.stack([numbers, numbers], axis=1)

    def packed_label_ids(self, text: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.uint64]:
        """See `KeyedNoise.packed_label_ids`."""
        return self.label_ids(cut(text, ends))

    def tweaks(self, places: Iterable[tuple[int, int, bytes]]) -> list[bytes]:
        """Where each draw stands in an outcome; the last place for one that does not matter."""
        last = self.outcomes.shape[1] - 1
        return [self._places.get((number, lane), last).to_bytes(16, "big") for number, lane, _ in places]

    def extend_histories(self, history: bytes, first: int, rounds: Sequence[Sequence[str]]) -> list[bytes]:
        """Nothing here depends on them."""
        return [EMPTY_HISTORY] * len(rounds)

    def draw(self, gaussian: object, ids: NDArray[np.uint64], tweaks: Sequence[bytes]) -> NDArray[np.int32]:
        """See `KeyedNoise.draw`."""
        places = np.array([int.from_bytes(tweak, "big") for tweak in tweaks], np.int64)
        return self.outcomes[ids[:, 0]][:, places].T.copy()


def enumerated(
    mechanism: CalibratedCounter, start: int | None
) -> tuple[CalibratedCounter, EnumeratedNoise, NDArray[np.float64]]:
    """The mechanism to run, its noise with a label for each outcome, and their probabilities, shape (labels,).

    `start`: the round that admits the label first, 0 for a label that is known before, None for one that never comes.
    """
    if start is None:
        return mechanism, EnumeratedNoise(np.empty((0, 0), np.int32), ()), np.empty(0)
    if isinstance(mechanism, BltMechanism):
        outcomes, probabilities = noise_of_rounds(mechanism)
        return _without_counter(mechanism), EnumeratedNoise(outcomes, ()), probabilities
    assert isinstance(mechanism, DiscreteCounter)
    draws = [(number, 0) for number in range(1, mechanism.horizon + 1)]
    outcomes, probabilities = _products(mechanism.sigma_squared, len(draws))
    return mechanism, EnumeratedNoise(outcomes, draws), probabilities


def _products(sigma_squared: float, draws: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Every outcome of so many independent draws, shape (outcomes, draws), and their probabilities."""
    reach = ceil(REACH * sqrt(sigma_squared))
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values.astype(np.float64) ** 2) / (2 * sigma_squared))
    weights /= weights.sum()
    return _grid([values] * draws).astype(np.int32), np.prod(_grid([weights] * draws), axis=1)


def _grid(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """All sequences of one of the values at each place, shape (sequences, places)."""
    return np.stack([each.reshape(-1) for each in np.meshgrid(*values, indexing="ij")], axis=1)


@lru_cache(maxsize=4)
def noise_of_rounds(mechanism: BltMechanism) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """What the noise of all rounds rounds to, shape (outcomes, horizon), and their probabilities."""
    horizon, gaps = mechanism.horizon, np.array(mechanism.gaps.poles)
    weights = np.array([float(weight) for weight in output_weights(mechanism.gaps)])
    column = np.array([float(weights @ (1 - gaps) ** k) for k in range(horizon)])
    return rounded_gaussians(mechanism.draw_sd * lower_toeplitz(column))


def lower_toeplitz(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lower triangular Toeplitz matrix with this first column."""
    size = len(column)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(size)] for i in range(size)])


def rounded_gaussians(matrix: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """What `matrix` times independent standard normals rounds to, shape (outcomes, rows), and the probabilities."""
    size = len(matrix)
    inverse = np.linalg.inv(matrix)
    reaches = np.ceil(REACH * np.linalg.norm(matrix, axis=1)).astype(int)
    outcomes = _grid([np.arange(-reach, reach + 1) for reach in reaches])
    places, lengths = np.polynomial.legendre.leggauss(_QUADRATURE_NODES)
    probabilities = np.zeros(len(outcomes))
    for place, length in zip(_grid([places / 2] * size), _grid([lengths / 2] * size), strict=True):
        draws = (outcomes + place) @ inverse.T
        probabilities += np.prod(length) * np.exp(-0.5 * np.sum(draws**2, axis=1))
    probabilities *= float(np.linalg.det(inverse)) / (2 * pi) ** (size / 2)
    return outcomes.astype(np.int32), probabilities


class _WithoutCounter(BltMechanism, frozen=True, tag="blt, enumerated"):
    """The mechanism with its thresholds and its rule, whose counter looks its noise up."""

    def counter(self, noise: Any) -> Any:
        """The noise of round r of label i is `outcomes[i, r - 1]`."""
        return _LookedUp(noise)


def _without_counter(mechanism: BltMechanism) -> _WithoutCounter:
    fields = {name: getattr(mechanism, name) for name in mechanism.__struct_fields__}
    return _WithoutCounter(**fields)


class _LookedUp:
    """Enumerated noise with the part of a `Counter` that the whole noise table uses."""

    def __init__(self, noise: EnumeratedNoise) -> None:
        self._noise = noise
        self.round = self.labels = 0

    def restore(self, state: CounterState, labels: int) -> None:
        """See `Counter.restore`."""
        self.round, self.labels = state.round, labels

    def advance(
        self,
        ids: NDArray[np.uint64],
        histories: Sequence[bytes],
        hits: Hits,
        first_seen: NDArray[np.int64],
        wanted: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """See `Counter.advance`."""
        first, self.labels = self.round, len(ids)
        self.round += len(histories)
        return self._noise.outcomes[ids[:, 0], first : self.round].T.copy()
