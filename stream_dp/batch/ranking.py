"""The head of a histogram: all that a top-k mechanism over an unknown domain may look at."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The at most kbar largest positive counts and the count that follows them.

    `items`, `counts`: int64 of shape (n,), n <= kbar, by falling count, equal counts by rising item number.
    `next_count`: the (kbar + 1)-th largest count, 0 where there is none.
    """

    items: NDArray[np.int64]
    counts: NDArray[np.int64]
    next_count: int

    def at(self, rank: int) -> int:
        """The count at `rank` = 1, 2, ...; 0 beyond the items."""
        return int(self.counts[rank - 1]) if rank <= len(self.counts) else 0

    def gaps(self, kbar: int) -> NDArray[np.int64]:
        """h_(j) - h_(j+1) for j = 1..kbar, int64 of shape (kbar,)."""
        padded = np.zeros(kbar + 1, np.int64)
        padded[: len(self.counts)] = self.counts
        padded[kbar] = self.next_count
        return padded[:-1] - padded[1:]


def head(counts: NDArray[np.int64], kbar: int) -> Head:
    """The head of `counts`, int64 of shape (items,).

    Ties go to the smaller item number, so numbers must follow an order that does not depend on who is present:
    number the labels by their sorted bytes.
    """
    wanted = min(kbar + 1, len(counts))
    if not wanted:
        return Head(np.empty(0, np.int64), np.empty(0, np.int64), 0)
    cutoff = max(1, int(np.partition(counts, len(counts) - wanted)[len(counts) - wanted]))
    above = np.flatnonzero(counts > cutoff)
    tied = np.flatnonzero(counts == cutoff)[: wanted - len(above)]
    items = np.concatenate([above, tied])
    items = items[np.lexsort((items, -counts[items]))]
    following = int(counts[items[kbar]]) if len(items) > kbar else 0
    return Head(items[:kbar], counts[items[:kbar]], following)
