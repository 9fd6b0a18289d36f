"""What a one-shot mechanism returns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.cost import Cost


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """The public outcome of one run; every field may be published.

    `items`: numbers of the released items, int64 of shape (n,), in the order the mechanism gives them a meaning.
    `counts`: their noisy counts, int64 of shape (n,), or None where the mechanism releases labels only.
    `sd`: the standard deviation of each released count, or None.
    `bottom`: the mechanism itself says that it returns fewer items than asked for.
    """

    items: NDArray[np.int64]
    cost: Cost
    counts: NDArray[np.int64] | None = None
    sd: float | None = None
    bottom: bool = False
