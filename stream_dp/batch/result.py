"""What a one-shot mechanism returns."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.privacy.share import Share


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The public outcome of one run; every field may be published.

    `items`: numbers of the released items, int64 of shape (n,), in the order the mechanism gives them a meaning.
    `counts`: their noisy counts, int64 of shape (n,), or None where the mechanism releases labels only.
    `sd`: the standard deviation of each released count, or None.
    `bottom`: the mechanism itself says that it returns fewer items than asked for.
    `rank`: a released rank instead of items.
    `chosen`: the parameters that the mechanism chose by a noisy estimate.
    `over_cap`: which share of the users holds more items than are counted, by that estimate.
    """

    items: NDArray[np.int64]
    counts: NDArray[np.int64] | None = None
    sd: float | None = None
    bottom: bool = False
    rank: int | None = None
    chosen: dict[str, Any] = field(default_factory=dict)
    over_cap: Share | None = None

    def first(self, most: int) -> "Outcome":
        """The same, cut to the first `most` items."""
        counts = None if self.counts is None else self.counts[:most]
        return replace(self, items=self.items[:most], counts=counts)
