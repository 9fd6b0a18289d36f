"""Frames: whoever reads whichever of them sees the newest release exactly, and nobody's slowness is remembered."""

import asyncio
import random
import tracemalloc
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.dashboard import frames as frames_module
from stream_dp.dashboard.board import Board
from stream_dp.dashboard.frames import SECONDS_PER_FRAME, Frames
from stream_dp.releases.release import Release
from tests.dashboard.viewer import Viewer
from tests.example_releases import carrying_on, release


def show(board: Board, shown: Release, now: float = 0.0) -> None:
    board.take(shown, published=1_000.0, delay=0.0, behind=0, now=now, live=True)


def counts_of(seed: int, labels: int) -> dict[str, int]:
    rng = random.Random(seed)
    chosen = rng.sample(range(2 * labels), labels)
    return {f"label {each}": count for each, count in zip(chosen, range(900 + labels, 900, -1), strict=True)}


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=20),
    st.integers(0, 19),
    st.sampled_from([4, 10_000]),
)
async def test_every_viewer_sees_the_newest_release_whatever_it_missed(
    reading: list[list[bool]], new_epoch_at: int, spare_labels: int
) -> None:
    """Three viewers read or miss each frame; the labels' numbers are given anew at an epoch or when too many."""
    with patch.object(frames_module, "_SPARE_LABELS", spare_labels):
        board, viewers, seen = Board(), [Viewer() for _ in range(3)], [0, 0, 0]
        frames = Frames(board, "shop")
        frames.viewers = 3
        for step, reads in enumerate(reading, start=1):
            shown = release(step, counts_of(step, 8))
            if step > new_epoch_at:
                shown = msgspec.structs.replace(shown, epoch=2, nonce="11" * 16)
            show(board, shown)
            frames._make()
            for index, reader in enumerate(viewers):
                if reads[index]:
                    seen[index], frame = await frames.next(seen[index])
                    reader.read(frame)
                    assert reader.counts == dict(zip(shown.labels, shown.counts, strict=True))
                    assert reader.told["release"]["round"] == step
                    assert reader.told["guarantee"]


async def test_many_releases_become_one_frame_with_the_same_bytes_for_all() -> None:
    board = Board()
    frames = Frames(board, "shop")
    frames.viewers = 2
    show(board, release(1, {"a": 300}))
    first, _ = await frames.next(0)
    for number in range(2, 1_000):
        show(board, release(number, {"a": 300 + number}))
    frames._make()
    (number, one), (_, other) = await frames.next(first), await frames.next(first)
    assert number == first + 1
    assert one is other
    viewer = Viewer()
    viewer.read((await frames.next(0))[1])
    assert (viewer.round, viewer.counts) == (999, {"a": 1_299})


async def test_no_frames_are_made_when_nobody_watches_and_no_more_than_ten_a_second() -> None:
    board, waits = Board(), []
    frames = Frames(board, "shop")

    async def passing(seconds: float) -> None:
        waits.append(seconds)
        show(board, release(len(waits), {"a": 300}))
        if len(waits) == 50:
            frames.viewers = 1
        if len(waits) == 100:
            frames.close()

    with patch.object(asyncio, "sleep", passing):
        await frames.follow()
    assert frames.made == 51
    assert min(waits) >= SECONDS_PER_FRAME


async def test_very_large_frames_come_less_often() -> None:
    board, waits = Board(), []
    frames = Frames(board, "shop")
    frames.viewers = 1

    async def passing(seconds: float) -> None:
        waits.append(seconds)
        show(board, release(len(waits), counts_of(len(waits), 20_000)))
        if len(waits) == 3:
            frames.close()

    with patch.object(asyncio, "sleep", passing):
        await frames.follow()
    assert waits[-1] >= len(frames._update) / 1_000_000 > SECONDS_PER_FRAME


async def test_a_viewer_waits_until_there_is_something_new_and_goes_when_the_server_stops() -> None:
    board = Board()
    frames = Frames(board, "shop")
    seen, _ = await frames.next(0)
    waiting = asyncio.ensure_future(frames.next(seen))
    await asyncio.sleep(0)
    assert not waiting.done()
    show(board, release(1, {}))
    frames._make()
    seen, frame = await waiting
    assert b'"round":1,' in frame
    waiting = asyncio.ensure_future(frames.next(seen))
    await asyncio.sleep(0)
    frames.close()
    assert (await waiting)[1] == b""


async def test_memory_stays_flat_in_a_long_run_with_labels_that_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An epoch of 1,875 rounds of 100 labels out of 37,500; a viewer that reads nothing; a frame every 5 rounds.

    It keeps as many past releases in round 937, when the labels known have been forgotten seven times, as in 1,875.
    """
    monkeypatch.setattr(frames_module, "_SPARE_LABELS", 2_500)
    board = Board()
    frames = Frames(board, "shop")
    frames.viewers = 1
    await frames.next(0)

    def run(first: int, end: int) -> int:
        for number in range(first, end, 5):
            labels = {f"{number // 5}-{rank}": 900 - rank for rank in range(100)}
            for each in range(number, number + 5):
                show(board, release(each, labels), now=each / 50)
            frames._make()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = run(1, 937)
        after = run(941, 1_875)
    finally:
        tracemalloc.stop()
    assert after - before < 500_000
    assert len(frames._labels) < 2_750


async def test_totals_are_told_and_taken_back_by_an_epoch_that_carries_nothing_on() -> None:
    board, viewer, seen = Board(), Viewer(), 0
    frames = Frames(board, "shop")
    frames.viewers = 1
    carried = carrying_on(release(1, {"a": 900, "b": 800, "c": 150}))
    forged = msgspec.structs.replace(carried, nonce="44" * 16, epoch=4, total_sds=None)
    alone = msgspec.structs.replace(release(1, {"a": 900}), nonce="55" * 16, epoch=5)
    told = []
    for shown in (carried, forged, carried, alone):
        show(board, shown)
        frames._make()
        seen, frame = await frames.next(seen)
        viewer.read(frame)
        told.append([viewer.told[name] for name in ("totals", "total_margins", "since")])
    totals = [[1_900, 1_800, 150], [49, 49, 32], [1, 1, 3]]
    assert told == [totals, [None] * 3, totals, [None] * 3]
