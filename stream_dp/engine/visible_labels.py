"""Which labels a process has released so far, and which cells of a block of rounds it must not show."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import grown


def hide_until(
    since: NDArray[np.int32], rounds: NDArray[np.int64], noisy: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Put the cells of each column before the round `since` below all others; returns the least count of the others."""
    late = np.flatnonzero(since > rounds[0])
    least = noisy.min()
    early = rounds[:, np.newaxis] < since[late]
    noisy[:, late] = np.where(early, least - 1, noisy[:, late])
    return np.full(len(rounds), least)


def hide_below(
    tau: NDArray[np.int32], known: NDArray[np.bool_], noisy: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Put the cells below `tau` of columns that are not `known` below all others; returns the others' least count."""
    least = noisy.min(initial=0)
    noisy[(noisy < tau[:, np.newaxis]) & ~known] = least - 1
    return np.full(len(tau), least)


class VisibleLabels:
    """The labels released so far by this process, in label order: `rows` (int64) and `labels` (object)."""

    def __init__(self) -> None:
        self.rows = np.empty(0, np.int64)
        self.labels = np.empty(0, object)
        self._included = np.empty(0, bool)

    def include(self, rows: NDArray[np.int64], labels: Sequence[str]) -> None:
        """Add `rows`, positions in `labels`."""
        self._included = grown(self._included, len(labels))
        new = rows[~self._included[rows]]
        if not len(new):
            return
        self._included[new] = True
        texts = [*self.labels.tolist(), *map(labels.__getitem__, new.tolist())]
        order = sorted(range(len(texts)), key=texts.__getitem__)
        self.rows = np.concatenate([self.rows, new])[order]
        self.labels = np.array(texts, object)[order]
