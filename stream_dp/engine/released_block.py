"""What the histogram releases: the labels and counts of some rounds, as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Snapshot:
    """What one round releases: `labels` (object) in the order in which they were found, and `counts` (integers)."""

    round: int
    labels: NDArray[np.object_]
    counts: NDArray[Any]


@dataclass(frozen=True)
class ReleasedBlock:
    """The snapshots of some rounds: round `rounds[i]` released `sizes[i]` labels, and `counts[i, j]` of label j.

    `labels` (object) are those found so far, in the order of the rounds (or tests) that found them, then by name.  They
    are replaced, never changed, when others are found.  `heads[i]` is the head of the hash chain after the round.  A
    round released the first ones of the labels if `shown` is None, else those that `shown[i]` marks; other counts tell
    nothing.  `found` is there if labels are found at tests: the test that found each of `labels`, 0 for one that was
    known before.  `cap_cells` is there if cells are counted beside the labels: what each round released of them.
    """

    rounds: NDArray[np.int64]
    sizes: NDArray[np.int64]
    counts: NDArray[Any]
    labels: NDArray[np.object_]
    heads: Sequence[bytes]
    shown: NDArray[np.bool_] | None = None
    found: NDArray[np.int32] | None = None
    cap_cells: NDArray[np.int64] | None = None

    @classmethod
    def of_shown(
        cls,
        rounds: NDArray[np.int64],
        counts: NDArray[Any],
        labels: NDArray[np.object_],
        heads: Sequence[bytes],
        shown: NDArray[np.bool_],
    ) -> "ReleasedBlock":
        """One that released what `shown` marks."""
        sizes = np.count_nonzero(shown, axis=1)
        first_ones = sizes.min(initial=len(labels)) == len(labels) or bool(
            np.all(shown == (np.arange(len(labels)) < sizes[:, np.newaxis]))
        )
        return cls(rounds, sizes, counts, labels, heads, None if first_ones else shown)

    def places(self, row: int) -> NDArray[np.int64]:
        """The places in `labels` of what round `rounds[row]` released."""
        return np.arange(self.sizes[row]) if self.shown is None else np.flatnonzero(self.shown[row])

    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows and places of all counts that were released, round after round."""
        shown = self.shown
        if shown is None:
            shown = np.arange(len(self.labels)) < self.sizes[:, np.newaxis]
        rows, places = np.nonzero(shown)
        return rows, places

    def snapshots(self) -> list[Snapshot]:
        """The releases of this block, one per round."""
        return [
            Snapshot(number, self.labels[places], self.counts[row, places])
            for row, number in enumerate(self.rounds.tolist())
            for places in (self.places(row),)
        ]
