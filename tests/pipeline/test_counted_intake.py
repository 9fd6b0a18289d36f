"""What a worker refuses of an engine that says what barriers make impossible, and what it takes where days count."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_dp.engine.epoch import Epoch
from stream_dp.events.barrier_chain import PARTITION, Barrier
from stream_dp.events.counted_round import CountedRound, CountsRefused, PartitionOfRound
from stream_dp.pipeline.counted_intake import CountedIntake
from tests.events.barrier_chains import chain
from tests.pipeline.test_user_days import BERLIN, HOUR, KEY, SHORT, epoch

DAYS = epoch(mechanism="blt", discover="every-2", horizon=63)
CELLS = epoch(mechanism="blt", discover="every-2", horizon=63, cap_share=True)
PART = PartitionOfRound(b"head", 5, b"digest", b"last")
UNITS = msgspec.structs.replace(PART, units=5, over=1)
OF_NO_DAY = msgspec.structs.replace(PART, head=b"")


def barriers() -> list[Barrier]:
    """Two on one day, and two on the next: what the first and the third close is of no day."""
    following, found = chain(), []
    begins = BERLIN.begins(SHORT)
    for number, due in enumerate(
        (begins + HOUR, begins + 2 * HOUR, begins + 25 * HOUR, begins + 26 * HOUR), 1
    ):
        barrier = following.take(following.last.next_offset, following.encode(due, {PARTITION: 5 * number}))
        assert barrier is not None
        found.append(barrier)
    return found


def numbers(*found: int) -> bytes:
    return np.array(found, "<i4").tobytes()


def said(**changed: Any) -> list[CountedRound]:
    """The four records, of which "tea" is shown; `changed` of the last one, which closes round 2 and has a test."""
    rounds = [
        CountedRound(DAYS.nonce, number, barrier.digest, [part], *counts)
        for number, (barrier, part, counts) in enumerate(
            zip(
                barriers(),
                (OF_NO_DAY, PART, OF_NO_DAY, PART),
                ((b"", b""), (numbers(0), numbers(4)), (b"", b""), (numbers(0), numbers(5))),
                strict=True,
            ),
            1,
        )
    ]
    fields = {"found": [("new", 1_000)], **changed}
    return [*rounds[:-1], msgspec.structs.replace(rounds[-1], **fields)]


def take(rounds: Sequence[CountedRound], most: int = 9, opened: Epoch = DAYS) -> tuple[CountedIntake, Any]:
    intake = CountedIntake(opened, KEY, None, ["tea"])
    parts = [part for pair in zip(rounds, barriers(), strict=False) for part in pair]
    return intake, intake.process(parts, most)


def test_units_are_counted_if_the_epoch_asks_for_them_and_there_may_be_so_many() -> None:
    rounds = said(partitions=[UNITS])
    _, closed = take(rounds, opened=CELLS)
    assert closed.cells == [(0, 0), (5, 1)]
    for impossible in ({"units": 6}, {"over": 6}, {"over": -1}):
        strange = msgspec.structs.replace(UNITS, **impossible)
        with pytest.raises(CountsRefused, match="more units than there are events"):
            take(said(partitions=[strange]), opened=CELLS)


def test_what_is_of_no_day_is_no_round_and_stands_in_the_log() -> None:
    intake, closed = take(said())
    assert closed.admitted == [{"tea": 4}, {"tea": 5}]
    assert [*closed.found] == [2]
    assert closed.records == 20
    assert closed.timestamps == [barriers()[1].due, barriers()[3].due]
    assert intake.position.offsets == (20,)
    some, _ = take(said()[:3])
    assert some.position.closed == barriers()[1].due, "the third one counts nowhere"
    assert some.position.barrier == barriers()[2]
    one, closed = take(said(), 1)
    assert (len(closed.admitted), one.position.barrier) == (1, barriers()[1]), "the horizon ends there"


@pytest.mark.parametrize(
    ("number", "changed", "why"),
    [
        (3, {"barrier": "another"}, "closed by another barrier"),
        (3, {"partitions": [PART, PART]}, "closed by another barrier"),
        (3, {"places": numbers(0, 0), "counts": numbers(1, 1)}, "no labels that could be"),
        (3, {"counts": numbers(0)}, "no labels that could be"),
        (3, {"counts": numbers(6)}, "more events than there are"),
        (3, {"places": numbers(1)}, "labels that are not shown"),
        (3, {"found": None}, "a test too many or too few"),
        (1, {"found": []}, "a test too many or too few"),
        (3, {"found": [("tea", 1_000)]}, "cannot have found"),
        (3, {"found": [("new", 1)]}, "cannot have found"),
        (3, {"found": [("new", 1_000), ("a", 1_000)]}, "cannot have found"),
        (3, {"partitions": [UNITS]}, "more units than there are events, or units that nobody asks for"),
        (2, {"partitions": [PART]}, "of no day"),
        (2, {"partitions": [msgspec.structs.replace(UNITS, head=b"")]}, "of no day"),
        (2, {"found": []}, "of no day"),
        (2, {"places": numbers(0), "counts": numbers(1)}, "of no day"),
    ],
)
def test_what_barriers_make_impossible_is_refused(number: int, changed: dict[str, Any], why: str) -> None:
    rounds = said()
    rounds[number] = msgspec.structs.replace(rounds[number], **changed)
    with pytest.raises(CountsRefused, match=why):
        take(rounds)
