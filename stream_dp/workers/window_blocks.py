"""Where blocks of windows begin, written down so that nobody needs the log before them (block_start.py)."""

from collections.abc import Mapping

from stream_dp.engine.epoch import Epoch
from stream_dp.epochs.journal import BlockBegun
from stream_dp.epochs.lifecycle import Epochs
from stream_dp.pipeline.pipeline import Position

APART = 600_000
"""So many milliseconds of the log are between two blocks at least that are written down, because the journal stays."""


class WindowBlocks:
    """The blocks of an epoch that are to be written down, where the rounds are so many events of one partition.

    Which ones is a function of the log alone: the first, and each that begins long enough after the one before it.
    """

    def __init__(self, epochs: Epochs, epoch: Epoch) -> None:
        self._epochs, self._number = epochs, epoch.number
        self._wanted = epoch.after_barrier is None and not epoch.is_derived
        known = epochs.journal.blocks.get(epoch.number, {})
        self._last = max(((block, at) for block, (_, at) in known.items()), default=(0, -APART))
        self._due: list[tuple[BlockBegun, int]] = []

    def see(self, blocks: Mapping[int, Position]) -> None:
        """Take note of blocks that begin, some of which may have been seen before."""
        for block, position in blocks.items():
            last, at = self._last
            if self._wanted and block > last and abs(position.closed - at) >= APART:
                self._last = block, position.closed
                self._due.append(
                    (BlockBegun(self._number, block, position.next_offset), max(position.closed, 0))
                )

    def write(self) -> None:
        """Append those that are due.  Whoever crashes before a checkpoint sees them again."""
        due, self._due = self._due, []
        for entry, at in due:
            self._epochs.append_block(entry, at)
