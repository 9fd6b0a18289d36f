"""The live nodes of a binary counter's state, put together from its columns."""

from stream_dp.counters.tree import Node
from stream_dp.histogram import HistogramState


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
