"""The noisy counts of labels, round after round: noise that a counter drew, and the counts that it belongs to."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.protocol import Hits


def add_counts(
    noisy: NDArray[np.int32], numbers: NDArray[np.int64], counts: NDArray[np.int32], hits: Hits
) -> None:
    """Add to row i the counts after round `numbers[i]`: `counts` and the hits so far, whose rows are columns here."""
    steps = numbers.searchsorted(hits.rounds)
    inside = steps < len(numbers)
    grown_by = np.zeros_like(noisy)
    times = None if hits.times is None else hits.times[inside]
    cells = steps[inside] * noisy.shape[1] + hits.rows[inside]
    Hits(steps[inside], cells, times).add_to(grown_by.reshape(-1))
    grown_by[:1] += counts
    for before, after in pairwise(grown_by):  # numpy's own accumulation goes down each column by itself
        after += before
    noisy += grown_by
