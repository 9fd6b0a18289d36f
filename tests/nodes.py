"""The live nodes of a binary counter's state, put together from its columns."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.engine.histogram import HistogramState


class Node(NamedTuple):
    """A live node: the round that completed it, its tweak, and every label's own sum and noise."""

    round: int
    tweak: bytes
    sums: NDArray[np.int32]
    noise: NDArray[np.int32]


def live_nodes(state: HistogramState) -> list[Node]:
    """Latest first; the arrays are those of the state."""
    columns = {column.name: column for column in state.counter.columns}
    return [
        Node(
            column.version,
            state.counter.tweaks[column.version],
            column.cells,
            columns[name.replace("sums", "noise")].cells,
        )
        for name, column in columns.items()
        if name.startswith("sums:")
    ]
