"""What a one-shot mechanism returns."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.batch.intervals import Law, interval_ends
from stream_dp.privacy.share import Share


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The public outcome of one run; every field may be published.

    `items`: numbers of the released items, int64 of shape (n,), in the order the mechanism gives them a meaning.
    `counts`: their noisy counts, int64 of shape (n,), or None where the mechanism releases labels only.
    `sd`: the standard deviation of the noise in each released count, or None, and `law` its law.
    `least`: from which noisy count on items were released; None if it did not depend on that.
    `bottom`: the mechanism itself says that it returns fewer items than asked for.
    `rank`: a released rank instead of items.
    `chosen`: the parameters that the mechanism chose by a noisy estimate.
    `over_cap`: which share of the users holds more items than are counted, by that estimate.
    """

    items: NDArray[np.int64]
    counts: NDArray[np.int64] | None = None
    sd: float | None = None
    law: Law = "normal"
    least: int | None = None
    bottom: bool = False
    rank: int | None = None
    chosen: dict[str, Any] = field(default_factory=dict)
    over_cap: Share | None = None

    def first(self, most: int) -> "Outcome":
        """The same, cut to the first `most` items; what comes behind them is then the threshold of their counts."""
        if self.counts is None or len(self.items) <= most:
            return replace(self, items=self.items[:most])
        return replace(self, items=self.items[:most], counts=self.counts[:most], least=int(self.counts[most]))

    def columns(self) -> dict[str, list[int] | None]:
        """`counts` and their 95% intervals, `low` to `high`, as lists; each None if there are none."""
        counts, ends = self.counts, self.ends
        low, high = (None, None) if ends is None else (end.tolist() for end in ends)
        return {"counts": None if counts is None else counts.tolist(), "low": low, "high": high}

    @property
    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The ends of the counts' 95% intervals, each int64 of shape (n,); None where there are no counts."""
        if self.counts is None or self.sd is None:
            return None
        return interval_ends(self.counts, self.sd, self.law, self.least)
