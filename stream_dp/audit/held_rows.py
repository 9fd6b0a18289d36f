"""Small data of an audit: what each user holds, as the rows that a mechanism reads for every combination of noise."""

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stream_dp.batch.baskets import Baskets
from stream_dp.jobs.rows import Rows

Holdings = tuple[tuple[int, ...], ...]
"""What each user holds."""

LABELS = ("a", "b", "c")


def rows_of(holdings: Holdings) -> Rows:
    """A row for each label that a user holds."""
    users = [user for user, items in enumerate(holdings) for _ in items]
    items = [item for mine in holdings for item in mine]
    labels = pa.array([label.encode() for label in LABELS], pa.large_binary())
    return _Unchanging(np.array(users, np.int64), np.array(items, np.int64), labels)


class _Unchanging(Rows):
    """Rows that are read once for each combination of noise: what they alone decide is worked out once."""

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        counts = super().counts()
        counts.flags.writeable = False
        return counts

    @cached_property
    def _restricted(self) -> dict[tuple[str, ...], Rows]:
        return {}

    def counts(self) -> NDArray[np.int64]:
        return self._counts

    def baskets(self) -> Baskets:
        return self._baskets

    @cached_property
    def _baskets(self) -> Baskets:
        return super().baskets()

    def restricted(self, bins: list[str]) -> Rows:
        found = self._restricted.get(tuple(bins))
        if found is None:
            rows = super().restricted(bins)
            found = self._restricted[tuple(bins)] = _Unchanging(rows.users, rows.items, rows.labels)
        return found
