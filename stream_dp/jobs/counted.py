"""What mechanisms ask of the rows of a source, wherever they are: in memory, in files, or on other machines."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stream_dp.batch.baskets import Baskets, Weighing

Integers = NDArray[np.int64]


class Counted(Weighing, ABC):
    """Rows whose items are numbered by their sorted labels (bytes), so that their order stays when a user goes away.

    `labels`: UTF-8 as Arrow large_binary, of shape (items,).
    """

    labels: pa.LargeBinaryArray

    @property
    def item_count(self) -> int:
        """How many items there are."""
        return len(self.labels)

    @abstractmethod
    def counts(self) -> Integers:
        """How many distinct users hold each item, int64 of shape (items,)."""

    @abstractmethod
    def sizes(self, edges: Sequence[int]) -> Integers:
        """How many users hold edges[b] to edges[b + 1] - 1 items, and last edges[-1] or more, shape (edges,).

        The first edge is 1, so that every user who holds anything is in exactly one.
        """

    @abstractmethod
    def weighing(self) -> Weighing:
        """These rows for a mechanism that asks for weights several times."""

    @abstractmethod
    def baskets(self) -> Baskets:
        """What each user holds, all of it in memory."""

    @abstractmethod
    def restricted(self, bins: list[str]) -> "Counted":
        """The rows that name one of `bins`, with items numbered by their place in it."""

    def names(self, items: Integers) -> list[str]:
        """The labels of `items`."""
        return [label.decode() for label in self.labels.take(pa.array(items)).to_pylist()]

    def places(self, labels: list[str]) -> Integers:
        """For every item its place in `labels`, or -1; int64 of shape (items,)."""
        return places_in(self.labels, as_labels(labels))


def as_labels(names: list[str]) -> pa.LargeBinaryArray:
    """Names as `Counted.labels` has them."""
    return pa.array([name.encode() for name in names], pa.large_binary())


def places_in(labels: pa.LargeBinaryArray, wanted: pa.LargeBinaryArray) -> Integers:
    """For every one of `labels` its place in `wanted`, or -1; int64 of shape (labels,)."""
    return pc.fill_null(pc.index_in(labels, wanted), -1).to_numpy().astype(np.int64)
