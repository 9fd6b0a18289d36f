"""What the histogram releases: the labels and counts of some rounds, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Snapshot:
    """What one round releases: `labels` (object) and `counts` (integers), largest count first, then by label."""

    round: int
    labels: NDArray[np.object_]
    counts: NDArray[Any]


@dataclass(frozen=True)
class ReleasedBlock:
    """The snapshots of some rounds, as columns: round `rounds[i]` released `sizes[i]` labels.

    `ranks` and `counts` (integers) hold them one round after the other, each in the order of its release; a rank is a
    position in `labels`, the labels released so far by this process in label order.  `labels` is replaced,
    never changed, when another label is released for the first time.  `heads[i]` is the head of the hash chain after
    the round, where this process knows it.  `found`, where labels are found at tests, is the test that found each of
    `labels`, 0 for one that was known before.
    """

    rounds: NDArray[np.int64]
    sizes: NDArray[np.int64]
    ranks: NDArray[Any]
    counts: NDArray[Any]
    labels: NDArray[np.object_]
    heads: Sequence[bytes] = ()
    found: NDArray[np.int32] | None = None

    def snapshots(self) -> list[Snapshot]:
        """The releases of this block, one per round."""
        ends = np.cumsum(self.sizes)
        return [
            Snapshot(int(number), self.labels[self.ranks[end - size : end]], self.counts[end - size : end])
            for number, size, end in zip(self.rounds, self.sizes, ends, strict=True)
        ]
