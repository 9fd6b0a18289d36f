"""The state of a histogram as Redis keeps it: labels, columns, and the record that says how they belong together."""

from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from stream_dp.counters.protocol import Column, CounterState
from stream_dp.engine.cap_cells import CellState
from stream_dp.engine.histogram import HistogramState, ShownLabels
from stream_dp.engine.label_texts import LabelTexts
from stream_dp.store.checkpoint_records import (
    CELL_COUNTS,
    CELLS,
    FORMAT,
    RECENT,
    SHOWN,
    SHOWN_COUNTS,
    SHOWN_ROWS,
    SHOWN_SINCE,
    SHOWN_TESTS,
    Checkpoint,
    ColumnMeta,
    Meta,
)
from stream_dp.store.seals import Seal, Seals


def first_seal(seals: Seals, nonce: bytes, column: ColumnMeta) -> Seal:
    """The seal of a column that holds nothing yet."""
    return seals.of(column.name, nonce, column.version, column.dtype)


def meta_of(checkpoint: Checkpoint, columns: list[ColumnMeta], number: int, topics: dict[str, str]) -> Meta:
    """The meta record of a checkpoint with these columns; `number` counts the checkpoints of an epoch."""
    state = checkpoint.state
    return Meta(
        FORMAT,
        number,
        checkpoint.epoch,
        state.counter.round,
        state.history,
        len(state.labels),
        LabelTexts.of(state.labels).code_bytes,
        len(checkpoint.pairs),
        columns,
        state.counter.tweaks,
        checkpoint.position,
        checkpoint.releases_offset,
        checkpoint.key_check,
        topics,
        state.labels_version,
        checkpoint.counts_offset,
    )


def state_of(meta: Meta, labels: LabelTexts, cells: Mapping[str, NDArray[Any]]) -> HistogramState:
    """The histogram that the meta record describes and these cells fill."""
    found = {
        column.name: Column(column.name.partition(":")[2], column.version, cells[column.name])
        for column in meta.columns
    }
    shown_since = found.pop(SHOWN_SINCE, None)
    everyone = [column for name, column in found.items() if name.startswith("column:")]
    counter = CounterState(meta.round, everyone, meta.tweaks)
    state = HistogramState(meta.history, labels, cells["counts"], counter, labels_version=meta.labels_version)
    state.recent = [column for name, column in found.items() if name.startswith(RECENT)]
    if shown_since is not None:
        state.shown_since = shown_since.cells
    if CELL_COUNTS in found:
        counts = found.pop(CELL_COUNTS).cells
        beside = [column for name, column in found.items() if name.startswith(CELLS)]
        state.cells = CellState(counts, CounterState(meta.round, beside, meta.tweaks))
    if SHOWN_ROWS in found:
        rows, tests, shown_counts = (
            found.pop(each).cells for each in (SHOWN_ROWS, SHOWN_TESTS, SHOWN_COUNTS)
        )
        shown = [column for name, column in found.items() if name.startswith(SHOWN)]
        state.shown = ShownLabels(rows, tests, shown_counts, CounterState(meta.round, shown))
    return state


def columns_of(state: HistogramState) -> Iterator[tuple[str, Column]]:
    """The columns of a state under their names in Redis."""
    for column in state.counter.columns:
        yield f"column:{column.name}", column
    if state.shown_since is not None:
        yield SHOWN_SINCE, Column("since", state.round, state.shown_since)
    if state.shown is not None:
        for column in state.shown.counter.columns:
            yield f"{SHOWN}{column.name}", column
        yield SHOWN_ROWS, Column("rows", 0, state.shown.rows)  # labels that are found are only added
        yield SHOWN_TESTS, Column("tests", 0, state.shown.tests)
        yield SHOWN_COUNTS, Column("counts", state.round, state.shown.counts)
    if state.cells is not None:
        for column in state.cells.counter.columns:
            yield f"{CELLS}{column.name}", column
        yield CELL_COUNTS, Column("counts", state.round, state.cells.counts)
    for column in state.recent:
        yield f"{RECENT}{column.name}", column
