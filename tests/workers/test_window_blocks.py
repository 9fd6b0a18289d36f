"""Which blocks of windows are written down: a function of the log, whatever crashes come between."""

from dataclasses import replace
from functools import cache

import pytest

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.epochs.journal import BlockBegun
from stream_dp.events.record import Record
from stream_dp.pipeline.intake import Intake
from stream_dp.workers.window_blocks import APART, WindowBlocks

KEY, WINDOW, SIZE, BLOCKS = bytes(range(32)), 4, 3, 9
NOW = 1_700_000_000_000
SETTINGS = Settings(
    stream="shop",
    epsilon=1.0,
    delta=0.5,
    items_per_event=1,
    mechanism="window",
    window=WINDOW,
    rounds=f"every-{SIZE}",
)
LOG = [
    Record(7 + 2 * number, NOW + number * APART // (2 * WINDOW * SIZE), None, b"anything")
    for number in range(WINDOW * SIZE * BLOCKS)
]
"""Offsets have gaps, and two blocks take as long as two must be apart."""


@cache
def opened() -> Epoch:
    return Epoch.open(SETTINGS, 1, 7)


class Journal:
    """What `Epochs` and its journal are to those who write blocks down."""

    def __init__(self) -> None:
        self.blocks: dict[int, dict[int, tuple[int, int]]] = {}
        self.journal = self

    def append_block(self, begun: BlockBegun, at: int) -> None:
        self.blocks.setdefault(begun.number, {}).setdefault(begun.block, (begun.offset, at))


def written(log: list[Record], at_once: int, crash_every: int, epoch: Epoch | None = None) -> Journal:
    """What a worker writes down that has a checkpoint after every batch, and crashes after every so many of them."""
    epoch = epoch or opened()
    journal, intake = Journal(), Intake(epoch, KEY, "shop.events")
    blocks, rounds = WindowBlocks(journal, epoch), 0  # type: ignore[arg-type]
    for number, start in enumerate(range(0, len(log), at_once), 1):
        if number % crash_every == 0:  # what was seen since the checkpoint is lost, and seen again
            again = Intake(epoch, KEY, "shop.events", intake.position)
            entries = [each for each in log if intake.position.next_offset <= each.offset]
            blocks.see(again.process(entries[: 2 * at_once], 2**30, rounds).blocks)
            blocks = WindowBlocks(journal, epoch)  # type: ignore[arg-type]
            intake = Intake(epoch, KEY, "shop.events", intake.position)
        closed = intake.process(log[: start + at_once], 2**30, rounds)
        rounds += len(closed.admitted)
        blocks.see(closed.blocks)
        blocks.write()
    return journal


@pytest.mark.parametrize("crash_every", [1, 2, 10**6])
@pytest.mark.parametrize("at_once", [1, 5, 12, 1000])
def test_the_log_alone_decides_what_is_written_down(at_once: int, crash_every: int) -> None:
    expected = {
        block: (LOG[block * WINDOW * SIZE - 1].offset + 1, LOG[block * WINDOW * SIZE - 1].timestamp)
        for block in range(1, BLOCKS, 2)
    }
    assert written(LOG, at_once, crash_every).blocks == {1: expected}


def test_who_crashes_after_writing_them_down_writes_no_others() -> None:
    """Of blocks that it sees again, those that were left out lie far before the last one that is on record."""
    journal = written(LOG, 1000, 10**6)
    before = {number: dict(found) for number, found in journal.blocks.items()}
    again = WindowBlocks(journal, opened())  # type: ignore[arg-type]
    again.see(Intake(opened(), KEY, "shop.events").process(LOG, 2**30).blocks)
    again.write()
    assert journal.blocks == before


def test_clocks_that_jump_back_and_forth_do_not_end_it() -> None:
    log = [each._replace(timestamp=NOW - (-1) ** place * place * APART) for place, each in enumerate(LOG)]
    assert len(written(log, 5, 2).blocks[1]) == BLOCKS - 1


def test_of_a_derived_topic_nothing_is_written_down() -> None:
    derived = replace(opened(), privacy={**opened().privacy, "data_source": "elsewhere"})
    assert derived.is_derived
    assert written(LOG, 5, 10**6, derived).blocks == {}
